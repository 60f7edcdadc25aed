"""Rates of counters, and latencies, that are read now and then. Pure: the time is an argument."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

from echannel_ray.core.latencies import BOUNDS_SECONDS, quantile
from echannel_ray.models import ChannelStats

# Counters of a node that did not answer are missing from a sum, which falls, and jumps when it answers again: that is
# no traffic. A sum that stays low for longer has lost a process, or is of another channel of that name.
_PATIENCE_SECONDS: Final = 10.0
_BOUNDS: Final = (*BOUNDS_SECONDS, math.inf)


class RateMeter:
    """What each of many counters grew by in a second, from one round of reading to the next."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[float, float]] = {}
        self._now: dict[Hashable, tuple[float, float]] = {}

    def rate(self, key: Hashable, value: float, at: float) -> float | None:
        """The rate of a counter; None where it is not known: seen for the first time, or less than it was."""
        before = self._before.get(key)
        if before is None or (value < before[1] and at - before[0] > _PATIENCE_SECONDS):
            self._now[key] = (at, value)
            return None
        if value < before[1] or at <= before[0]:
            self._now[key] = before
            return None
        self._now[key] = (at, value)
        return (value - before[1]) / (at - before[0])

    def latencies(self, stats: ChannelStats, at: float) -> tuple[float | None, float | None]:
        """What half, and all but a hundredth, of the samples since the round before took at most; None without any."""
        counts = {float(name): (name, count) for name, count in stats.latency.items()}
        grown = {}
        for bound in _BOUNDS:  # also those without samples, so that the first is one more
            name, count = counts.get(bound, ("", 0))
            rate = self.rate((stats.channel, bound), count, at) or 0.0
            grown[name] = round(rate * 1000)  # what counts is how many there are beside the others
        return quantile(grown, 0.5), quantile(grown, 0.99)

    def end_round(self) -> None:
        """Forget what was not asked for in this round."""
        self._before, self._now = self._now, {}
