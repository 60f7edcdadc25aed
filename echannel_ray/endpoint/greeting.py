"""How an endpoint begins a link: it says who it is, and the concentrator lets it in or says why not."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

_GREETING_SECONDS: Final = 5.0


def greet(connection: Connection, namespace: str, endpoint: ProcessEndpoint) -> Connection:
    """The connection, once the other side has let us in."""
    hello = wire.Hello(namespace, endpoint.node, endpoint.id, os.getpid())
    connection.send((frames.frame(frames.HELLO, wire.encode(hello)),))
    deadline = time.monotonic() + _GREETING_SECONDS
    header = _read_exactly(connection, frames.HEADER_BYTES, deadline)
    try:
        length, kind, _, magic = frames.HEADER.unpack(header)
        frames.check_header(length, kind, magic, frames.MAX_GREETING_BYTES)
        answer = wire.decode(_read_exactly(connection, length, deadline))  # raises what a REFUSED frame says
    except (frames.MalformedFrame, wire.MalformedMessage) as error:
        connection.close()
        raise errors.Disconnected(f"what listens at the concentrator's socket is none: {error}") from error
    except errors.NotAuthorised as error:
        connection.close()
        raise errors.Disconnected(str(error)) from error
    if not isinstance(answer, wire.Welcome):
        connection.close()
        raise errors.Disconnected("the concentrator did not answer the greeting")
    return connection


def _read_exactly(connection: Connection, size: int, deadline: float) -> bytes:
    data = bytearray(size)
    have = 0
    connection.setblocking(True)
    while have < size:
        received = connection.recv_into(memoryview(data)[have:])
        if not received or time.monotonic() > deadline:
            connection.close()
            raise errors.Disconnected("the concentrator closed the link")
        have += received
    return bytes(data)
