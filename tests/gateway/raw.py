"""A client of the port for events that sends what it likes."""

from __future__ import annotations

import socket
import time
from typing import Any

import msgspec

from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.event_tls import Wire, client_context

SECONDS = 20.0


class Raw:
    """A connection; with `greet`, one that was let in."""

    def __init__(self, endpoint: Endpoint, greet: bool = True) -> None:
        self.socket = socket.create_connection((endpoint.host, endpoint.events_port), SECONDS)
        self.socket.settimeout(None)
        self.wire = Wire(self.socket, client_context(endpoint.key), False)
        self.wire.handshake(time.monotonic() + SECONDS)
        self._frames = frames.FrameCutter(1 << 27)
        self._heard: list[dict[str, Any]] = []
        if greet:
            self.say({"op": "hello", "version": 1, "token": endpoint.token})
            assert self.hear()["op"] == "welcome"

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.wire.dispose()

    def say(self, message: Any) -> None:
        """Send a map as a frame."""
        body = msgspec.msgpack.encode(message)
        self.send(frames.LENGTH.pack(len(body)) + body)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.wire.write(data)

    def hear(self) -> dict[str, Any]:
        """The next frame; `EOFError` at the end."""
        deadline = time.monotonic() + SECONDS
        while not self._heard:
            data = self.wire.read(deadline)
            if not data:
                raise EOFError
            self._heard += [msgspec.msgpack.decode(body) for body in self._frames.feed(data)]
        return self._heard.pop(0)

    def rest(self) -> list[dict[str, Any]]:
        """All that comes until the end."""
        heard = []
        try:
            while True:
                heard.append(self.hear())
        except (EOFError, ConnectionError):
            return heard
