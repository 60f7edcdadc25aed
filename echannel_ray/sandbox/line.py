"""The producer's end of a sandbox's socket: never blocks, and reads whatever comes."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from echannel_ray.sandbox.messages import MAX_ANSWER_BYTES, Downward, MessageAssembly, Upward, frame, read_up

_READ_BYTES: Final = 1 << 18
_MAX_READS: Final = 16  # in a row, so that one that floods its producer does not keep others waiting
_MAX_UNSENT_BYTES: Final = 64 << 20


class SandboxLine:
    """The line to one sandbox. What the socket does not take at once waits here, and `want_room` is called."""

    def __init__(self, connected: socket.socket, want_room: Callable[[bool], None]) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._want_room = want_room
        self._lock = threading.Lock()
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._unsent_bytes = 0
        self._frames = MessageAssembly(MAX_ANSWER_BYTES)

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    def send(self, message: Downward, descriptors: Sequence[int] = ()) -> None:
        """Send this, with copies of these descriptors, which are closed here. From any thread; what fails shows when
        reading.
        """
        data = frame(message)
        with self._lock:
            if self._unsent_bytes + len(data) > _MAX_UNSENT_BYTES:
                _close(descriptors)
                raise BufferError("the sandbox does not read what it is sent")
            self._unsent.append((memoryview(data), descriptors))
            self._unsent_bytes += len(data)
            if len(self._unsent) == 1:
                self._flush()
                if self._unsent:
                    self._want_room(True)

    def on_writable(self) -> None:
        """Send what waits: there is room again."""
        with self._lock:
            self._flush()
            if not self._unsent:
                self._want_room(False)

    def read(self) -> Iterator[Upward]:
        """What has come; `EOFError` at its end, `Violation` where it is no message."""
        for _ in range(_MAX_READS):
            try:
                data = self._socket.recv(_READ_BYTES)  # never `recvmsg`: descriptors that it sends are dropped
            except BlockingIOError:
                return
            except OSError:  # it left something unread
                data = b""
            if not data:
                raise EOFError("its process ended")
            for message in self._frames.feed(data):
                yield read_up(message)
            if len(data) < _READ_BYTES:
                return

    def close(self) -> None:
        """Close the socket, and drop what was to be sent."""
        with self._lock:
            self._socket.close()
            for _, descriptors in self._unsent:
                _close(descriptors)
            self._unsent.clear()

    def abandon(self) -> None:
        """Close the socket in the child of a fork, where another thread may have held the lock."""
        self._socket.close()

    def _flush(self) -> None:
        while self._unsent:
            data, descriptors = self._unsent[0]
            try:
                sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else self._send(data)
            except BlockingIOError:
                return
            except OSError:  # it is gone, which whoever reads will see
                sent = len(data)
            _close(descriptors)
            self._unsent_bytes -= sent
            if sent < len(data):
                self._unsent[0] = data[sent:], ()
                return
            self._unsent.popleft()

    def _send(self, data: memoryview) -> int:
        return self._socket.send(data, socket.MSG_NOSIGNAL)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
