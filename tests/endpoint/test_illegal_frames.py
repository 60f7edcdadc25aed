"""Frames that are none, through real sockets: the concentrator's loop and an endpoint refuse them, and count them."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from echannel_ray.actors.hub import Hub
from echannel_ray.core import frames
from echannel_ray.core.endpoint import EndpointCore
from echannel_ray.core.frames import LEAST_BODY
from echannel_ray.core.relay import Relay
from echannel_ray.endpoint.link_reader import LinkReader
from echannel_ray.formats.sealed_events import ORDINARY
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Peer, PlainConnection

ILLEGAL = {
    "an over-long ACK": frames.frame(frames.ACK, bytes(LEAST_BODY[frames.ACK] + 1)),
    "an over-long GONE": frames.frame(frames.GONE, bytes(LEAST_BODY[frames.GONE] + 1)),
    "an over-long CREDIT": frames.frame(frames.CREDIT, bytes(LEAST_BODY[frames.CREDIT] + 1)),
    "an over-long PROBE": frames.frame(frames.PROBE, bytes(LEAST_BODY[frames.PROBE] + 8)),
    "a short PACK": frames.frame(frames.PACK, bytes(LEAST_BODY[frames.PACK] - 1)),
    "no type": frames.frame(99, b""),
    "another magic": frames.HEADER.pack(0, frames.HEARTBEAT, 0, 0xABCD),
    "too long": frames.HEADER.pack(frames.MAX_FRAME_BYTES + 1, frames.PACK, 0, frames.MAGIC),
}
HEARTBEAT = frames.frame(frames.HEARTBEAT)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("illegal", ILLEGAL.values(), ids=ILLEGAL)
def test_a_concentrator_closes_the_link(ends: tuple[socket.socket, socket.socket], illegal: bytes) -> None:
    ours, theirs = ends
    owner: Any = SimpleNamespace(endpoint_attached=lambda hello: None, endpoint_gone=lambda endpoint: None)
    hub = Hub("default", 1, 1, Relay(1), owner)
    hub._now = 0.0
    link = hub.adopt(PlainConnection(ours, Peer("unix")))
    theirs.sendall(frames.frame(frames.HELLO, wire.encode(wire.Hello("default", 1, 7, 1))) + HEARTBEAT)
    hub._readable(link)
    assert 7 in hub.relay.endpoints
    theirs.sendall(HEARTBEAT + illegal + HEARTBEAT)
    hub._readable(link)
    assert hub.malformed_frames == 1
    assert not hub.relay.endpoints


@pytest.mark.parametrize("illegal", ILLEGAL.values(), ids=ILLEGAL)
def test_an_endpoint_asks_for_another_link(ends: tuple[socket.socket, socket.socket], illegal: bytes) -> None:
    ours, theirs = ends
    core = EndpointCore(1, 7, lambda columns, gathered_bytes, stamp: [])
    no_links: Any = SimpleNamespace(all=(), listener=None)
    endpoint: Any = SimpleNamespace(core=core, decoding=ORDINARY, lock=threading.Lock(), heard_at=0.0, direct=no_links)
    incoming = LinkReader(endpoint)
    connection = PlainConnection(ours, Peer("unix"))
    theirs.sendall(HEARTBEAT)
    assert incoming.read(connection, 10)
    assert [*core.out] == [HEARTBEAT]
    theirs.sendall(HEARTBEAT + illegal + HEARTBEAT)
    assert not incoming.read(connection, 10)
    assert incoming.malformed == 1
    assert [*core.out] == [HEARTBEAT] * 2
