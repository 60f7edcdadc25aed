"""When a pack leaves: by a fixed degree, by JBora's hill climbing, or by what the link's load asks for.

A policy sees one link (a flow): when packs left, with how many events, and what sending them took. It answers two
questions: with how many events a pack leaves (`degree`), and when one leaves that has fewer (`due_at`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from echannel_ray.core.frames import MAX_PACK_BYTES
from echannel_ray.core.trials import Crowding, LengthTrials, Trials

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


class Policy(ABC):
    """When the packs of one link leave; the shell calls it under its lock, with a clock of its own. What it is told
    changes nothing, unless it says otherwise.
    """

    __slots__ = ()
    degree: int  # with so many events a pack leaves

    @property
    @abstractmethod
    def unasked(self) -> int:
        """How many events a producer may append without asking whether a pack has to leave."""

    @abstractmethod
    def due_at(self, now: float) -> float:
        """When a pack whose first event has just come leaves at the latest; that may be now."""

    @abstractmethod
    def typical(self, now: float) -> float:
        """How many events a pack has now, if they come as of late."""

    def lags(self, now: float) -> None:  # noqa: B027 (most policies don't care)
        """Somebody for whom packs leave has still to handle half of what may wait for that."""

    def left(  # noqa: B027 (one of fixed packs does not)
        self,
        now: float,
        events: int,
        size_bytes: int,
        seconds: float,
        is_ours: bool = True,
        filling_seconds: float = 0.0,
        delayed_seconds: float = 0.0,
    ) -> None:
        """A pack has left, when we or another policy of the link said. `seconds` is how long the sending thread was
        busy with it, `filling_seconds` how long it was gathered; for `delayed_seconds` of all the time so far the
        source was kept from running.
        """


def policy_of(packing: Packing, clock_offset_seconds: float = 0.0) -> Policy:
    """The policy that a channel's options ask for; the offset makes the clock that it is given everybody's."""
    if packing.degree == ADAPTIVE:
        return Adaptive(packing.interval_seconds, clock_offset_seconds)
    if packing.degree == HILL_CLIMB:
        return HillClimb(packing.interval_seconds, packing.measuring_seconds)
    assert isinstance(packing.degree, int)
    return Fixed(packing.degree, packing.interval_seconds)


class Fixed(Policy):
    """Packs leave with the number of events that was given."""

    __slots__ = ("__weakref__", "degree", "interval_seconds", "unasked")
    unasked: int

    def __init__(self, degree: int, interval_seconds: float) -> None:
        self.degree = degree
        self.unasked = degree - 1
        self.interval_seconds = interval_seconds

    @override
    def due_at(self, now: float) -> float:
        return now + self.interval_seconds

    @override
    def typical(self, now: float) -> float:
        return float(self.degree)


class HillClimb(Policy):
    """JBora's policy, with its second update rule: what raised the throughput is done again, else the opposite.

    "We set Ta = 5 sec and we updated the packing degree based on the last two measures, i.e., every 10 sec." That is
    read so: a step is as long as two measures, and what it achieved is compared with what the step before it did.
    Time in which nothing was sent says nothing of a degree, and is left out.
    """

    MOST = 1024
    _IDLE_INTERVALS = 10  # after so many without a pack there is nothing to send

    __slots__ = ("__weakref__", "_events", "_former_degree", "_former_rate", "_left_at", "_step_seconds",
                 "_took_seconds", "degree", "interval_seconds")  # fmt: skip

    def __init__(self, interval_seconds: float, measuring_seconds: float) -> None:
        self.degree = 1
        self.interval_seconds = interval_seconds
        self._step_seconds = 2 * measuring_seconds
        self._left_at: float | None = None
        self._took_seconds = 0.0
        self._events = 0
        self._former_degree = 1
        self._former_rate: float | None = None

    @property
    @override
    def unasked(self) -> int:
        return self.degree - 1

    @override
    def due_at(self, now: float) -> float:
        return now + self.interval_seconds

    @override
    def typical(self, now: float) -> float:
        return float(self.degree)

    @override
    def left(
        self,
        now: float,
        events: int,
        size_bytes: int,
        seconds: float,
        is_ours: bool = True,
        filling_seconds: float = 0.0,
        delayed_seconds: float = 0.0,
    ) -> None:
        if not is_ours:
            return
        left_at, self._left_at = self._left_at, now
        if left_at is None or now - left_at > max(self._step_seconds, self._IDLE_INTERVALS * self.interval_seconds):
            return
        self._events += events
        self._took_seconds += now - left_at
        if self._took_seconds >= self._step_seconds:
            self._step(self._events / self._took_seconds)
            self._took_seconds = 0.0
            self._events = 0

    def _step(self, rate: float) -> None:
        """End a step: one event more or less for a pack, by the rule in the paper."""
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


class Adaptive(Policy):
    """An event leaves at once while that costs little; else a pack leaves with as many as the costs ask for.

    What packing saves is the fixed cost of a pack. `load` is the share of its time that the sending thread would be
    busy with these costs if each event left by itself. With a degree of `load / share` it is busy with them for that
    share of its time. Two shares bound the degree: `HASTE` is what the thread may spend so that events wait little (if
    the receivers of packs have the time too), and `QUICK` what it spends where packs fill so fast that nobody waits for
    that. Between them the degree rises while most packs fill within the time in which the receivers take one, and falls
    while they don't: a burst leaves in a few packs, and the end of one seldom waits for the next.

    Haste has a price where the source could do more: that is tried (`LengthTrials`), and where longer packs bring more
    events, they are longer. Where a consumer lags, events wait anyhow: there packs are as long as can be. What fills no
    pack leaves `hold_seconds` after the pack before, by the clock: from nothing to the whole interval as the load
    grows.

    Rate and cost are measured: where the processor is wanted by others, packs cost more, and get longer. Time in which
    the source was kept from running does not count: on a core that it shares with its consumers, a source that does
    nothing but publish has it the less the shorter its packs are, and would seem to have little to publish. There
    packs are long, and nothing is tried (`Crowding`): what their receivers spare is the source's.

    A source that waits for answers is slowed down by holding, and then gathers little. So both ways are tried: for a
    window of time packs are held, for another one they are not, and where more events come when they are not, they
    are not; until the next trial. Nothing is tried where holding can't slow anybody: where packs leave because they are
    full, or hardly more could leave one by one.
    """

    SPARE = 0.05  # what a thread always has for packs
    HASTE, QUICK = 0.55, 0.07
    MOST = 1024  # events: a longer pack saves less than a hundredth
    LONGEST_HOLD_SECONDS = 0.01  # a pack in so long a time costs next to nothing, so more would only delay
    LAG_SECONDS = 1.0  # for so long packs are as long as can be, after a consumer has lagged
    _MEMORY_SECONDS = 0.005  # of the rate
    _LEAST_COST_SECONDS, _MOST_COST_SECONDS = 2e-6, 1e-3
    _COST_STEP = 1.05
    _SMALL_PACK_BYTES = 8 << 10  # what a larger one takes is no fixed cost
    _PASSING_SECONDS = 40e-6  # for so long a pack keeps the concentrator and a consumer that share a core
    _LITTLE_IDLE = 0.5  # of its time: a source that may have more to publish
    _UP, _DOWN = 1.08, 0.8  # the degree is steady where three packs in four fill fast

    __slots__ = ("__weakref__", "_crowding", "_delayed_seconds", "_event_bytes", "_lags_until", "_left_at", "_lengths",
                 "_longest_seconds", "_most", "_trials", "_wanted", "cost_seconds", "degree", "hold_seconds", "rate",
                 "unasked")  # fmt: skip
    unasked: int

    def __init__(self, interval_seconds: float, clock_offset_seconds: float = 0.0) -> None:
        self._longest_seconds = min(interval_seconds, self.LONGEST_HOLD_SECONDS)
        self._left_at = self._lags_until = float("-inf")
        self._event_bytes = 0.0
        self._trials = Trials(max(0.02, 4 * self._longest_seconds), clock_offset_seconds)
        self._lengths = LengthTrials()
        self._delayed_seconds = 0.0  # of its source, when the last pack left
        self._crowding = Crowding()
        self._wanted = 1.0  # the degree, before it is bounded by the bytes of a pack
        self._most = self.MOST  # events of a pack, by their sizes
        self.rate = 0.0  # of events, a second
        self.cost_seconds = 20e-6
        self.hold_seconds = 0.0
        self.unasked = 0
        self.degree = self.MOST

    @property
    def load(self) -> float:
        """The share of its time that the sending thread would be busy with fixed costs if each event left by itself."""
        return self.rate * self.cost_seconds

    @override
    def due_at(self, now: float) -> float:
        return max(now, self._left_at + self.hold_seconds)

    @override
    def typical(self, now: float) -> float:
        is_idle = now - self._left_at > max(self.hold_seconds, self._MEMORY_SECONDS)
        return 1.0 if is_idle else max(1.0, min(self.degree, self.rate * self.hold_seconds))

    @override
    def lags(self, now: float) -> None:
        self._lags_until = now + self.LAG_SECONDS

    @override
    def left(
        self,
        now: float,
        events: int,
        size_bytes: int,
        seconds: float,
        is_ours: bool = True,
        filling_seconds: float = 0.0,
        delayed_seconds: float = 0.0,
    ) -> None:
        if not events:
            return
        delay = delayed_seconds - self._delayed_seconds
        elapsed = max(now - self._left_at - delay, 1e-6)
        self._left_at = now
        self._delayed_seconds = delayed_seconds
        if elapsed < 1e9:
            weight = elapsed / (self._MEMORY_SECONDS + elapsed)
            self.rate += weight * (events / elapsed - self.rate)
            filled_seconds = filling_seconds if events >= self.degree else None
            # Others have the core while it is sent, above all those whom that wakes.
            sending_seconds = min(self.cost_seconds, max(0.0, seconds - delay))
            self._crowding.left(now, elapsed, delay, sending_seconds, filled_seconds)
        self._event_bytes += (size_bytes / events - self._event_bytes) / 8
        self._most = max(1, min(self.MOST, int(MAX_PACK_BYTES / max(self._event_bytes, 1.0))))
        if size_bytes <= self._SMALL_PACK_BYTES:
            # Up or down by a step: that finds the median, which a thread that was stopped for a while doesn't move.
            cost = self.cost_seconds * (self._COST_STEP if seconds > self.cost_seconds else 1 / self._COST_STEP)
            self.cost_seconds = min(max(cost, self._LEAST_COST_SECONDS), self._MOST_COST_SECONDS)
        load = self.load
        if is_ours:
            if not self._crowding.is_crowded:
                self._trials.left(now, events, events >= self._most, load, delayed_seconds)
                is_busy = load > self.HASTE or self._crowding.idle < self._LITTLE_IDLE
                self._lengths.left(now - delayed_seconds, events, is_busy)
            if filling_seconds > self._PASSING_SECONDS:
                self._wanted *= self._DOWN
            elif events >= self.degree or load > self.HASTE:
                self._wanted = max(1.0, self._wanted) * self._UP
        self._pack(now, load)

    def _pack(self, now: float, load: float) -> None:
        """Work out the degree, and how long what fills no pack is held."""
        if now < self._lags_until:
            self._wanted = self.MOST
        elif self._lengths.are_long or self._crowding.is_crowded:
            self._wanted = min(self.MOST, load / self.SPARE * (1 + load / 4))  # others are as busy
        else:
            least = self.rate * max(self.cost_seconds / self.HASTE, self._PASSING_SECONDS)
            self._wanted = min(max(min(self._wanted, load / self.QUICK), least), self.MOST)
        wanted = int(self._wanted)
        if wanted <= 1 or not (self._trials.holds or self._crowding.is_crowded):
            self.hold_seconds = 0.0
            self.degree = self._most
            self.unasked = 0
        else:
            self.hold_seconds = self._longest_seconds * (1 - self.SPARE / max(load, self.SPARE))
            self.degree = min(self._most, wanted)
            self.unasked = wanted - 1  # several packs of large events, which are then written together
