"""Segments: where large events lie in memory that a producer's process shares with consumers of its node.

Rules:

* An *arena* is memory that is reserved before anything is written. It is cut into *granules*; a *slot* is a run of them
  that has one event, or one loan.
* A slot is LEASED while somebody in the producer's process may still write it or send what is in it: until the last
  pack that says where it is was acknowledged by all.
* Then it is LENT: consumers may have views of it. Each says so in a *ledger* of its own, a byte for each granule, which
  nobody else writes; it does so before it acknowledges. Who has no byte set there holds nothing.
* A slot that nobody holds is free. What is taken next has another *generation*, so that whoever comes too late for a
  slot sees that, and makes no event of it.
* An arena is used for those only who have confirmed that they have mapped it.

Nothing has to be sent for a slot to be free again, so nothing can be lost: the death of a consumer takes its ledger
with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from echannel_ray.compilation import mypyc_attr

# What a slot is a multiple of. Smaller ones would spare memory for events just above the least size; what a slot costs
# does not depend on its size.
GRANULE_BYTES: Final = 64 << 10
# Of an arena, unless one event is larger: so few that each of them can be handed over as a descriptor, and with room
# for what one producer has under way (a window of 8 MiB) and what is lent beside it.
ARENA_BYTES: Final = 16 << 20
# From these sizes on events go by segments: those that consumers look at there, and those that they copy. Below, the
# place costs more than the copies that it spares: measured on one core and on two (`docs/design/segments.md`).
MIN_SEGMENT_BYTES: Final = 64 << 10
MIN_COPIED_BYTES: Final = 96 << 10
# Of the memory that is left, arenas included, that one process may have in arenas.
SHARE_OF_MEMORY: Final = 1 / 8
# Of an arena's bound that one consumer may hold in views; what comes later is copied.
SHARE_OF_VIEWS: Final = 1 / 4
# How long an arena stays without being used.
IDLE_SECONDS: Final = 5.0
# Before the first slot: the generation of each slot, at the number of its first granule.
GENERATION: Final = struct.Struct("<Q")

# Why an event did not go by a segment, as statistics name it.
UNMAPPED = "unmapped"  # a consumer has not confirmed the arena yet, or can't be handed one
BOUND = "bound"  # the share of memory is in use
DESCRIPTORS = "descriptors"  # this process may have no more open files
KERNEL = "kernel"  # memory was refused
VIEWED = "viewed"  # a loan of which there are other views

_PLACE = struct.Struct("<IIQQQ")


class SegmentPlace(NamedTuple):
    """Where an event lies, as packs say it: an arena, the slot's first granule, its generation, and the bytes."""

    arena: int
    granule: int
    generation: int
    offset: int  # in the arena
    size_bytes: int

    def encoded(self) -> bytes:
        """What a pack has in the event's place."""
        return _PLACE.pack(*self)


def place_of(data: bytes) -> SegmentPlace:
    """What `SegmentPlace.encoded` has written; `ValueError` where it is nothing of that kind."""
    if len(data) != _PLACE.size:
        raise ValueError(f"{len(data)} bytes are not the place of an event")
    return SegmentPlace(*_PLACE.unpack(data))


@mypyc_attr(native_class=False)
class Lent(bytes):
    """A place in a pack that is on its way. Whoever has it may send it again, so it keeps the slot leased."""

    lease: Any


class Runs:
    """The free runs of so many things in a row; the first that is long enough is taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._starts = [0]
        self._lengths = {0: count}

    def take(self, count: int) -> int | None:
        """Take so many in a row: the first one, or None where there are not so many."""
        for i, start in enumerate(self._starts):
            length = self._lengths[start]
            if length >= count:
                del self._lengths[start]
                if length == count:
                    del self._starts[i]
                else:
                    self._starts[i] = start + count
                    self._lengths[start + count] = length - count
                return start
        return None

    def give_back(self, start: int, count: int) -> None:
        """So many from there on are free again."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + count:
            count += self._lengths.pop(self._starts.pop(at))
        if at and self._starts[at - 1] + self._lengths[self._starts[at - 1]] == start:
            self._lengths[self._starts[at - 1]] += count
            return
        insort(self._starts, start)
        self._lengths[start] = count

    @property
    def free(self) -> int:
        """How many are free."""
        return sum(self._lengths.values())

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        assert self._starts == sorted(self._lengths)
        end = -1
        for start in self._starts:
            assert start > end, "two free runs touch"
            assert self._lengths[start] > 0
            end = start + self._lengths[start]
        assert end <= self.count


class Slot:
    """A run of granules of one arena that are in use."""

    __slots__ = ("arena", "generation", "granule", "granules")

    def __init__(self, arena: Arena, granule: int, granules: int, generation: int) -> None:
        self.arena = arena
        self.granule = granule
        self.granules = granules
        self.generation = generation

    @property
    def offset(self) -> int:
        """Where it begins in its arena."""
        return self.granule * GRANULE_BYTES

    @property
    def size_bytes(self) -> int:
        """How much it has room for."""
        return self.granules * GRANULE_BYTES

    def place(self, offset: int, size_bytes: int) -> SegmentPlace:
        """Where so many bytes lie, from this offset in the arena on."""
        return SegmentPlace(self.arena.number, self.granule, self.generation, offset, size_bytes)


class Arena:
    """One piece of shared memory, and what is where in it."""

    def __init__(self, number: int, granules: int) -> None:
        self.number = number
        self.granules = granules
        self.runs = Runs(granules)
        head = self.runs.take(head_granules(granules))
        assert head == 0
        self.leased: dict[int, Slot] = {}  # by their first granules
        self.lent: dict[int, Slot] = {}
        self.mapped_by: set[int] = set()  # endpoints that have confirmed it
        self.used_at = 0.0
        self._next_generation = 1

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self.granules * GRANULE_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether nothing in it is in use."""
        return not (self.leased or self.lent)

    def take(self, granules: int) -> Slot | None:
        """Lease a slot, if there is room."""
        granule = self.runs.take(granules)
        if granule is None:
            return None
        slot = self.leased[granule] = Slot(self, granule, granules, self._next_generation)
        self._next_generation += 1
        return slot

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        self.runs.validate()
        assert not set(self.leased) & set(self.lent)
        used = [*self.leased.values(), *self.lent.values()]
        head = head_granules(self.granules)
        taken = sorted((slot.granule, slot.granules) for slot in used)
        end = head
        for granule, granules in taken:
            assert granule >= end, "two slots overlap"
            end = granule + granules
        assert end <= self.granules
        assert self.runs.free + sum(granules for _, granules in taken) + head == self.granules
        assert len({slot.generation for slot in used}) == len(used)


class Arenas:
    """The arenas of one process, and which of their slots are in use; whoever calls it has a lock."""

    def __init__(self, arena_bytes: int = ARENA_BYTES) -> None:
        self._arena_bytes = arena_bytes
        self.arenas: dict[int, Arena] = {}
        self._next_number = 1

    @property
    def reserved_bytes(self) -> int:
        """How much memory they have."""
        return sum(arena.size_bytes for arena in self.arenas.values())

    def take(self, size_bytes: int, destinations: Collection[int], now: float) -> Slot | None:
        """Lease a slot that all these can see, if there is one."""
        granules = granules_of(size_bytes)
        for arena in self.arenas.values():
            if arena.mapped_by.issuperset(destinations):
                slot = arena.take(granules)
                if slot is not None:
                    arena.used_at = now
                    return slot
        return None

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is room somewhere, whoever can see it."""
        granules = granules_of(size_bytes)
        for arena in self.arenas.values():
            start = arena.runs.take(granules)
            if start is not None:
                arena.runs.give_back(start, granules)
                return True
        return False

    def bytes_to_reserve(self, size_bytes: int, bound_bytes: int) -> int | None:
        """How long the next arena is to be, which has room for so much; None where all of them would pass the bound."""
        granules = granules_of(size_bytes)
        needed = granules + head_granules(granules)
        needed = (granules + head_granules(needed)) * GRANULE_BYTES
        room = (bound_bytes - self.reserved_bytes) // GRANULE_BYTES * GRANULE_BYTES
        return min(max(self._arena_bytes, needed), room) if needed <= room else None

    def add(self, size_bytes: int, now: float) -> Arena:
        """An arena of so many bytes was reserved."""
        arena = Arena(self._next_number, size_bytes // GRANULE_BYTES)
        arena.used_at = now
        self.arenas[arena.number] = arena
        self._next_number += 1
        return arena

    def lease_ended(self, slot: Slot) -> None:
        """Nobody in this process can write or send what is there any more."""
        del slot.arena.leased[slot.granule]
        slot.arena.lent[slot.granule] = slot

    def sweep(self, is_held: Callable[[Slot], bool]) -> None:
        """Free what no consumer holds."""
        for arena in self.arenas.values():
            if arena.lent:
                for slot in [slot for slot in arena.lent.values() if not is_held(slot)]:
                    del arena.lent[slot.granule]
                    arena.runs.give_back(slot.granule, slot.granules)

    def unmapped_by(self, endpoint: int) -> Iterator[Arena]:
        """The arenas that an endpoint has not confirmed."""
        return (arena for arena in self.arenas.values() if endpoint not in arena.mapped_by)

    def confirmed(self, endpoint: int, number: int) -> None:
        """An endpoint has mapped an arena; one that was given back meanwhile is none of ours any more."""
        arena = self.arenas.get(number)
        if arena is not None:
            arena.mapped_by.add(endpoint)

    def endpoint_gone(self, endpoint: int) -> None:
        """An endpoint is no destination any more."""
        for arena in self.arenas.values():
            arena.mapped_by.discard(endpoint)

    def idle(self, now: float) -> list[Arena]:
        """Those that have not been used for a while, which are forgotten: their memory is to be given back."""
        idle = [arena for arena in self.arenas.values() if arena.is_idle and now - arena.used_at >= IDLE_SECONDS]
        for arena in idle:
            del self.arenas[arena.number]
        return idle

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for number, arena in self.arenas.items():
            assert number == arena.number < self._next_number
            arena.validate()


@mypyc_attr(native_class=False)
class Placed(list[memoryview]):
    """The bytes of an event that lie in a slot: a payload in pieces, of which there is one, and where that is.

    The slot is leased for as long as its `keeper` is referred to, by this or by what is made of it.
    """

    def __init__(self, keeper: Any, slot: Slot, start: int, size_bytes: int) -> None:
        super().__init__([memoryview(keeper)[start : start + size_bytes].toreadonly()])
        self.keeper = keeper
        self.slot = slot
        self.start = start  # in the slot
        self.size_bytes = size_bytes

    def part(self, start: int, size_bytes: int) -> Placed:
        """Some of it."""
        return Placed(self.keeper, self.slot, self.start + start, size_bytes)

    def is_seen_by(self, destinations: Collection[int]) -> bool:
        """Whether all these have mapped the arena."""
        return self.slot.arena.mapped_by.issuperset(destinations)

    def lent(self) -> Lent:
        """What a pack has in its place."""
        slot = self.slot
        lent = Lent(slot.place(slot.offset + self.start, self.size_bytes).encoded())
        lent.lease = self.keeper
        return lent


def granules_of(size_bytes: int) -> int:
    """How many granules have room for so much."""
    return -(-size_bytes // GRANULE_BYTES)


def head_granules(granules: int) -> int:
    """How many granules have the generations of so many."""
    return granules_of(granules * GENERATION.size)


def bound_of(left_bytes: int, reserved_bytes: int, max_bytes: int | None = None) -> int:
    """How much a process may have in arenas, where so much memory is left beside those that it has: a share, or what
    was said, but no more than half. The kernel refuses nothing: who reserves more than there is has it kill others.
    """
    if max_bytes is not None:
        return min(max_bytes, reserved_bytes + left_bytes // 2)
    return int(SHARE_OF_MEMORY * (left_bytes + reserved_bytes))
