"""A producer's segments and some consumers of them, without links: what is handed over is handed over at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import BUFFERS, IN_SEGMENT
from echannel_ray.core.segments import Placed
from echannel_ray.endpoint.borrowed_segments import BorrowedSegments
from echannel_ray.endpoint.segment_path import SegmentPath
from echannel_ray.endpoint.segment_store import SegmentStore
from echannel_ray.formats.events import encode
from echannel_ray.formats.packs import decode_body, decode_events, encode_pack
from echannel_ray.transport.memory_files import MemoryFile

PRODUCER = 7


class Sharing(SegmentPath):
    """A store, and consumers in this process."""

    def __init__(self, consumers: Collection[int] = (1,), max_bytes: int | None = 64 << 20) -> None:
        self.consumers = {consumer: BorrowedSegments() for consumer in consumers}
        self.refused: Counter[str] = Counter()
        self.withdrawn: list[tuple[int, int]] = []
        self.unreachable: set[int] = set()
        self.pids = dict.fromkeys(consumers, os.getpid())
        self.store = SegmentStore(self, max_bytes)

    def reaches(self, endpoint: int) -> bool:
        return endpoint not in self.unreachable

    def offer(self, endpoint: int, arena: int, max_held_bytes: int, files: Sequence[MemoryFile]) -> bool:
        if not self.reaches(endpoint):
            return False
        descriptors = [os.dup(file.descriptor) for file in files]
        if self.consumers[endpoint].offered(PRODUCER, arena, max_held_bytes, descriptors):
            self.store.mapped(endpoint, arena, self.pids[endpoint])
        else:
            self.store.declined(endpoint, arena)
        return True

    def withdraw(self, endpoint: int, arena: int) -> None:
        self.withdrawn.append((endpoint, arena))
        self.consumers[endpoint].withdrawn(PRODUCER, arena)

    def refuse(self, reason: str) -> None:
        self.refused[reason] += 1

    def place(self, event: Any, destinations: Collection[int] | None = None) -> tuple[int, Any]:
        """The event as a producer has it after `publish`: its kind, and where it is, if it is in a segment."""
        to = self.consumers if destinations is None else destinations

        def keep(pieces: list[Any]) -> Any:
            return self.store.place(pieces, sum(map(len, pieces)), to, self.refuse) or [b"".join(pieces)]

        kind, payload, _ = encode(event, keep)
        if type(payload) is bytes:
            payload = keep([payload])
        return kind, payload

    def pack(self, kind: int, placed: Placed) -> bytes:
        """A pack with nothing else in it, as it travels. It is on its way for as long as the pieces are kept."""
        self.pieces = encode_pack(columns_of(kind | IN_SEGMENT, placed.lent()), 1, 0.0)
        return b"".join(self.pieces)

    def arrives(self, body: bytes, consumer: int = 1) -> Any:
        """What a consumer makes of such a pack."""
        pack = decode_body(body)
        self.consumers[consumer].open(PRODUCER, pack)
        (event,) = decode_events(pack)
        return event

    def acknowledged(self) -> None:
        """All consumers have the pack."""
        self.pieces = []

    def travel(self, event: Any, consumer: int = 1) -> Any:
        """What a consumer gets of an event."""
        kind, placed = self.place(event)
        arrived = self.arrives(self.pack(kind, placed), consumer)
        self.acknowledged()
        return arrived

    def loan(self, shape: Any, dtype: Any) -> Any:
        """A loaned array."""
        return self.store.loan(shape, dtype, self.consumers, self.refuse)

    def publish_loan(self, loaned: Any) -> Any:
        """Give it up, and have it arrive; None where it has to be copied."""
        self.store.give_up(loaned, self.refuse)
        placed = self.store.placed_event(loaned)
        if placed is None:
            return None
        arrived = self.arrives(self.pack(BUFFERS, placed))
        self.acknowledged()
        return arrived

    def used_slots(self) -> int:
        """How many slots are in use, whoever uses them."""
        store = self.store
        with store._lock:
            store._tidy()
            return sum(len(arena.leased) + len(arena.lent) for arena in store._arenas.arenas.values())


def columns_of(kind: int, event: Any) -> PackColumns:
    """A pack of one event."""
    return PackColumns([], [1], [1], [1], [1], bytes((kind,)), 0, [event])
