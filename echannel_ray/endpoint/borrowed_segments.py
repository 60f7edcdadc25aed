"""The segments of other processes of the node: what consumers here look at, and what they hold of it.

Rules:

* An event that came in a segment is looked at where it is. Its *holding* is the array that all views of it are made of:
  when the last of them is gone, the slot's byte in the ledger is cleared, by whoever let go of it.
* The byte is set before the pack is acknowledged, and then the slot's generation is compared: a slot that was given to
  another event before we said that we hold it is none of ours.
* What is held is bounded for each producer. Past that, events are copied, and held no longer than that takes.
* The memory of an arena stays mapped for as long as somebody looks at it, whatever becomes of its producer.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast, overload

import numpy as np
from typing_extensions import override

from echannel_ray.core.kinds import IN_SEGMENT, PLAIN
from echannel_ray.core.segments import GENERATION, GRANULE_BYTES, SegmentPlace, place_of
from echannel_ray.formats.packs import MalformedPack, PackBody
from echannel_ray.transport.memory_files import mapped

logger = logging.getLogger(__name__)

# So much the C library keeps of what was freed, at least, once something of that size was freed: else it may give back
# the memory of each event's copy page by page, and get it again for the next one, which takes ten times as long as
# the copy.
_KEPT_BYTES = 16 << 20
_INNER = bytes(kind & ~IN_SEGMENT for kind in range(256))

Array = np.ndarray[Any, Any]


class _BorrowedArena:
    """An arena of another process as this one sees it, and the ledger in which this one says what it holds."""

    def __init__(self, memory: mmap.mmap, ledger: mmap.mmap, max_held_bytes: int) -> None:
        self.memory = memoryview(memory)
        self.ledger = ledger
        self.max_held_bytes = max_held_bytes
        self.holdings: dict[int, weakref.ref[Array]] = {}  # by the first granules of slots


class LentBytes(Sequence[bytes]):
    """The events of a pack whose only one is `bytes` in a segment: copied when it is handled.

    Not before: where several wait, memory for each would be had from the system, page by page, and be given back, which
    takes several times as long as the copy.
    """

    __slots__ = ("_copy", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view: memoryview | None = view
        self._copy = b""

    def _only(self) -> list[bytes]:
        view = self._view
        if view is not None:  # two subscriptions may both find it so
            self._copy = bytes(view)
            self._view = None
        return [self._copy]

    @override
    def __len__(self) -> int:
        return 1

    @override
    def __iter__(self) -> Iterator[bytes]:
        return iter(self._only())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    @override
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._only()[index]


class BorrowedSegments:
    """What one endpoint has mapped of the arenas of others. Its reading thread calls all but what lets go."""

    def __init__(self, copies: bool = False) -> None:
        """With `copies` nobody here gets a view."""
        self._copies = copies
        bytes(_KEPT_BYTES)  # which is freed, and was never written
        self._arenas: dict[tuple[int, int], _BorrowedArena] = {}  # by (endpoint, arena)
        self._held_bytes: dict[int, int] = {}  # by producers' endpoints
        # Reentrant: an array may be let go of by the garbage collector, within what has the lock.
        self._lock = threading.RLock()
        self._is_forgotten = False
        self.viewed = self.copied = 0

    # ---- arenas ----

    def offered(self, endpoint: int, arena: int, max_held_bytes: int, descriptors: list[int]) -> bool:
        """Map an arena and its ledger, which a producer has handed over; whether that could be done."""
        try:
            if (endpoint, arena) not in self._arenas:
                memory, ledger = descriptors  # none, where this process may have no more of them
                borrowed = _BorrowedArena(mapped(memory, False), mapped(ledger, True), max_held_bytes)
                self._arenas[endpoint, arena] = borrowed
        except (OSError, ValueError) as error:
            logger.warning("memory that endpoint %016x shares can't be mapped: %s", endpoint, error)
            return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def withdrawn(self, endpoint: int, arena: int) -> None:
        """Nothing more comes by an arena."""
        self._arenas.pop((endpoint, arena), None)

    def endpoint_gone(self, endpoint: int) -> None:
        """A producer's process has ended: what came from it stays where it is."""
        for key in [key for key in self._arenas if key[0] == endpoint]:
            del self._arenas[key]

    # ---- events ----

    def open(self, endpoint: int, pack: PackBody) -> int:
        """Have the events of a pack that lie in segments of this producer as their kinds want them; their bytes."""
        kinds, events = pack.kinds, pack.events
        each_kind = kinds * len(events) if len(kinds) == 1 else kinds
        size_bytes = 0
        for i, kind in enumerate(each_kind):
            if kind & IN_SEGMENT:
                try:
                    place = place_of(events[i])
                    events[i] = self._payload(endpoint, place)
                    if kind == PLAIN | IN_SEGMENT and len(events) > 1:
                        events[i] = bytes(events[i])
                except (KeyError, ValueError) as error:
                    raise MalformedPack(f"an event lies where nothing is: {error!r}") from error
                size_bytes += place.size_bytes // 2  # so that it is acknowledged about when it is credited
        pack.kinds = kinds.translate(_INNER)
        if len(events) == 1 and kinds[0] == PLAIN | IN_SEGMENT and type(events[0]) is memoryview:
            pack.kinds, pack.events = b"", cast("list[Any]", LentBytes(events[0]))
        return size_bytes

    def _payload(self, endpoint: int, place: SegmentPlace) -> bytes | memoryview:
        arena = self._arenas[endpoint, place.arena]
        is_behind = place.offset >= place.granule * GRANULE_BYTES
        if not is_behind or place.granule >= len(arena.ledger) or place.offset + place.size_bytes > len(arena.memory):
            raise ValueError(f"{place} is outside of its arena")
        held = self._hold(endpoint, arena, place)
        view = memoryview(held.data)[place.offset - place.granule * GRANULE_BYTES :][: place.size_bytes].toreadonly()
        if self._copies or self._held_bytes[endpoint] > arena.max_held_bytes:
            self.copied += 1
            return bytes(view)
        self.viewed += 1
        return view

    def _hold(self, endpoint: int, arena: _BorrowedArena, place: SegmentPlace) -> Array:
        granule = place.granule
        with self._lock:
            known = arena.holdings.get(granule)
            held = known() if known is not None else None
            if held is None:
                start = granule * GRANULE_BYTES
                size = place.offset + place.size_bytes - start
                held = np.frombuffer(arena.memory, np.uint8, len(arena.memory) - start, start)
                let_go = partial(self._let_go, arena, granule, endpoint, size)
                arena.holdings[granule] = weakref.ref(held, let_go)
                arena.ledger[granule] = 1
                self._held_bytes[endpoint] = self._held_bytes.get(endpoint, 0) + size
        (generation,) = GENERATION.unpack_from(arena.memory, granule * GENERATION.size)
        if generation != place.generation:
            raise ValueError(f"{place} has become generation {generation}")
        return held

    def _let_go(
        self, arena: _BorrowedArena, granule: int, endpoint: int, size_bytes: int, ref: weakref.ref[Array]
    ) -> None:
        if self._is_forgotten:
            return  # the ledger is the parent's
        with self._lock:
            if arena.holdings.get(granule) is ref:
                del arena.holdings[granule]
                arena.ledger[granule] = 0
            self._held_bytes[endpoint] -= size_bytes
            if not self._held_bytes[endpoint]:
                del self._held_bytes[endpoint]

    def forget(self) -> None:
        """In the child of a fork: what is held is the parent's affair."""
        self._is_forgotten = True
