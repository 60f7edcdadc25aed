"""Sampling: some of the events, chosen by number, by rate or by chance. Each producer's replica samples on its own."""

from __future__ import annotations

import random
from functools import cached_property
from time import monotonic
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._checks import above_zero, count, number


class EveryNth(Modulator):
    """Passes the first event, and every n-th from there.

    >>> try_out(EveryNth(3), range(8))
    [0, 3, 6]
    """

    _seen = 0

    def __init__(self, n: int) -> None:
        self.n = count("n", n)

    @override
    def enqueue(self, event: Any) -> None:
        if self._seen % self.n == 0:
            self.emit(event)
        self._seen += 1


class AtMostRate(Modulator):
    """Passes up to so many events per second, and drops the others; up to `burst` of them at once after a pause.

    What passes is what comes first. `Throttle` passes the newest instead, and never loses the last. In the place of
    `per_second` there may be a `shared.Rate`, or another shared object with that field: it can be changed at any time.

    >>> try_out(AtMostRate(0.001, burst=2), ["a", "b", "c"])
    ['a', 'b']
    """

    _credit = 0.0  # in events
    _counted_at: float | None = None

    def __init__(self, per_second: Any, burst: int = 1) -> None:
        is_shared = hasattr(per_second, "per_second")
        self.per_second = per_second if is_shared else above_zero("per_second", per_second)
        self.burst = count("burst", burst)

    @override
    def enqueue(self, event: Any) -> None:
        now = monotonic()
        if self._counted_at is None:
            self._credit = self.burst
        else:
            rate = getattr(self.per_second, "per_second", self.per_second)
            self._credit = min(self.burst, self._credit + (now - self._counted_at) * rate)
        self._counted_at = now
        if self._credit >= 1:
            self._credit -= 1
            self.emit(event)


class WithProbability(Modulator):
    """Passes each event with probability `p`. With a seed, every replica makes the same choices in every run.

    >>> try_out(WithProbability(0.25, seed=7), range(12))
    [1, 3, 6, 8, 10, 11]
    """

    def __init__(self, p: float, seed: int | None = None) -> None:
        if not 0 <= number("p", p) <= 1:
            raise ValueError(f"p is a probability, from 0 to 1, not {p!r}")
        if seed is not None:
            count("seed", seed, at_least=0)
        self.p = p
        self.seed = seed

    @cached_property
    def _random(self) -> random.Random:
        return random.Random(self.seed)

    @override
    def enqueue(self, event: Any) -> None:
        if self._random.random() < self.p:
            self.emit(event)
