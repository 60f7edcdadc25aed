"""Which pieces of shared memory are in use: nothing that somebody can still write, send or see is ever given away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echannel_ray.core.segments import (
    GRANULE_BYTES,
    IDLE_SECONDS,
    Arenas,
    Placed,
    Runs,
    Slot,
    bound_of,
    head_granules,
    place_of,
)

CONSUMERS = (1, 2, 3)
sizes = st.integers(1, 6 * GRANULE_BYTES)


class Leases(RuleBasedStateMachine):
    """A process that leases and lends, and consumers that hold: what they do in any order."""

    @initialize()
    def begin(self) -> None:
        self.arenas = Arenas(16 * GRANULE_BYTES)
        self.leased: list[Slot] = []
        self.held: dict[tuple[int, int], set[int]] = {}  # (arena, granule): consumers
        self.now = 0.0

    def is_held(self, slot: Slot) -> bool:
        return bool(self.held.get((slot.arena.number, slot.granule)))

    @rule(bound=st.integers(0, 80), size=sizes)
    def reserve(self, bound: int, size: int) -> None:
        length = self.arenas.bytes_to_reserve(size, bound * GRANULE_BYTES)
        if length is None:
            return
        before = self.arenas.reserved_bytes
        arena = self.arenas.add(length, self.now)
        assert self.arenas.reserved_bytes == before + length <= bound * GRANULE_BYTES
        assert arena.size_bytes >= size

    @rule(consumer=st.sampled_from(CONSUMERS), index=st.integers(0, 9))
    def confirm(self, consumer: int, index: int) -> None:
        self.arenas.confirmed(consumer, index)  # also one that is not there (any more)

    @rule(size=sizes, destinations=st.frozensets(st.sampled_from(CONSUMERS)))
    def take(self, size: int, destinations: frozenset[int]) -> None:
        slot = self.arenas.take(size, destinations, self.now)
        if slot is None:
            return
        assert slot.size_bytes >= size
        assert slot.arena.mapped_by >= destinations
        assert not self.is_held(slot), "what somebody looks at was given away"
        self.leased.append(slot)

    @precondition(lambda self: self.leased)
    @rule(index=st.integers(0, 99), consumers=st.frozensets(st.sampled_from(CONSUMERS)))
    def arrive(self, index: int, consumers: frozenset[int]) -> None:
        slot = self.leased[index % len(self.leased)]
        self.held.setdefault((slot.arena.number, slot.granule), set()).update(consumers & slot.arena.mapped_by)

    @precondition(lambda self: self.leased)
    @rule(index=st.integers(0, 99))
    def acknowledge(self, index: int) -> None:
        self.arenas.lease_ended(self.leased.pop(index % len(self.leased)))

    @rule(consumer=st.sampled_from(CONSUMERS))
    def let_go(self, consumer: int) -> None:
        for holders in self.held.values():
            holders.discard(consumer)

    @rule(consumer=st.sampled_from(CONSUMERS))
    def die(self, consumer: int) -> None:
        self.arenas.endpoint_gone(consumer)
        self.let_go(consumer)

    @rule()
    def sweep(self) -> None:
        self.arenas.sweep(self.is_held)
        for arena in self.arenas.arenas.values():
            assert all(self.is_held(slot) for slot in arena.lent.values())

    @rule(seconds=st.sampled_from([0.0, IDLE_SECONDS]))
    def give_back(self, seconds: float) -> None:
        self.now += seconds
        used = {slot.arena.number for slot in self.leased} | {arena for (arena, _), who in self.held.items() if who}
        given_back = self.arenas.idle(self.now)
        assert not {arena.number for arena in given_back} & used
        # A number is never used again, so nothing is there for one that was given back.
        assert not any(arena.number in self.arenas.arenas for arena in given_back)

    @invariant()
    def is_consistent(self) -> None:
        self.arenas.validate()
        assert {id(slot) for arena in self.arenas.arenas.values() for slot in arena.leased.values()} == {
            id(slot) for slot in self.leased
        }


TestLeases = Leases.TestCase


class FreeRuns(RuleBasedStateMachine):
    """Runs beside a set of what is taken."""

    @initialize(count=st.integers(1, 40))
    def begin(self, count: int) -> None:
        self.runs = Runs(count)
        self.taken: dict[int, int] = {}

    def free(self) -> set[int]:
        used = {i for start, count in self.taken.items() for i in range(start, start + count)}
        return set(range(self.runs.count)) - used

    @rule(count=st.integers(1, 12))
    def take(self, count: int) -> None:
        fitting = [start for start in self.free() if {*range(start, start + count)} <= self.free()]
        start = self.runs.take(count)
        assert start == min(fitting, default=None), "the first that is long enough"
        if start is not None:
            self.taken[start] = count

    @precondition(lambda self: self.taken)
    @rule(index=st.integers(0, 99))
    def give_back(self, index: int) -> None:
        start = sorted(self.taken)[index % len(self.taken)]
        self.runs.give_back(start, self.taken.pop(start))

    @invariant()
    def is_consistent(self) -> None:
        self.runs.validate()
        assert self.runs.free == len(self.free())


TestFreeRuns = FreeRuns.TestCase


def an_arena(*consumers: int) -> Arenas:
    arenas = Arenas(16 * GRANULE_BYTES)
    arenas.add(16 * GRANULE_BYTES, 0.0)
    for consumer in consumers:
        arenas.confirmed(consumer, 1)
    return arenas


def test_an_arena_is_used_for_those_only_who_have_mapped_it():
    arenas = an_arena(1)
    assert arenas.take(1, {1}, 0.0) is not None
    assert arenas.take(1, {1, 2}, 0.0) is None
    assert arenas.has_room(1)
    assert [arena.number for arena in arenas.unmapped_by(2)] == [1]


def test_a_slot_that_is_taken_again_has_another_generation():
    arenas = an_arena(1)
    first = arenas.take(1, {1}, 0.0)
    assert first is not None
    arenas.lease_ended(first)
    arenas.sweep(lambda slot: False)
    again = arenas.take(1, {1}, 0.0)
    assert again is not None
    assert (again.granule, again.generation) == (first.granule, first.generation + 1)


def test_a_larger_event_gets_an_arena_of_its_length_with_room_for_the_generations():
    arenas = Arenas(16 * GRANULE_BYTES)
    size = 9000 * GRANULE_BYTES  # whose generations take two granules
    length = arenas.bytes_to_reserve(size, 1 << 40)
    assert length == (9000 + 2) * GRANULE_BYTES
    arenas.add(length, 0.0)
    assert arenas.take(size, (), 0.0) is not None
    assert head_granules(length // GRANULE_BYTES) == 2


def test_the_last_arena_within_a_bound_is_shorter():
    arenas = Arenas(16 * GRANULE_BYTES)
    assert arenas.bytes_to_reserve(1, 4 * GRANULE_BYTES) == 4 * GRANULE_BYTES
    assert arenas.bytes_to_reserve(4 * GRANULE_BYTES, 4 * GRANULE_BYTES) is None  # the generations have no room


def test_the_bound_counts_what_is_reserved_as_left():
    assert bound_of(800, 0) == bound_of(700, 100) == 100


def test_a_bound_that_was_given_is_no_more_than_half_of_what_is_left():
    assert bound_of(800, 0, 200) == 200
    assert bound_of(800, 100, 10_000) == 500
    assert bound_of(0, 100, 10_000) == 100


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63), st.integers(0, 2**40))
def test_a_place_travels(granule, generation, offset):
    arenas = an_arena()
    slot = Slot(arenas.arenas[1], granule, 1, generation)
    place = slot.place(offset, 17)
    assert place_of(place.encoded()) == place


@pytest.mark.parametrize("data", [b"", b"x", bytes(31), bytes(33)])
def test_what_is_no_place_is_refused(data):
    with pytest.raises(ValueError, match="place of an event"):
        place_of(data)


def test_what_is_lent_keeps_the_lease():
    keeper = bytearray(range(100))
    slot = Slot(an_arena().arenas[1], 3, 1, 7)
    placed = Placed(keeper, slot, 10, 20)
    lent = placed.part(5, 6).lent()
    assert lent.lease is keeper
    place = place_of(lent)
    assert (place.granule, place.generation, place.size_bytes) == (3, 7, 6)
    assert place.offset == 3 * GRANULE_BYTES + 15
    assert bytes(placed.part(5, 6)[0]) == bytes(range(15, 21))
    assert placed[0].readonly
