"""An epoll relay that forwards bytes: the bare counterpart of a concentrator. One process per relay."""

from __future__ import annotations

import select
import socket
from multiprocessing.connection import Connection

CHUNK_BYTES = 1 << 18


def listen(address: str | None) -> socket.socket:
    """A listening Unix socket at a path, or TCP on the loopback where there is none."""
    if address is None:
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def connect(address: str | tuple[str, int]) -> socket.socket:
    """A connection to a path, or to a host and port."""
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def accept(listener: socket.socket) -> socket.socket:
    """The next connection, without Nagle's delay where it is TCP."""
    connection, _ = listener.accept()
    if connection.family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def relay(pipe: Connection, listen_at: str | None, onward: list[str | tuple[str, int]]) -> None:
    """Forward what comes from the source's side to every sink's side, and back, until an end closes."""
    with listen(listen_at) as listener:
        pipe.send(listener.getsockname())
        sinks = [connect(address) for address in onward]
        source = accept(listener)
    targets = {source.fileno(): sinks} | {sink.fileno(): [source] for sink in sinks}
    origins = {link.fileno(): link for link in (source, *sinks)}
    # One buffer for ever: `recv` makes a new one at each call, which is a system call of its own above 128 KB (malloc's
    # threshold), and trebled the round trip.
    buffer = memoryview(bytearray(CHUNK_BYTES))
    poll = select.epoll()
    for descriptor in origins:
        poll.register(descriptor, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll():
            count = origins[descriptor].recv_into(buffer)
            if not count:
                return
            for target in targets[descriptor]:
                target.sendall(buffer[:count])
