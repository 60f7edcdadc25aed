"""A sandbox's end of its socket."""

from __future__ import annotations

import array
import os
import select
import socket
from collections import deque
from typing import Final

from echannel_ray.sandbox import messages

_MAX_READ: Final = 65536


class Port:
    """The socket to the producer: blocking, with the messages and descriptors that have come and were not asked for."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._frames = messages.MessageAssembly(1 << 32)
        self._messages: deque[messages.Downward] = deque()
        self.descriptors: deque[int] = deque()

    def send(self, message: messages.Upward) -> None:
        """Send the producer a message."""
        view = memoryview(messages.frame(message))
        while view:
            view = view[os.write(self._descriptor, view) :]

    def receive(self, timeout: float | None = None) -> messages.Downward | None:
        """The next message; None where none has come within this time."""
        if not self._messages and timeout is not None and not self._poll.poll(max(timeout, 0) * 1000):
            return None
        while not self._messages:
            self._read()
        return self._messages.popleft()

    def ask(self, message: messages.Question) -> messages.Reply:
        """Send a message, and wait for its answer. What else comes has to wait."""
        self.send(message)
        while True:
            for at, each in enumerate(self._messages):
                if isinstance(each, messages.Reply) and each.call == message.call:
                    del self._messages[at]
                    return each
            self._read()

    def _read(self) -> None:
        data, ancillary, _, _ = self._socket.recvmsg(_MAX_READ, socket.CMSG_SPACE(8))
        if not data:
            os._exit(0)  # the producer has closed it, or is gone
        for _, _, content in ancillary:
            self.descriptors.extend(array.array("i", content))
        self._messages.extend(map(messages.read_down, self._frames.feed(data)))
