"""Links between nodes: TCP, always with TLS and certificates of one authority at both sides.

A listener must not let a stranger hold up its loop, so handshakes advance side by side as bytes arrive. It has an epoll
of its own for them, which the loop watches as if it were one socket. Nor may strangers keep others out: there are only
so many handshakes at a time, and the oldest gives way to a new one. A peer takes milliseconds for its own, so whoever
wants to crowd it out has to come more often than that.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import Counter, deque

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.connection import accept_socket
from echannel_ray.transport.security import Credentials, client_context, reason_of, server_context
from echannel_ray.transport.tls import TlsConnection

HANDSHAKE_SECONDS = 5.0
MAX_HANDSHAKES = 64
# A handshake costs about a millisecond of computing: a loop gets its turn back after so many steps.
_MAX_STEPS = 8
_BACKLOG = 256
# As `PEER_TIMEOUT_SECONDS` of concentrators: until then a cut link may come back, and heartbeats only suspect.
_SILENCE_SECONDS = 30


class TcpListener:
    """Where the concentrators of other nodes link to this one; non-blocking."""

    def __init__(self, host: str, port: int, credentials: Credentials) -> None:
        """Listen at the address; port 0 is any free one (see `port`)."""
        self.refused: Counter[str] = Counter()  # handshakes that failed or took too long, by reason
        self.renew(credentials)
        # By descriptor; oldest first, so the first is the next to time out.
        self._handshakes: dict[int, tuple[TlsConnection, float]] = {}
        self._finished: deque[TlsConnection] = deque()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._socket, select.EPOLLIN)

    def renew(self, credentials: Credentials) -> None:
        """Show these from now on, and judge by them; links that exist are not concerned. From any thread."""
        self._shown = server_context(credentials), credentials  # in one piece

    def fileno(self) -> int:
        """What to register with epoll: readable when `accept` has something to do."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def accept(self) -> TlsConnection | None:
        """Go on with all handshakes, without waiting: a link that is ready, or None (then wait for readiness).

        Called now and then in any case, it is rid of handshakes that take too long.
        """
        if not self._finished and not self._epoll.closed:
            for descriptor, _ in self._epoll.poll(0, _MAX_STEPS):
                if descriptor == self._socket.fileno():
                    self._admit()
                else:
                    self._advance(descriptor)
            self._expire(time.monotonic())
        return self._finished.popleft() if self._finished else None

    def _admit(self) -> None:
        sock = accept_socket(self._socket)
        if sock is None:
            return
        _tune(sock)
        if len(self._handshakes) == MAX_HANDSHAKES:
            self._refuse(next(iter(self._handshakes)), "crowded_out")
        connection = TlsConnection(sock, *self._shown, server_side=True)
        descriptor = connection.fileno()
        self._handshakes[descriptor] = (connection, time.monotonic() + HANDSHAKE_SECONDS)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _advance(self, descriptor: int) -> None:
        if descriptor not in self._handshakes:
            return  # crowded out in this very turn
        connection, _ = self._handshakes[descriptor]
        try:
            done = connection.handshake()
        except (ssl.SSLError, NotAuthorised) as error:
            self._refuse(descriptor, reason_of(error))
        except ConnectionError:
            # Nobody was refused: somebody looked whether this port is open, or died.
            self._release(descriptor).close()
        else:
            if done:
                self._finished.append(self._release(descriptor))
            else:
                wanted = select.EPOLLIN | (select.EPOLLOUT if connection.wants_write() else 0)
                self._epoll.modify(descriptor, wanted)

    def _expire(self, now: float) -> None:
        for descriptor, (_, deadline) in list(self._handshakes.items()):
            if deadline > now:
                break
            self._refuse(descriptor, "silent")

    def _refuse(self, descriptor: int, reason: str) -> None:
        self.refused[reason] += 1
        self._release(descriptor).close()

    def _release(self, descriptor: int) -> TlsConnection:
        self._epoll.unregister(descriptor)
        return self._handshakes.pop(descriptor)[0]

    def close(self) -> None:
        """Listen no more; links that were accepted are not concerned."""
        self._epoll.close()
        self._socket.close()
        for connection in [connection for connection, _ in self._handshakes.values()] + list(self._finished):
            connection.close()
        self._handshakes.clear()
        self._finished.clear()


def connect_tcp(host: str, port: int, credentials: Credentials, timeout_seconds: float) -> TlsConnection:
    """A blocking link to the listener there, which has accepted us; who it is, is in `peer.node`.

    Raises `NotAuthorised` if one side refuses the other, `TimeoutError`, or the `OSError` of a connection that failed.
    """
    deadline = time.monotonic() + timeout_seconds
    sock = socket.create_connection((host, port), timeout_seconds)
    _tune(sock)
    connection = TlsConnection(sock, client_context(credentials), credentials, server_side=False)
    try:
        while not connection.handshake():
            _wait(connection, deadline, f"{host}:{port}")
    except ssl.SSLError as error:
        connection.close()
        raise NotAuthorised(
            f"{host}:{port} and this node do not trust each other ({error.reason or error}): check that the address "
            "is a concentrator's, that both certificates are of one namespace's authority, and that no clock is wrong",
            host=host,
            port=port,
            reason=reason_of(error),
        ) from error
    except BaseException:
        connection.close()
        raise
    connection.setblocking(True)
    return connection


def _wait(connection: TlsConnection, deadline: float, address: str) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLIN | (select.POLLOUT if connection.wants_write() else 0))
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poll.poll(remaining * 1000):
        raise TimeoutError(f"{address} did not finish the handshake in time")


def _tune(sock: socket.socket) -> None:
    # Buffers stay as they are: Linux lets them grow to megabytes by itself, but not once their size was set.
    options = (
        (socket.TCP_NODELAY, 1),  # packs are whole when they are sent: there is nothing to wait for
        (socket.TCP_USER_TIMEOUT, _SILENCE_SECONDS * 1000),  # bytes that nobody acknowledges
        (socket.TCP_KEEPIDLE, _SILENCE_SECONDS // 3),  # the same for a link on which nothing is sent
        (socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 6),
        (socket.TCP_KEEPCNT, 4),
    )
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in options:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
