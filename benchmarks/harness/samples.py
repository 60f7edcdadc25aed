"""Sampling: variants take turns, several rounds, and the best of each counts.

Absolute times mean nothing from run to run on a shared machine; what disturbs one round disturbs all variants of it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """How long and how often to measure."""

    short: bool
    seed: int

    @property
    def rounds(self) -> int:
        """How often each variant takes its turn."""
        return 3 if self.short else 4  # all experiments take less than half an hour

    @property
    def sample_seconds(self) -> float:
        """How long one turn lasts, about."""
        return 0.1 if self.short else 0.25

    def random(self) -> random.Random:
        """A generator that gives the same sequence in each run with the same seed."""
        return random.Random(self.seed)


@dataclass
class Samples:
    """The figures of one variant."""

    unit: str
    higher_is_better: bool
    values: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The figure that counts."""
        return max(self.values) if self.higher_is_better else min(self.values)

    @property
    def median(self) -> float:
        """What half of the rounds were better than: for readers who doubt the best."""
        return statistics.median(self.values)

    @property
    def worst(self) -> float:
        """What no round was worse than: for what is promised each time."""
        return min(self.values) if self.higher_is_better else max(self.values)

    @property
    def spread(self) -> float:
        """The distance of the worst from the best, as a share of the best."""
        return abs(self.worst - self.best) / self.best if self.best else 0.0


Measure = Callable[[], float]


def interleave(plan: Plan, variants: Mapping[str, Measure], unit: str, higher_is_better: bool) -> dict[str, Samples]:
    """Run all variants in each round, in an order that changes from round to round."""
    samples = {name: Samples(unit, higher_is_better) for name in variants}
    order, generator = list(variants), plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        for name in order:
            samples[name].values.append(variants[name]())
    return samples


def sized(plan: Plan, rate_of: Callable[[int], float], first_count: int, max_count: int = 2_000_000) -> Measure:
    """A measure of a rate that lasts `plan.sample_seconds`: two trials, which warm up as well, find the count."""
    count = first_count
    for _ in range(2):
        rate = rate_of(count)
        count = max(first_count, min(max_count, int(rate * plan.sample_seconds)))
    return lambda: rate_of(count)


def best_of(samples: Mapping[str, Samples], prefix: str) -> tuple[str, Samples]:
    """The best variant among those whose names begin with `prefix`."""
    candidates = [(name, sample) for name, sample in samples.items() if name.startswith(prefix)]
    higher = candidates[0][1].higher_is_better
    return (max if higher else min)(candidates, key=lambda pair: pair[1].best)


def per_event(rates: Samples) -> Samples:
    """Events a second as the seconds of an event."""
    return Samples("s", higher_is_better=False, values=[1 / rate for rate in rates.values])
