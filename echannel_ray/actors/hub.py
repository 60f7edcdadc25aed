"""The concentrator's loop: one thread, one epoll, all links of the node.

It performs what the relay decides and decides nothing itself: the relay says which bytes go on by which links, and they
go from the buffer that they were read into straight to the sockets.
"""

from __future__ import annotations

import logging
import math
import os
import select
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.actors.manager_links import ManagerLinks
from echannel_ray.core import frames
from echannel_ray.core.frames import MAX_FRAME_BYTES, MAX_GREETING_BYTES
from echannel_ray.core.framing import Framer
from echannel_ray.core.relay import Relay
from echannel_ray.ids import WIRE_VERSION
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    from echannel_ray.actors.concentrator import Concentrator
    from echannel_ray.transport.tcp import TcpListener
    from echannel_ray.transport.unix import UnixListener

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 0.3
SUSPECT_SECONDS = 1.0
GREETING_SECONDS = 5.0
_BUFFER_BYTES = MAX_FRAME_BYTES + (64 << 10)
_READS_PER_TURN = 4


class HubLink:
    """A link of the concentrator: to an endpoint of its node, to another concentrator, or to a manager."""

    __slots__ = (
        "connection", "endpoint", "framer", "heard_at", "hello", "node", "opened_at", "out", "out_bytes", "renew_at",
        "slot", "writable",
    )  # fmt: skip

    def __init__(self, connection: Connection, now: float) -> None:
        self.connection = connection
        self.hello: wire.Hello | None = None
        self.endpoint = 0
        self.node = 0
        self.slot: int | None = None
        self.framer = Framer(MAX_GREETING_BYTES)
        self.out: deque[memoryview | bytes] = deque()
        self.out_bytes = 0
        self.opened_at = self.heard_at = now
        self.writable = True  # False while epoll waits until it is
        self.renew_at = math.inf  # on `time.monotonic`; of a link that we opened, while both certificates are good

    @override
    def __repr__(self) -> str:
        if self.slot is not None:
            return f"<link to manager {self.slot}>"
        return f"<link to {'endpoint' if self.endpoint else 'node'} {self.endpoint or self.node:x}>"


class Hub:
    """The thread of one concentrator that moves frames between its links, from greeting to closing them."""

    def __init__(self, namespace: str, node: int, incarnation: int, relay: Relay, owner: Concentrator) -> None:
        """`owner` is told what happens, on the hub's thread."""
        self.namespace = namespace
        self.node = node
        self.incarnation = incarnation
        self.relay = relay
        self.malformed_frames = 0
        self.refused: Counter[str] = Counter()  # links that were no peer's or endpoint's, by reason
        self.bytes_between_nodes = 0
        self.managers: dict[int, HubLink] = {}  # by their slots
        self.manager_links = ManagerLinks(self, lambda *told: owner.answered(*told))
        self._owner = owner
        self._links: dict[int, HubLink] = {}
        self._listeners: dict[int, UnixListener | TcpListener] = {}
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._posted: deque[Callable[[], Any]] = deque()
        self._stopping = False
        self._farewell = b""
        self._thread = threading.Thread(target=self._run, name="echannel-hub", daemon=True)

    # ---- from other threads ----

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def post(self, action: Callable[[], Any]) -> None:
        """Have something done on the hub's thread."""
        self._posted.append(action)
        try:
            os.eventfd_write(self._wake, 1)
        except (BlockingIOError, OSError):
            pass

    def stop(self, farewell: bytes = b"") -> None:
        """Close all links, those to endpoints after a last frame, and end the thread."""
        self._farewell = farewell
        self._stopping = True
        self.post(lambda: None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5)

    # ---- on the hub's thread ----

    def add_listener(self, listener: UnixListener | TcpListener) -> None:
        """Accept links from a listener."""
        self._listeners[listener.fileno()] = listener
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def adopt(self, connection: Connection, hello: wire.Hello | None = None, renew_at: float = math.inf) -> HubLink:
        """Take up a new link. With `hello` it is one that we opened, to a peer."""
        connection.setblocking(False)
        link = HubLink(connection, time.monotonic())
        link.renew_at = renew_at
        self._links[connection.fileno()] = link
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        if hello is not None:
            self.send(link, frames.frame(frames.HELLO, wire.encode(hello)))
        if connection.pending():
            self._readable(link)
        return link

    def send(self, link: HubLink, data: bytes | memoryview) -> None:
        """Send, or keep what the socket does not take now. `data` may be a view of the buffer that is read into."""
        if link.node:
            self.bytes_between_nodes += len(data)
        if not link.out:
            try:
                taken = link.connection.send((data,))
            except (ConnectionError, errors.Closed):
                return  # its end of file will be read, and everything follows from that
            if taken == len(data):
                if link.connection.wants_write():
                    self._wait_writable(link)
                return
            data = data[taken:]
        link.out.append(bytes(data))
        link.out_bytes += len(data)
        self._wait_writable(link)

    def send_to_endpoint(self, endpoint: int, frame: bytes) -> None:
        """Send to an endpoint of this node, if it is linked."""
        link = self.relay.endpoints.get(endpoint)
        if isinstance(link, HubLink):
            self.send(link, frame)

    def suspected(self) -> list[HubLink]:
        """The links that have been silent for longer than heartbeats allow."""
        now = time.monotonic()
        return [link for link in [*self._links.values()] if link.hello and now - link.heard_at > SUSPECT_SECONDS]

    def queued_bytes(self) -> int:
        """How many bytes the sockets have not taken yet."""
        return sum(link.out_bytes for link in [*self._links.values()])

    def refuse(self, reason: str, link: HubLink | None = None) -> None:
        """Count somebody who is not let in, or a link whose other side has lost what let it in: that is closed."""
        self.refused[reason] += 1
        if link is not None:
            self.disconnect(link)

    def _wait_writable(self, link: HubLink) -> None:
        if link.writable:
            link.writable = False
            self._modify(link, select.EPOLLIN | select.EPOLLOUT)

    def _modify(self, link: HubLink, events: int) -> None:
        descriptor = link.connection.fileno()
        if descriptor >= 0:
            self._epoll.modify(descriptor, events)

    def _writable(self, link: HubLink) -> None:
        try:
            while link.out or link.connection.wants_write():
                parts = [*link.out][:64]
                taken = link.connection.send(parts)
                if not taken:
                    break
                link.out_bytes -= taken
                while taken:
                    first = link.out[0]
                    if taken >= len(first):
                        taken -= len(first)
                        link.out.popleft()
                    else:
                        link.out[0] = memoryview(first)[taken:]
                        taken = 0
        except (ConnectionError, errors.Closed):
            return
        if not link.out and not link.connection.wants_write():
            link.writable = True
            self._modify(link, select.EPOLLIN)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:
            logger.critical("the concentrator's hub failed", exc_info=True)
            self._owner.hub_failed()

    def _serve(self) -> None:
        self._now = time.monotonic()
        next_beat = self._now
        while not self._stopping:
            events = self._epoll.poll(max(0.0, next_beat - self._now))
            self._now = time.monotonic()
            for descriptor, event in events:
                link = self._links.get(descriptor)
                if link is not None:
                    if event & select.EPOLLOUT:
                        self._guarded(self._writable, link)
                    if event & ~select.EPOLLOUT:
                        self._guarded(self._readable, link)
                elif descriptor in self._listeners:
                    self._guarded(self._accept, self._listeners[descriptor])
                else:
                    self._drain_posted()
            self._flush_relay()
            if self._now >= next_beat:
                next_beat = self._now + HEARTBEAT_SECONDS
                self._beat()
        for link in [*self._links.values()]:
            if link.endpoint and self._farewell:
                self.send(link, self._farewell)
            link.connection.close()
        for listener in self._listeners.values():
            listener.close()
        self._epoll.close()

    def _guarded(self, action: Callable[[Any], None], argument: Any) -> None:
        try:
            action(argument)
        except Exception as error:  # the hub serves all others still: one link's trouble must not end it
            if isinstance(error, frames.MalformedFrame | struct.error):
                self.malformed_frames += 1
            logger.exception("the concentrator closes %r", argument)
            if isinstance(argument, HubLink):
                self.disconnect(argument)

    def _drain_posted(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass
        while self._posted:
            action = self._posted.popleft()
            try:
                action()
            except Exception:  # as above
                logger.exception("the concentrator goes on after a failed action")

    def _beat(self) -> None:
        heartbeat = frames.frame(frames.HEARTBEAT)
        for link in [*self._links.values()]:
            if link.hello is None:
                if self._now - link.opened_at > GREETING_SECONDS:
                    self.refused["silent"] += 1
                    self.disconnect(link)
            elif not link.out:
                self.send(link, heartbeat)
        self.manager_links.tick(self._now)
        for listener in self._listeners.values():
            # A TLS handshake that stalls has a deadline, and no event to notice it by.
            self._guarded(self._accept, listener)

    def _accept(self, listener: UnixListener | TcpListener) -> None:
        while (connection := listener.accept()) is not None:
            self.adopt(connection)

    def _flush_relay(self) -> None:
        if self.relay.outbox:
            for link, data in self.relay.take_outbox():
                self.send(link, data)  # type: ignore[arg-type]

    # ---- reading ----

    def _readable(self, link: HubLink) -> None:
        for _ in range(_READS_PER_TURN):
            have = link.framer.begin(self._buffer) if link.framer.rest else 0
            received = link.connection.recv_into(self._view[have:])
            if received is None:
                return
            if not received:
                self.disconnect(link)
                return
            link.heard_at = self._now
            if not self._take(link, have + received):
                return
            # A short read means that the socket is empty (but TLS may hold more).
            if received < _BUFFER_BYTES - have and not link.connection.pending():
                return
        if link.connection.pending():
            self.post(partial(self._guarded, self._readable, link))

    def _take(self, link: HubLink, end: int) -> bool:
        """Handle the whole frames before `end`; False when that closed the link."""
        view = self._view
        found = link.framer.frames(self._buffer, end)
        try:
            while link.hello is None:
                greeting = next(found, None)
                if greeting is None:
                    return True
                kind, _, start, stop = greeting
                if not self._greeted(link, kind, view[start:stop]):
                    return False
                link.framer.max_bytes = MAX_FRAME_BYTES
            for kind, _, start, stop in self.relay.route(link, found, view):
                if not self._frame(link, kind, view[start:stop]):
                    return False
        except frames.MalformedFrame as error:
            self._malformed(link, error)
            return False
        finally:
            self._flush_relay()
        return True

    def _malformed(self, link: HubLink, error: frames.MalformedFrame) -> None:
        self.malformed_frames += 1
        logger.warning("closing %r: %s", link, error)
        theirs = error.wire_version
        if link.hello is None and theirs is not None:
            ours = WIRE_VERSION
            self._refuse(link, errors.VersionMismatch(
                f"this process speaks version {theirs} of echannel_ray's protocol, its concentrator version {ours}: "
                "use one version in the whole cluster, and end the old parts with echannel_ray.shutdown()",
                ours=theirs, theirs=ours,
            ))  # fmt: skip
            return
        self.disconnect(link)

    def _frame(self, link: HubLink, kind: int, body: memoryview) -> bool:
        """Handle a frame that the relay has no use for; False when that closed the link."""
        if link.slot is not None:
            if kind == frames.REPLY:
                self.manager_links.replied(bytes(body))
            elif kind == frames.PUSH:
                self.manager_links.pushed(link, bytes(body))
        elif kind == frames.REQUEST:
            (request,) = frames.REQUEST_ID.unpack_from(body)
            self._owner.requested(link.endpoint, request, bytes(body[frames.REQUEST_ID.size :]))
        elif kind == frames.PUSHED:
            (push,) = frames.REQUEST_ID.unpack_from(body)
            self.manager_links.confirmed(link.endpoint, push, bytes(body[frames.REQUEST_ID.size :]))
        elif kind == frames.GOODBYE:
            self.disconnect(link)
            return False
        return True  # of a heartbeat, and of a greeting to the side that was dialled, there is nothing more to learn

    def _greeted(self, link: HubLink, kind: int, body: memoryview) -> bool:
        try:
            hello = wire.decode(body) if kind in (frames.HELLO, frames.WELCOME) else None
            if not isinstance(hello, wire.Hello):
                raise wire.MalformedMessage("the first frame must be a greeting")
        except (wire.MalformedMessage, errors.EChannelError) as error:
            self.malformed_frames += 1
            logger.warning("closing a link that began with no greeting: %s", error)
            self.disconnect(link)
            return False
        refusal = self._reason_to_refuse(link, hello)
        if refusal is not None:
            self._refuse(link, refusal)
            return False
        link.hello = hello
        if hello.endpoint:
            link.endpoint = hello.endpoint
            # Noted before anything else: a successor that did not expect this endpoint would take it for gone.
            self._owner.endpoint_attached(hello)
            self.send(link, frames.frame(frames.WELCOME, wire.encode(wire.Welcome(self.node, self.incarnation))))
            self.relay.endpoint_attached(hello.endpoint, link)
            self.manager_links.endpoint_attached(hello.endpoint)
        elif hello.slot is not None:
            link.slot = hello.slot
            former = self.managers.get(hello.slot)
            self.managers[hello.slot] = link
            if former is not None:
                self.disconnect(former)
            self.manager_links.attached(hello.slot, link)
        else:
            link.node = hello.node
            if kind == frames.HELLO:
                mine = wire.Hello(self.namespace, self.node, 0, os.getpid(), self.incarnation)
                self.send(link, frames.frame(frames.WELCOME, wire.encode(mine)))
            former_peer = self.relay.peers.get(hello.node)
            self.relay.peer_attached(hello.node, link)
            if isinstance(former_peer, HubLink) and former_peer is not link:
                self.disconnect(former_peer)
            self._owner.peer_attached(hello.node)
        self._flush_relay()
        return True

    def _reason_to_refuse(self, link: HubLink, hello: wire.Hello) -> errors.EChannelError | None:
        if hello.wire_version != WIRE_VERSION:
            return errors.VersionMismatch(
                f"wire version {hello.wire_version} met version {WIRE_VERSION}: use one version in the whole cluster",
                ours=hello.wire_version, theirs=WIRE_VERSION,
            )  # fmt: skip
        if hello.namespace != self.namespace:
            return errors.NotAuthorised(
                f"this concentrator serves namespace {self.namespace!r}, not {hello.namespace!r}", reason="namespace"
            )
        peer = link.connection.peer
        if hello.endpoint:
            if peer.kind == "tcp":
                return errors.NotAuthorised("endpoints link up by Unix sockets", reason="greeting")
            if hello.endpoint in self.relay.endpoints:
                return errors.NotAuthorised("an endpoint of this number is attached already", reason="greeting")
        elif hello.slot is not None:
            if not self._owner.is_manager(peer, hello.node):
                return errors.NotAuthorised("a manager shows a certificate of managers", reason="other_node")
        elif peer.kind != "tcp" or peer.node not in (hello.node, None) or hello.node == self.node:
            # A mounted certificate may name no node: then its holder is believed (see docs/security.md).
            return errors.NotAuthorised("a concentrator's certificate must be of its node", reason="other_node")
        return None

    def _refuse(self, link: HubLink, error: errors.EChannelError) -> None:
        self.refused[error.facts.get("reason", "version")] += 1
        self.send(link, frames.frame(frames.REFUSED, wire.encode_error(error)))
        self.disconnect(link)

    def disconnect(self, link: HubLink) -> None:
        """Close a link, whichever side ended it, and have all who are concerned know; a second call does nothing."""
        descriptor = link.connection.fileno()
        if self._links.pop(descriptor, None) is None:
            return
        try:
            self._epoll.unregister(descriptor)
        except OSError:
            pass
        link.connection.close()
        link.out.clear()
        link.out_bytes = 0
        if link.hello is None:
            return
        if link.endpoint:
            self.relay.endpoint_gone(link.endpoint)
            self.manager_links.endpoint_gone(link.endpoint)
            self._owner.endpoint_gone(link.endpoint)
        elif link.slot is not None:
            if self.managers.get(link.slot) is link:
                del self.managers[link.slot]
        elif self.relay.peers.get(link.node) is link:
            self.relay.peer_detached(link.node)
            self._owner.peer_detached(link.node)
        self._flush_relay()
