"""When a pack leaves: by a fixed degree, by JBora's hill climbing, or by what the link's load asks for.

A policy sees one link (a flow): when packs left, with how many events, and what sending them took. It answers two
questions: with how many events a pack leaves (`degree`), and when one leaves that has fewer (`due_at`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from echannel_ray.protocol.frames import MAX_PACK_BYTES

MAX_DEGREE = 65_536

ADAPTIVE: Literal["adaptive"] = "adaptive"
HILL_CLIMB: Literal["hill-climb"] = "hill-climb"


@dataclass(frozen=True)
class Packing:
    """A pack leaves with `degree` events, or when its first one has waited for `interval_seconds`.

    "adaptive" sends at once where the link has little to do, and gathers the more the more there is. "hill-climb" is
    JBora's policy: one step at a time, each after two measures of throughput that take `measuring_seconds`.
    """

    degree: int | Literal["adaptive", "hill-climb"] = ADAPTIVE
    interval_seconds: float = 0.002
    measuring_seconds: float = 5.0

    def __post_init__(self) -> None:
        number = isinstance(self.degree, int) and not isinstance(self.degree, bool) and 1 <= self.degree <= MAX_DEGREE
        if not number and self.degree not in (ADAPTIVE, HILL_CLIMB):
            raise ValueError(
                f"the packing degree is {ADAPTIVE!r}, {HILL_CLIMB!r} or a number of events from 1 to {MAX_DEGREE}, "
                f"not {self.degree!r}"
            )
        _check_seconds("packing interval", self.interval_seconds, 60)
        _check_seconds("measuring interval of packing", self.measuring_seconds, 3600)


def _check_seconds(what: str, seconds: object, most: int) -> None:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= most:
        raise ValueError(f"the {what} is more than 0 and at most {most} seconds, not {seconds!r}")


class Policy(Protocol):
    """See above. The shell calls it under its lock, with a clock of its own."""

    @property
    def degree(self) -> int:
        """With so many events a pack leaves."""

    @property
    def unasked(self) -> int:
        """How many events a producer may append without asking whether a pack has to leave."""

    def due_at(self, now: float) -> float:
        """When a pack whose first event has just come leaves at the latest; that may be now."""

    def left(self, now: float, events: int, size_bytes: int, seconds: float) -> None:
        """A pack has left. `seconds` is how long the sending thread was busy with it."""


def policy_of(packing: Packing) -> Policy:
    """The policy that a channel's options ask for."""
    if packing.degree == ADAPTIVE:
        return Adaptive(packing.interval_seconds)
    if packing.degree == HILL_CLIMB:
        return HillClimb(packing.interval_seconds, packing.measuring_seconds)
    assert isinstance(packing.degree, int)
    return Fixed(packing.degree, packing.interval_seconds)


class Fixed:
    """The degree that was given."""

    __slots__ = ("degree", "interval_seconds", "unasked")

    def __init__(self, degree: int, interval_seconds: float) -> None:
        self.degree = degree
        self.unasked = degree - 1
        self.interval_seconds = interval_seconds

    def due_at(self, now: float) -> float:
        """See `Policy`."""
        return now + self.interval_seconds

    def left(self, now: float, events: int, size_bytes: int, seconds: float) -> None:
        """See `Policy`."""


class HillClimb:
    """JBora's policy, with its second update rule: what raised the throughput is done again, else the opposite.

    A step is as long as two measures: "we set Ta = 5 sec and we updated the packing degree based on the last two
    measures, i.e., every 10 sec". What a step achieved is compared with what the step before it did.
    """

    MOST = 1024

    __slots__ = ("_events", "_former_degree", "_former_rate", "_step_began", "_step_seconds", "degree",
                 "interval_seconds")  # fmt: skip

    def __init__(self, interval_seconds: float, measuring_seconds: float) -> None:
        self.degree = 1
        self.interval_seconds = interval_seconds
        self._step_seconds = 2 * measuring_seconds
        self._step_began: float | None = None
        self._events = 0
        self._former_degree = 1
        self._former_rate: float | None = None

    @property
    def unasked(self) -> int:
        """See `Policy`."""
        return self.degree - 1

    def due_at(self, now: float) -> float:
        """See `Policy`."""
        return now + self.interval_seconds

    def left(self, now: float, events: int, size_bytes: int, seconds: float) -> None:
        """See `Policy`."""
        if self._step_began is None:
            self._step_began = now
            return
        self._events += events
        took = now - self._step_began
        if took >= self._step_seconds:
            self._step(self._events / took)
            self._step_began = now
            self._events = 0

    def _step(self, rate: float) -> None:
        """One measure of throughput: the rule, as it is in the paper."""
        former_rate, self._former_rate = self._former_rate, rate
        former_degree, self._former_degree = self._former_degree, self.degree
        if former_rate is None:
            change = 1  # nothing to compare with: begin to climb
        elif rate == former_rate:
            change = 0
        elif self.degree >= former_degree:
            change = 1 if rate > former_rate else -1
        else:
            change = -1 if rate > former_rate else 1
        self.degree = min(max(self.degree + change, 1), self.MOST)


class Adaptive:
    """Packs leave at once while that costs little, and else no more often than what it costs allows.

    What packing saves is the fixed cost of a pack. `load` is the share of its time that the sending thread would be
    busy with these costs if each event left by itself. Below `SPARE` that is no matter: an event leaves at once, and
    those that follow on its heels (a burst) leave together, as soon as another thread gets to it. Above, packs leave
    `hold_seconds` after one another: from nothing to the whole interval as the load grows. The rate comes from the
    events themselves, whatever the degree is, so there is nothing to oscillate; the cost is measured too, so where the
    processor is wanted by others, packs get longer.

    Where the next event only comes when the one before has been answered, holding gathers nothing, and slows down:
    after a few packs of one it rests for a while. A pack of several ends the rest.
    """

    SPARE = 0.05
    MOST = 1024  # events: a longer pack saves less than a hundredth
    _MEMORY_SECONDS = 0.02  # of the rate
    _LEAST_COST_SECONDS, _MOST_COST_SECONDS = 2e-6, 1e-3
    _COST_STEP = 1.05
    _SMALL_PACK_BYTES = 8 << 10  # what a larger one takes is no fixed cost
    _HEELS_COSTS = 4  # an event that comes within so many costs of a departure is on its heels
    _REST_SECONDS = 0.25
    _HOPED_FOR = 8.0  # events in a pack, when holding begins: halfway to what comes with each, it falls below the least
    _LEAST_GATHERED = 1.5
    _SEVERAL = 4

    __slots__ = ("_event_bytes", "_gathered", "_interval_seconds", "_left_at", "_rests_until", "cost_seconds",
                 "degree", "hold_seconds", "rate", "unasked")  # fmt: skip

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._left_at = float("-inf")
        self._event_bytes = 0.0
        self._gathered = self._HOPED_FOR
        self._rests_until = 0.0
        self.rate = 0.0  # of events, a second
        self.cost_seconds = 20e-6
        self.hold_seconds = 0.0
        self.unasked = 0
        self.degree = self.MOST

    @property
    def load(self) -> float:
        """See above."""
        return self.rate * self.cost_seconds

    def due_at(self, now: float) -> float:
        """See `Policy`."""
        return max(now, self._left_at + max(self.hold_seconds, self._HEELS_COSTS * self.cost_seconds))

    def left(self, now: float, events: int, size_bytes: int, seconds: float) -> None:
        """See `Policy`."""
        elapsed = max(now - self._left_at, 1e-6)
        self._left_at = now
        if not events:
            return
        if elapsed < 1e9:
            weight = elapsed / (self._MEMORY_SECONDS + elapsed)
            self.rate += weight * (events / elapsed - self.rate)
        self._event_bytes += (size_bytes / events - self._event_bytes) / 8
        if size_bytes <= self._SMALL_PACK_BYTES:
            # Up or down by a step: that finds the median, which a thread that was stopped for a while doesn't move.
            cost = self.cost_seconds * (self._COST_STEP if seconds > self.cost_seconds else 1 / self._COST_STEP)
            self.cost_seconds = min(max(cost, self._LEAST_COST_SECONDS), self._MOST_COST_SECONDS)
        self._judge(now, events)
        self._decide(now)

    def _judge(self, now: float, events: int) -> None:
        """Whether it is of use to hold packs."""
        if events >= self._SEVERAL:
            self._gathered = self._HOPED_FOR
            self._rests_until = 0.0
        elif self.hold_seconds:
            self._gathered += (events - self._gathered) / 2
            if self._gathered < self._LEAST_GATHERED:
                self._gathered = self._HOPED_FOR
                self._rests_until = now + self._REST_SECONDS

    def _decide(self, now: float) -> None:
        load = self.load
        most = max(1, min(self.MOST, int(MAX_PACK_BYTES / self._event_bytes)))
        if load <= self.SPARE or now < self._rests_until:
            self.hold_seconds = 0.0
            self.degree = most
            self.unasked = 0
        else:
            self.hold_seconds = self._interval_seconds * (1 - self.SPARE / load)
            # Twice what comes meanwhile: only where the clock comes late does that end a pack.
            expected = min(self.MOST, 1 + int(2 * self.rate * self.hold_seconds))
            self.degree = min(most, expected)
            self.unasked = expected - 1  # several packs of large events, which are then written together
