"""What a concentrator says of its links: without Ray, over a pair of sockets."""

from __future__ import annotations

import socket
from typing import Any

from echannel_ray.actors.hub import Hub
from echannel_ray.core.relay import Relay
from echannel_ray.transport.connection import Peer, PlainConnection


def test_queued_bytes_are_those_that_sockets_have_not_taken():
    owner: Any = None  # whom nothing is told here
    hub = Hub("default", 1, 1, Relay(1), owner)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        hub._now = 0.0
        link = hub.adopt(PlainConnection(ours, Peer("unix")))
        sent = 0
        while not hub.queued_bytes():
            hub.send(link, bytes(100_000))
            sent += 100_000
        hub.send(link, bytes(100_000))
        sent += 100_000
        theirs.setblocking(False)
        received = 0
        while hub.queued_bytes():
            received += len(theirs.recv(1 << 20))
            before = hub.queued_bytes()
            hub._writable(link)
            assert hub.queued_bytes() <= before
        theirs.setblocking(True)
        while received < sent:
            received += len(theirs.recv(1 << 20))
        hub.send(link, bytes(1_000_000))
        assert hub.queued_bytes() > 0
        hub.disconnect(link)  # what a peer misses is sent again, by who published it
        assert hub.queued_bytes() == 0
