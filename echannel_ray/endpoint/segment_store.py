"""The segments that this process shares: large events are written there once, and consumers of the node look at them.

Who may have which slot is decided in `core.segments`. Here are the memory, the consumers' ledgers, and the arrays by
which this process holds a slot: a slot is leased for as long as its *keeper*, an array of its bytes, is referred to, by
an array that a program was loaned, by an event in a pack that somebody may not have, or by a piece of one that travels
in chunks. So no path of an event has to say that it is done with one.
"""

from __future__ import annotations

import errno
import math
import pickle
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from echannel_ray.core.segments import (
    BOUND,
    DESCRIPTORS,
    GENERATION,
    KERNEL,
    MIN_SEGMENT_BYTES,
    SHARE_OF_VIEWS,
    UNMAPPED,
    VIEWED,
    Arena,
    Arenas,
    Placed,
    Slot,
    bound_of,
)
from echannel_ray.transport import presence
from echannel_ray.transport.memory_files import MemoryFile
from echannel_ray.transport.memory_left import left_bytes

if TYPE_CHECKING:
    from echannel_ray.endpoint.segment_path import SegmentPath

# Before the bytes of a loan there is room for what makes an event of them: an array's pickle without its data.
_HEAD_ROOM_BYTES: Final = 4096
_ALIGNMENT: Final = 64
_ONE_BUFFER: Final = struct.Struct("<3Q")  # one; the length of the pickle; that of the buffer
# After memory was refused it is not asked for again for so long: to ask takes a millisecond.
_MAX_HEADS: Final = 64
_REFUSED_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0

Array = np.ndarray[Any, Any]


class _Borrower(NamedTuple):
    """A consumer's process, and when it started."""

    pid: int
    start: int  # numbers of processes are used again


class _SharedArena:
    """The memory of an arena, and who says by which ledger what of it they hold."""

    def __init__(self, memory: MemoryFile) -> None:
        self.memory = memory
        self.bytes = memoryview(memory.memory)
        self.ledgers: dict[int, MemoryFile] = {}  # by endpoints

    def close(self) -> None:
        """Close the descriptors; what is mapped stays."""
        self.memory.close()
        for ledger in self.ledgers.values():
            ledger.close()


class SegmentStore:
    """What one process shares; any thread may call it. One for each endpoint that has published large events."""

    def __init__(self, path: SegmentPath, max_bytes: int | None = None) -> None:
        """`max_bytes` is the bound of all arenas; without it, it is a share of what memory is left."""
        self._path = path
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._arenas = Arenas()
        self._shared: dict[int, _SharedArena] = {}  # by the numbers of arenas
        self._offered: set[tuple[int, int]] = set()  # (endpoint, arena) that wait for a word of the consumer
        self._processes: dict[int, _Borrower] = {}  # of the endpoints that have mapped something
        self._left: set[int] = set()  # endpoints that are gone, whose processes may live and hold views
        self._ended: deque[Slot] = deque()  # whose keepers are gone; from any thread, in the middle of anything
        # By ids: also those of loans that are in no segment, which have no slot.
        self._keepers: dict[int, tuple[weakref.ref[Array], Slot | None]] = {}
        self._refused: tuple[float, str] = (0.0, "")  # until when memory need not be asked for, and why
        self._heads: dict[tuple[Any, tuple[int, ...]], bytes] = {}  # of arrays by dtypes and shapes
        self._left_bytes = 0  # of memory, when it was asked for
        self._measured_until = 0.0
        self._due = 0.0
        self._declined: dict[int, float] = {}  # endpoints that could map nothing, and until when they are not asked

    # ---- writing ----

    def place(
        self, pieces: Iterable[Any], size_bytes: int, destinations: Collection[int], refused: Callable[[str], None]
    ) -> Placed | None:
        """Write an event for these consumers of the node; None, and a reason, where it has to go otherwise."""
        slot = self._take(size_bytes, destinations, refused)
        if slot is None:
            return None
        keeper = self._keeper(slot)
        at = 0
        for piece in pieces:
            size = len(piece)
            if size:
                # Not by a memoryview: NumPy lets other threads go on meanwhile.
                keeper[at : at + size] = np.frombuffer(piece, np.uint8)
                at += size
        return Placed(keeper, slot, 0, size_bytes)

    def loan(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        destinations: Collection[int] | None,
        refused: Callable[[str], None],
    ) -> Array:
        """An array to be written and published: in a segment, if it is large, one can be had, and somebody sees it."""
        size = math.prod(shape) * dtype.itemsize
        slot = None
        if destinations is not None and size >= MIN_SEGMENT_BYTES:
            slot = self._take(_HEAD_ROOM_BYTES + size, destinations, refused)
        if slot is not None:
            keeper = self._keeper(slot)[_HEAD_ROOM_BYTES : _HEAD_ROOM_BYTES + size]
        else:
            keeper = self._noted(np.empty(size, np.uint8))[:]
        loaned: Array = keeper.view(dtype).reshape(shape)
        return loaned

    def give_up(self, event: Any, refused: Callable[[str], None]) -> None:
        """An array that was loaned here is published: nobody can write it from now on, if nobody has another view."""
        keeper = event.base if isinstance(event, np.ndarray) else None
        if keeper is None or not self._is_keeper(keeper):
            return
        event.flags.writeable = False
        if keeper.flags.writeable:
            if _holders(event) - 1 > _HOLDERS_OF_ONE:  # besides the name here
                if self._keepers[id(keeper)][1] is not None:
                    refused(VIEWED)
            else:
                keeper.flags.writeable = False

    def placed(self, event: Any) -> Placed | None:
        """The bytes of an array that was given up; None where it is none, or could still be written by another view."""
        keeper = event.base if type(event) is np.ndarray else None
        slot = self._keepers[id(keeper)][1] if self._is_keeper(keeper) else None
        if keeper is None or slot is None or keeper.flags.writeable or not event.flags.c_contiguous:
            return None
        return Placed(keeper, slot, event.ctypes.data - keeper.ctypes.data, event.nbytes)

    def _is_keeper(self, array: Any) -> bool:
        known = self._keepers.get(id(array))
        return known is not None and known[0]() is array

    def placed_event(self, event: Any) -> Placed | None:
        """Its payload of the kind `BUFFERS`, already where it has to be; None where what is to be before the bytes has
        no room.
        """
        placed = self.placed(event)
        if placed is None:
            return None
        head = self._heads.get((event.dtype, event.shape))
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = self._heads[event.dtype, event.shape] = _head_of(event)
        start = placed.start - len(head)
        if not head or start < 0:
            return None
        slot = placed.slot
        at = slot.offset + start
        # By the arena's own memory: the keeper is read-only by now.
        self._shared[slot.arena.number].bytes[at : at + len(head)] = head
        return Placed(placed.keeper, slot, start, len(head) + placed.size_bytes)

    def _keeper(self, slot: Slot) -> Array:
        memory = self._shared[slot.arena.number].bytes
        return self._noted(np.frombuffer(memory, np.uint8, slot.size_bytes, slot.offset), slot)

    def _noted(self, keeper: Array, slot: Slot | None = None) -> Array:
        number = id(keeper)
        self._keepers[number] = weakref.ref(keeper, partial(self._lease_ended, number, slot)), slot
        return keeper

    def _lease_ended(self, number: int, slot: Slot | None, _: object) -> None:
        # The garbage collector may call this within anything else here: the rest is for who comes next.
        del self._keepers[number]
        if slot is not None:
            self._ended.append(slot)

    def _take(self, size_bytes: int, destinations: Collection[int], refused: Callable[[str], None]) -> Slot | None:
        slot = self._lease(size_bytes, destinations)
        if slot is not None:
            return slot
        # Nothing is reserved that nobody can be told of; and each of them is asked, so that it will be reached.
        reached = [each for each in destinations if self._path.reaches(each)]
        now = time.monotonic()
        with self._lock:
            if self._arenas.has_room(size_bytes) or len(reached) < len(destinations):
                reason = UNMAPPED
            else:
                self._look_at_processes()
                reason = self._reserve(size_bytes, now)
            offers = [
                (each, arena)
                for each in reached
                if self._declined.get(each, 0.0) <= now
                for arena in self._arenas.unmapped_by(each)
            ]
        for endpoint, arena in offers:
            self._offer(endpoint, arena)
        refused(reason)
        return None

    def _lease(self, size_bytes: int, destinations: Collection[int]) -> Slot | None:
        now = time.monotonic()
        with self._lock:
            self._tidy()
            while (slot := self._arenas.take(size_bytes, destinations, now)) is not None:
                shared = self._shared[slot.arena.number]
                GENERATION.pack_into(shared.bytes, slot.granule * GENERATION.size, slot.generation)
                # Again, now that nobody can come for what was there before: it may have been late by a moment.
                if not self._is_held(slot):
                    return slot
                self._arenas.lease_ended(slot)
        return None

    def _tidy(self) -> None:
        while self._ended:
            self._arenas.lease_ended(self._ended.popleft())
        self._arenas.sweep(self._is_held)

    def _is_held(self, slot: Slot) -> bool:
        return any(ledger.memory[slot.granule] for ledger in self._shared[slot.arena.number].ledgers.values())

    # ---- reserving ----

    def _reserve(self, size_bytes: int, now: float) -> str:
        """Make another arena; why the event that needed it goes otherwise."""
        until, why = self._refused
        if now < until:
            return why
        try:
            arena_bytes = self._arenas.bytes_to_reserve(size_bytes, self._bound())
            if arena_bytes is None:
                return BOUND
            memory = MemoryFile("echannel-arena", arena_bytes, is_ours=True)
        except OSError as error:
            self._refused = now + _REFUSED_SECONDS, _reason(error)
            return _reason(error)
        self._shared[self._arenas.add(arena_bytes, now).number] = _SharedArena(memory)
        self._measured_until = 0.0
        return UNMAPPED

    def _bound(self) -> int:
        now = time.monotonic()
        if now >= self._measured_until:
            self._left_bytes, self._measured_until = left_bytes(), now + _REFUSED_SECONDS
        return bound_of(self._left_bytes, self._arenas.reserved_bytes, self.max_bytes)

    # ---- consumers ----

    def _offer(self, endpoint: int, arena: Arena) -> None:
        with self._lock:
            shared = self._shared.get(arena.number)
            if shared is None or (endpoint, arena.number) in self._offered:
                return
            try:
                ledger = shared.ledgers.get(endpoint) or MemoryFile("echannel-ledger", arena.granules, is_ours=False)
                max_held_bytes = int(SHARE_OF_VIEWS * self._bound())
            except OSError:
                return  # the next event asks again
            shared.ledgers[endpoint] = ledger
            self._offered.add((endpoint, arena.number))
        if not self._path.offer(endpoint, arena.number, max_held_bytes, [shared.memory, ledger]):
            with self._lock:
                self._offered.discard((endpoint, arena.number))

    def mapped(self, endpoint: int, arena: int, pid: int) -> None:
        """A consumer has mapped an arena: what lies there can be lent to it, if we can tell when its process ends."""
        try:
            start = presence.start_of(pid)
        except OSError:  # no descriptor to look with
            start = None
        if start is None:
            self.declined(endpoint, arena)
            return
        with self._lock:
            self._offered.discard((endpoint, arena))
            self._processes[endpoint] = _Borrower(pid, start)
            self._arenas.confirmed(endpoint, arena)

    def declined(self, endpoint: int, arena: int) -> None:
        """A consumer can't map an arena: its events go as all others."""
        with self._lock:
            self._offered.discard((endpoint, arena))
            self._declined[endpoint] = time.monotonic() + _REFUSED_SECONDS

    def path_lost(self, endpoint: int) -> None:
        """What was offered to a consumer may not have reached it: it is offered again."""
        with self._lock:
            self._offered = {each for each in self._offered if each[0] != endpoint}

    def endpoint_gone(self, endpoint: int) -> None:
        """A consumer's process has ended, or has left: what it held is free when it has ended."""
        with self._lock:
            self._arenas.endpoint_gone(endpoint)
            self._offered = {each for each in self._offered if each[0] != endpoint}
            self._declined.pop(endpoint, None)
            self._left.add(endpoint)
            self._look_at_processes()

    def _look_at_processes(self) -> None:
        for endpoint in [*self._left]:
            if not self._may_look_at_views(endpoint):
                self._left.discard(endpoint)
                self._processes.pop(endpoint, None)
                for shared in self._shared.values():
                    ledger = shared.ledgers.pop(endpoint, None)
                    if ledger is not None:
                        ledger.close()

    def _may_look_at_views(self, endpoint: int) -> bool:
        borrower = self._processes.get(endpoint)
        try:
            return borrower is not None and presence.start_of(borrower.pid) == borrower.start
        except OSError:
            return True  # for all that we can tell

    # ---- time ----

    def tick(self, now: float) -> None:
        """Give back what has not been used for a while."""
        if now < self._due or not self._arenas.arenas:
            return
        with self._lock:
            self._due = now + _LOOK_SECONDS
            self._look_at_processes()
            self._tidy()
            idle = self._arenas.idle(now)
            closed = [(arena, self._shared.pop(arena.number)) for arena in idle]
        for arena, shared in closed:
            for endpoint in arena.mapped_by:
                self._path.withdraw(endpoint, arena.number)
            shared.close()

    def close(self) -> None:
        """Hand over nothing any more; what is lent or loaned stays where it is for as long as somebody has it."""
        with self._lock:
            for shared in self._shared.values():
                shared.close()
            self._shared.clear()
            self._arenas = Arenas()
            self._ended.clear()

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        with self._lock:
            self._arenas.validate()
            assert set(self._arenas.arenas) == set(self._shared)


def _holders(event: Array) -> int:
    """How many refer to the keeper of a loaned array, and to whatever else this line does."""
    return sys.getrefcount(event.base)


def _head_of(event: Array) -> bytes:
    """What is before the bytes of such an array; nothing, where its pickle has them within."""
    views: list[pickle.PickleBuffer] = []
    data = pickle.dumps(event, 5, buffer_callback=views.append)
    if len(views) != 1:  # of times, say
        return b""
    head = _ONE_BUFFER.pack(1, len(data), event.nbytes) + data
    return head + bytes(-len(head) % _ALIGNMENT)


def _reason(error: OSError) -> str:
    return DESCRIPTORS if error.errno in (errno.EMFILE, errno.ENFILE) else KERNEL


# Of an array whose keeper nobody else refers to; versions of Python count what they do themselves differently.
_HOLDERS_OF_ONE: Final = _holders(np.frombuffer(bytes(8), np.uint8)[:])
