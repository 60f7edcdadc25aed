"""Rates of counters that are read now and then. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# Counters of a node that did not answer are missing from a sum, which falls, and jumps when it answers again: that is
# no traffic. A sum that stays low for longer has lost a process, or is of another channel of that name.
_PATIENCE_SECONDS: Final = 10.0


class Meter:
    """What each of many counters grew by in a second, from one round of reading to the next."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[float, float]] = {}
        self._now: dict[Hashable, tuple[float, float]] = {}

    def rate(self, key: Hashable, value: float, at: float) -> float | None:
        """None where it is not known: seen for the first time, or less than it was."""
        before = self._before.get(key)
        if before is None or (value < before[1] and at - before[0] > _PATIENCE_SECONDS):
            self._now[key] = (at, value)
            return None
        if value < before[1] or at <= before[0]:
            self._now[key] = before
            return None
        self._now[key] = (at, value)
        return (value - before[1]) / (at - before[0])

    def end_round(self) -> None:
        """Forget what was not asked for in this round."""
        self._before, self._now = self._now, {}
