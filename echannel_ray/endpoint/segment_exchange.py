"""How processes of a node share segments: what they say to each other of arenas, by direct links alone.

A producer hands over an arena with a ledger; the consumer maps both, and says that it has, or that it can't. Nothing
else has to be said of it, but that it is given back. What is lost with a link is said again by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import override

from echannel_ray.core import frames
from echannel_ray.endpoint.direct_links import DirectLink, HandedOver
from echannel_ray.endpoint.segment_path import SegmentPath
from echannel_ray.formats.sealed_events import ORDINARY

if TYPE_CHECKING:
    from echannel_ray.endpoint.borrowed_segments import BorrowedSegments
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.endpoint.segment_store import SegmentStore
    from echannel_ray.transport.memory_files import MemoryFile


class SegmentExchange(SegmentPath):
    """The segments of one endpoint, its own and those of others; neither exists before it is needed."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._store: SegmentStore | None = None
        self.max_bytes: int | None = None  # of what this process shares; None: a share of what memory is left
        self._unsaid: dict[int, set[int]] = {}  # arenas that were given back, by endpoints that can't be told now

    @property
    def store(self) -> SegmentStore:
        """What this process shares."""
        with self._lock:
            if self._store is None:
                from echannel_ray.endpoint.segment_store import SegmentStore

                self._store = SegmentStore(self, self.max_bytes)
            return self._store

    @cached_property
    def borrowed(self) -> BorrowedSegments:
        """What others share with it; the reading thread asks first."""
        from echannel_ray.endpoint.borrowed_segments import BorrowedSegments

        return BorrowedSegments(copies=self._endpoint.decoding is not ORDINARY)

    def limit(self, max_bytes: int) -> None:
        """Share no more than so much, from now on."""
        with self._lock:
            self.max_bytes = max_bytes
            if self._store is not None:
                self._store.max_bytes = max_bytes

    @property
    def may_share(self) -> bool:
        """Whether this process can share anything: it may, and it has direct links."""
        return self.max_bytes != 0 and self._endpoint.direct.listener is not None

    # ---- what is said ----

    @override
    def reaches(self, endpoint: int) -> bool:
        return self._link_to(endpoint) is not None

    @override
    def offer(self, endpoint: int, arena: int, max_held_bytes: int, files: Sequence[MemoryFile]) -> bool:
        link = self._link_to(endpoint)
        if link is None:
            return False
        offered = HandedOver(frames.frame(frames.ARENA, frames.ARENA_FIXED.pack(arena, max_held_bytes)))
        offered.files = files
        link.out.append(offered)
        link.write()
        return True

    @override
    def withdraw(self, endpoint: int, arena: int) -> None:
        link = self._link_to(endpoint)
        if link is None:
            with self._lock:
                self._unsaid.setdefault(endpoint, set()).add(arena)
        else:
            link.out.append(_about(frames.ARENA_WITHDRAWN, arena))
            link.write()

    def _link_to(self, endpoint: int) -> DirectLink | None:
        link = self._endpoint.direct.of(endpoint)
        if link is None:
            with self._endpoint.lock:
                self._endpoint.core.ways.wanted.add(endpoint)
            if not self._endpoint.crew.ticking:
                self._endpoint.crew.wake_ticker()
        return link

    def linked(self, link: DirectLink) -> None:
        """There is a link (again): say what could not be said, and what was on the one before may be lost."""
        self.path_lost(link.endpoint)
        with self._lock:
            unsaid = self._unsaid.pop(link.endpoint, set())
        link.out.extend(_about(frames.ARENA_WITHDRAWN, arena) for arena in sorted(unsaid))

    def frame(self, link: DirectLink, kind: int, body: memoryview) -> None:
        """A frame has come that is about arenas; the reading thread calls this."""
        if kind == frames.ARENA:
            arena, max_held_bytes = frames.ARENA_FIXED.unpack(body)
            descriptors = link.received.popleft() if link.received else []
            is_mapped = self.borrowed.offered(link.endpoint, arena, max_held_bytes, descriptors)
            link.out.append(_about(frames.ARENA_MAPPED if is_mapped else frames.ARENA_DECLINED, arena))
            return
        (arena,) = frames.ARENA_NUMBER.unpack(body)
        if kind == frames.ARENA_WITHDRAWN:
            self.borrowed.withdrawn(link.endpoint, arena)
        elif kind == frames.ARENA_MAPPED:
            self.store.mapped(link.endpoint, arena, link.connection.peer.pid or 0)
        else:
            self.store.declined(link.endpoint, arena)

    # ---- what happens ----

    def path_lost(self, endpoint: int) -> None:
        """A direct link has ended."""
        if self._store is not None:
            self._store.path_lost(endpoint)

    def endpoint_gone(self, endpoint: int) -> None:
        """Another process has ended, or has left."""
        self._unsaid.pop(endpoint, None)
        if self._store is not None:
            self._store.endpoint_gone(endpoint)
        if "borrowed" in vars(self):
            self.borrowed.endpoint_gone(endpoint)

    def tick(self, now: float) -> None:
        """Give back what is not used."""
        if self._store is not None:
            self._store.tick(now)

    def close(self) -> None:
        """This process has left: nothing is handed over any more. What was goes on to be looked at."""
        if self._store is not None:
            self._store.close()

    def forget(self) -> None:
        """In the child of a fork: all of it is the parent's."""
        self._lock = threading.Lock()
        if "borrowed" in vars(self):
            self.borrowed.forget()


def _about(kind: int, arena: int) -> bytes:
    return frames.frame(kind, frames.ARENA_NUMBER.pack(arena))
