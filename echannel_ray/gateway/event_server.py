"""A gateway's port for events: who is let in, and how many. The protocol is in docs/gateway-protocol.md."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from echannel_ray import errors
from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway.event_connection import EventConnection
from echannel_ray.gateway.event_tls import Wire, server_context
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.tokens import Token, Tokens

if TYPE_CHECKING:
    from echannel_ray.gateway.backend import GatewayBackend

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64  # that have shown a token
MAX_STRANGERS: Final = 32  # that have not, yet; the one that takes longest makes room for the next
_LOOK_SECONDS: Final = 0.2


class EventServer:
    """The port for events of one gateway, on threads of its own, as many as its connections need."""

    def __init__(self, backend: GatewayBackend, namespace: str, tokens: Tokens) -> None:
        self.backend = backend
        self.namespace = namespace
        self._tokens = tokens
        self._lock = threading.Lock()
        self._connections: set[EventConnection] = set()  # in the order of their coming are those of `_strangers`
        self._strangers: dict[EventConnection, None] = {}
        self._counts: Counter[str] = Counter()
        self._closing = threading.Event()
        self._socket: socket.socket | None = None

    def start(self, host: str, port: int, identity: Identity) -> int:
        """Listen; the port. `OSError` where that can't be."""
        context = server_context(identity)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = self._socket = socket.create_server((host, port), family=family, backlog=128)

        def accept() -> None:
            while not self._closing.is_set():
                try:
                    sock, address = listening.accept()
                except OSError as error:
                    if self._closing.wait(_LOOK_SECONDS):  # out of descriptors, say: it may pass
                        return
                    logger.warning("the gateway can't accept a connection: %s", error)
                    continue
                try:
                    self._take(EventConnection(Wire(sock, context, True), str(address[0]), self))
                except OSError:  # it is gone already
                    sock.close()

        for name, work in (("accept", accept), ("watch", self._watch)):
            threading.Thread(target=work, name=f"echannel-gateway-{name}", daemon=True).start()
        return int(listening.getsockname()[1])

    def _take(self, connection: EventConnection) -> None:
        with self._lock:
            oldest = next(iter(self._strangers)) if len(self._strangers) >= MAX_STRANGERS else None
            if oldest is not None:
                del self._strangers[oldest]
                self._counts["crowded_out"] += 1
            self._strangers[connection] = None
        if oldest is not None:
            oldest.end()
        threading.Thread(target=self._run, args=[connection], name="echannel-gateway-read", daemon=True).start()

    def _run(self, connection: EventConnection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._strangers.pop(connection, None)
                if connection.is_over:  # else the one that watches finds out
                    self._connections.discard(connection)

    # ---- what connections ask ----

    def greet(self, connection: EventConnection, hello: frames.HelloFrame) -> Token:
        """The token of a client that is let in by its hello; raises where it is not."""
        if hello.version != frames.VERSION:
            raise errors.VersionMismatch(
                f"this gateway speaks version {frames.VERSION} of the protocol, and its client {hello.version}: have "
                "both of the same version",
                version=frames.VERSION,
            )
        token = self._tokens.admit(hello.token)
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                self._counts["refused_too_many"] += 1
                raise errors.Overloaded(
                    f"this gateway has {MAX_CONNECTIONS} connections, and takes no more: close some, or come later",
                    connections=MAX_CONNECTIONS,
                )
            if self._strangers.pop(connection, self) is self:
                raise errors.Disconnected("it took too long, and others came: connect again")
            self._connections.add(connection)
        return token

    def count(self, **more: int) -> None:
        """Add to the counters."""
        with self._lock:
            self._counts.update(more)

    def refused(self, error: BaseException) -> None:
        """Count an error that was answered."""
        self._tokens.refused(error)

    def stats(self) -> dict[str, int]:
        """What came and went, and how many connections there are."""
        with self._lock:
            return {"connections": len(self._connections), "strangers": len(self._strangers), **self._counts}

    # ---- watching, and the end ----

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                self._connections = {each for each in self._connections if not each.is_over}
                there = [*self._connections, *self._strangers]
            for connection in there:
                connection.look_after(now)

    def close(self) -> None:
        """End all connections, and listen no more."""
        self._closing.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        with self._lock:
            there = [*self._connections, *self._strangers]
        for connection in there:
            connection.end(errors.Disconnected("the gateway is closing: connect again in a moment"))
        deadline = time.monotonic() + 1.0
        for connection in there:
            connection.join(max(0.0, deadline - time.monotonic()))
