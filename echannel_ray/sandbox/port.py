"""A sandbox's end of its socket, and what its modulator asks there: services, and the masters of shared objects."""

from __future__ import annotations

import array
import itertools
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.formats import plain
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
        self._calls = itertools.count(1)
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

    def call_service(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of a service that was granted."""
        arguments = messages.pack([list(args), kwargs])
        return self.call(lambda call: messages.CallService(call, name, method, arguments))

    def call(self, question: Callable[[int], messages.Question]) -> Any:
        """What a call returns, which is asked for under a number; raises what it has raised. What else comes waits."""
        message = question(next(self._calls))
        self.send(message)
        while True:
            for at, each in enumerate(self._messages):
                if isinstance(each, messages.Reply) and each.call == message.call:
                    del self._messages[at]
                    if isinstance(each, messages.Refuse):
                        raise messages.rebuild(each)
                    return plain.decode(each.value)
            self._read()

    def _read(self) -> None:
        data, ancillary, _, _ = self._socket.recvmsg(_MAX_READ, socket.CMSG_SPACE(8))
        if not data:
            os._exit(0)  # the producer has closed it, or is gone
        for _, _, content in ancillary:
            self.descriptors.extend(array.array("i", content))
        self._messages.extend(map(messages.read_down, self._frames.feed(data)))


class SandboxLink:
    """The link of a shared object's copy in a sandbox to its master."""

    def __init__(self, port: Port, index: int) -> None:
        self._port = port
        self._index = index

    def publish(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        """Publish these fields; the new version, and all fields."""
        data = messages.pack(fields)
        version, state = self._port.call(lambda call: messages.PublishShared(call, self._index, data, expected_version))
        return version, state

    def pull(self) -> tuple[int, dict[str, Any]]:
        """The newest version, and its fields."""
        version, state = self._port.call(lambda call: messages.Pull(call, self._index))
        return version, state
