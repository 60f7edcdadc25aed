"""Whoever has got hold of a concentrator's socket, and sends what no endpoint sends."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from typing import Any

from echannel_ray.actors.concentrator import SOCKET_NAME
from echannel_ray.core import frames
from echannel_ray.ids import node_number
from echannel_ray.transport import wire
from echannel_ray.transport.unix import SocketDirectory
from tests.faults.scene import Scene

ANSWER_SECONDS = 10.0
FAKE_ENDPOINT = 0xEC0_0000_0000_0000


class Intruder:
    """Someone who has got hold of the Unix socket of a node's concentrator."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        node = scene.cluster.nodes[0]
        self.node = node_number(node.node_id)
        self._path = SocketDirectory(scene.namespace, self.node).socket_path(SOCKET_NAME)
        self._greeted = 0

    def hello(self, **other: Any) -> bytes:
        self._greeted += 1
        fields = {"namespace": self._scene.namespace, "node": self.node, "pid": os.getpid(), **other}
        fields.setdefault("endpoint", FAKE_ENDPOINT + self._greeted)
        return frames.frame(frames.HELLO, wire.encode(wire.Hello(**fields)))

    def send(self, data: bytes) -> bytes:
        """All that is answered until the link ends: it is closed by the other side, or by us after that."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect(self._path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """Until the other side closes."""
    answered = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            answered += data
    return bytes(answered)


def senseless(seed: random.Random, intruder: Intruder) -> tuple[bytes, bool]:
    """One thing that no endpoint sends, and whether it counts as malformed."""
    noise = seed.randbytes(seed.randrange(1, 2000))
    kind = seed.choice(["noise", "version", "long", "short", "unknown", "silent", "greeting", "cut"])
    if kind == "noise":
        return b"\xff" + noise.ljust(8, b"\xff"), True
    if kind == "version":
        return frames.HEADER.pack(len(noise), frames.HELLO, 0, frames.MAGIC ^ 1) + noise, True
    if kind == "long":
        return intruder.hello() + frames.HEADER.pack(frames.MAX_FRAME_BYTES + 1, frames.PACK, 0, frames.MAGIC), True
    if kind == "short":
        return intruder.hello() + frames.frame(seed.choice([frames.PACK, frames.ACK, frames.CREDIT]), b"..."), True
    if kind == "unknown":
        return intruder.hello() + frames.frame(200, noise), True
    if kind == "silent":
        return b"", False
    if kind == "greeting":
        return frames.frame(seed.choice([frames.HELLO, frames.PACK]), noise.ljust(64, b".")), True
    return intruder.hello()[: seed.randrange(1, 20)], False
