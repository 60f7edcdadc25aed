"""A link within a process, for tests: small and bounded, so that sends are partial and would block."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from echannel_ray.transport.connection import Connection, Peer, raise_closed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class _Pipe:
    """The bytes under way in one direction. The lock is common to both, since a close ends both."""

    def __init__(self, capacity: int, changed: threading.Condition) -> None:
        self.capacity = capacity
        self.changed = changed
        self.content = bytearray()
        self.ended = False


class MemoryConnection(Connection):
    """One end of a pair that `memory_pair` makes; it has no descriptor, so threads can wait in it and epoll can't."""

    def __init__(self, reads: _Pipe, writes: _Pipe) -> None:
        self.peer = Peer("memory")
        self._reads = reads
        self._writes = writes
        self._changed = reads.changed
        self._blocking = True
        self._closed = False

    @override
    def fileno(self) -> int:
        """Raises: a link in memory has no descriptor."""
        raise io.UnsupportedOperation("a link in memory has no descriptor: use threads, or a socketpair")

    @override
    def recv_into(self, buffer: WriteableBuffer) -> int | None:
        view = memoryview(buffer).cast("B")
        with self._changed:
            if self._closed:
                raise_closed()
            content = self._reads.content
            while not content and not self._reads.ended:
                if not self._blocking:
                    return None
                self._changed.wait()
            size = 0 if self._closed else min(len(view), len(content))
            view[:size] = content[:size]
            del content[:size]
            self._changed.notify_all()
            return size

    @override
    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        data = b"".join(parts)
        taken = 0
        with self._changed:
            if self._closed:
                raise_closed()
            while True:
                if self._writes.ended:
                    raise BrokenPipeError("the other end was closed")
                room = self._writes.capacity - len(self._writes.content)
                piece = data[taken : taken + room]
                self._writes.content += piece
                taken += len(piece)
                self._changed.notify_all()
                if taken == len(data) or not self._blocking:
                    return taken
                self._changed.wait()

    @override
    def pending(self) -> bool:
        """Whether a read would give something: there is no epoll that could know."""
        with self._changed:
            return bool(self._reads.content)

    @override
    def wants_write(self) -> bool:
        """Always False: what was taken is the other end's."""
        return False

    @override
    def setblocking(self, blocking: bool) -> None:
        if self._closed:
            raise_closed()
        self._blocking = blocking

    @override
    def close(self) -> None:
        with self._changed:
            self._closed = self._reads.ended = self._writes.ended = True
            self._changed.notify_all()


def memory_pair(capacity_bytes: int = 64 * 1024) -> tuple[MemoryConnection, MemoryConnection]:
    """Two ends of a new link; each direction holds so many bytes."""
    changed = threading.Condition()
    there, back = _Pipe(capacity_bytes, changed), _Pipe(capacity_bytes, changed)
    return MemoryConnection(there, back), MemoryConnection(back, there)
