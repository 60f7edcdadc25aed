"""A link in simulated time: a source publishes, a policy says when packs leave, and sending one takes a while."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count, cycle, repeat

from echannel_ray.core.packing import Policy

PUBLISH_SECONDS = 2e-6
ANSWERING_SECONDS = 20e-6
# An event: when it comes at the earliest (0: as soon as the one before is published), and its size.
Source = Iterator[tuple[float, int]]


@dataclass
class Costs:
    """What a pack takes of the sending thread; `factor` is what others leave of the processor."""

    fixed: float = 12e-6
    each: float = 0.05e-6
    each_byte: float = 0.1e-9
    crowding: float = 0.0  # of a pack, by the square of its events: what makes too long packs slow
    factor: Callable[[float], float] = lambda now: 1.0

    def of(self, now: float, events: int, size_bytes: int) -> float:
        work = self.fixed + self.each * events + self.each_byte * size_bytes + self.crowding * events**2
        return work * self.factor(now)


@dataclass
class Run:
    """What came of it."""

    departures: list[tuple[float, int]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    degrees: list[tuple[float, int]] = field(default_factory=list)

    @property
    def events(self) -> int:
        return sum(events for _, events in self.departures)

    def rate(self, since: float = 0.0, until: float = 1e9) -> float:
        """Events a second that left between two times."""
        chosen = [(at, events) for at, events in self.departures if since <= at < until]
        return sum(events for _, events in chosen) / (chosen[-1][0] - since)

    def packed(self, since: float = 0.0, until: float = 1e9) -> float:
        """Events in the pack of an event, on average."""
        chosen = [events for at, events in self.departures if since <= at < until]
        return sum(events**2 for events in chosen) / sum(chosen)


def simulate(policy: Policy, source: Source, seconds: float, costs: Costs | None = None) -> Run:
    """One producer on one link, and a thread that sees to it that packs leave in time."""
    costs = costs or Costs()
    run = Run()
    now = 0.0
    gathered: list[float] = []
    size_bytes = 0
    due_at = 0.0

    def leave(at: float) -> float:
        nonlocal size_bytes
        took = costs.of(at, len(gathered), size_bytes)
        run.departures.append((at + took, len(gathered)))
        run.waits.extend(at - came for came in gathered)
        policy.left(at + took, len(gathered), size_bytes, took, filling_seconds=at - gathered[0])
        run.degrees.append((at, policy.degree))
        gathered.clear()
        size_bytes = 0
        return at + took

    for earliest, size in source:
        comes = max(now, earliest)
        if gathered and due_at <= comes:
            # The other thread does that, and needs the interpreter for it: the source comes behind.
            comes = max(leave(max(due_at, now)), earliest)
        now = comes + PUBLISH_SECONDS
        if now >= seconds:
            break
        if not gathered:
            due_at = policy.due_at(now)
        gathered.append(now)
        size_bytes += size
        if len(gathered) >= policy.degree or due_at <= now or size_bytes >= 128 << 10:
            now = leave(now)
    return run


def ask_and_wait(policy: Policy, callers: int, seconds: float, answer_seconds: float = 60e-6) -> Run:
    """So many who publish the next event when the one before was answered, by somebody who answers one at a time."""
    costs = Costs()
    run = Run()
    comes = [number * 1e-6 for number in range(callers)]  # when each publishes next
    heapify(comes)
    now = answered = 0.0
    while now < seconds:
        came = max(heappop(comes), now) + PUBLISH_SECONDS
        due_at = came if policy.degree == 1 else policy.due_at(came)
        gathered = [came]
        while comes and comes[0] <= due_at and len(gathered) < policy.degree:
            gathered.append(max(heappop(comes), gathered[-1]) + PUBLISH_SECONDS)
        leaves = gathered[-1] if len(gathered) >= policy.degree else max(due_at, gathered[-1])
        took = costs.of(leaves, len(gathered), 100 * len(gathered))
        now = leaves + took
        run.departures.append((now, len(gathered)))
        run.waits += [leaves - each for each in gathered]
        policy.left(now, len(gathered), 100 * len(gathered), took, filling_seconds=leaves - gathered[0])
        for _ in gathered:
            answered = max(answered, now) + ANSWERING_SECONDS
            heappush(comes, answered + answer_seconds)
    return run


# ---- sources ----


def continuous(size: int = 100) -> Source:
    return zip(repeat(0.0), repeat(size))


def alternating(first: int, second: int, events_each: int) -> Source:
    """So many of one size, then as many of the other."""
    return ((0.0, first if number // events_each % 2 == 0 else second) for number in count())


def paced(per_second: float, size: int = 100, since: float = 0.0) -> Source:
    return ((since + number / per_second, size) for number in count(1))


def scattered(per_second: float, seed: int = 1, size: int = 100) -> Source:
    """Events that know nothing of each other."""
    rng, at = random.Random(seed), 0.0
    while True:
        at += rng.expovariate(per_second)
        yield at, size


def bursts(events: int, every_seconds: float, size: int = 1000) -> Source:
    return ((every_seconds * (1 + number // events), size) for number in count())


def steps(*rates: tuple[float, float]) -> Source:
    """(events a second, for so many seconds), one after the other and again."""
    began = 0.0
    for per_second, seconds in cycle(rates):
        for number in range(1, int(per_second * seconds) + 1):
            yield began + number / per_second, 100
        began += seconds


def recorded(gaps_microseconds: list[int], size: int = 100) -> Source:
    """A trace again and again, given as the gaps between its events."""
    at = 0.0
    for gap in cycle(gaps_microseconds):
        at += gap * 1e-6
        yield at, size
