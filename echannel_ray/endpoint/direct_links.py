"""The direct links of one process: to others of its node that it sends much to, past the concentrator.

Each process listens at a socket of its own, beside the concentrator's and as private. Who sends much to another one
(the core says to whom) links up there and says who it is. Either side may end a link at any time, and does when nothing
has come or gone by it for a while: what was in it is sent again by way of the concentrator.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from echannel_ray import errors
from echannel_ray.compilation import mypyc_attr
from echannel_ray.core import frames
from echannel_ray.core.frames import MAX_GREETING_BYTES, Buffer
from echannel_ray.core.framing import Framer
from echannel_ray.transport import wire
from echannel_ray.transport.connection import PlainConnection
from echannel_ray.transport.unix import UnixListener, connect_unix, endpoint_socket

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.transport.memory_files import MemoryFile

logger = logging.getLogger(__name__)

# A descriptor each, and a buffer; a process that sends to more of its node has the concentrator do it.
MAX_DIRECT_LINKS = 16
# One that was idle for so long may give its place to another; after the second time it ends in any case.
IDLE_SECONDS = 10.0
MOST_IDLE_SECONDS = 60.0
# After a link has ended, or could not be had.
_AGAIN_SECONDS = 2.0
_CONNECT_SECONDS = 0.05
_MAX_PARTS = 256
# Of frames with descriptors, of which the rest has not come.
_MAX_HANDED_OVER = 2
_BUFFER_BYTES = 256 << 10


@mypyc_attr(native_class=False)
class HandedOver(bytes):
    """A frame beside which memory is handed over."""

    files: Sequence[MemoryFile]


class DirectLink:
    """One end of a link to another process of the node."""

    __slots__ = (
        "buffer",
        "connection",
        "endpoint",
        "framer",
        "idle_since",
        "is_full",
        "is_ours",
        "is_used",
        "lock",
        "out",
        "received",
    )

    def __init__(self, connection: PlainConnection, now: float, endpoint: int = 0) -> None:
        """`endpoint` is who is there: known where it is we who link up, else said by the first frame."""
        connection.setblocking(False)
        self.connection = connection
        self.endpoint = endpoint
        self.is_ours = bool(endpoint)
        self.out: deque[Buffer] = deque()
        self.lock = threading.Lock()
        self.is_full = False  # it takes no more for now: the reading thread is told when it does
        self.is_used = True  # since somebody looked
        self.idle_since = now
        self.framer = Framer(frames.MAX_FRAME_BYTES if endpoint else MAX_GREETING_BYTES)
        self.buffer = bytearray(_BUFFER_BYTES)
        self.received: deque[list[int]] = deque()  # descriptors that have come, and are to be taken with their frames

    def receive(self, view: memoryview) -> int | None:
        """Do as `recv_into` of the connection, and keep the descriptors that came."""
        received, descriptors = self.connection.recv_with(view)
        if descriptors is not None:
            if len(self.received) >= _MAX_HANDED_OVER:
                raise frames.MalformedFrame("descriptors come without their frames")
            self.received.append(descriptors)
        return received

    def close(self) -> None:
        """End it."""
        self.connection.close()
        self.out.clear()
        while self.received:
            for descriptor in self.received.popleft():
                os.close(descriptor)

    def write(self) -> int:
        """Write what there is and what the socket takes, unless another thread is at it: that one takes ours too. How
        many parts it were.

        It never waits: a process that is stopped reads nothing, and must hold up nobody else.
        """
        written = 0
        while self.out and not self.is_full:
            if not self.lock.acquire(blocking=False):
                break
            try:
                written += self._write()
            except (ConnectionError, errors.Closed):
                self.out.clear()  # its end is read, and everything follows from that
            finally:
                self.lock.release()
        return written

    def _write(self) -> int:
        out = self.out
        parts: list[Buffer] = []
        while out and len(parts) < _MAX_PARTS:
            try:
                part = out.popleft()
            except IndexError:
                break  # cleared meanwhile
            if type(part) is HandedOver:  # by itself: descriptors belong to the bytes that they are sent with
                if not parts:
                    return self._hand_over(part)
                out.appendleft(part)
                break
            parts.append(part)
        taken = self.connection.send(parts)
        self.is_used = True
        for i, part in enumerate(parts):
            if taken < len(part):
                out.extendleft(reversed([memoryview(part)[taken:], *parts[i + 1 :]]))
                self.is_full = True
                return i
            taken -= len(part)
        return len(parts)

    def _hand_over(self, part: HandedOver) -> int:
        descriptors = [file.descriptor for file in part.files]
        taken = self.connection.send_with(part, [] if -1 in descriptors else descriptors)
        self.is_full = taken < len(part)
        if self.is_full:
            self.out.appendleft(memoryview(part)[taken:] if taken else part)
        return int(not self.is_full)


class DirectLinks:
    """All direct links of one endpoint. What changes them takes the endpoint's lock."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self.listener: UnixListener | None = None
        # Also those whose other side has not said yet who it is. Never changed, but replaced: threads walk through it.
        self.all: tuple[DirectLink, ...] = ()
        self._not_before: dict[int, float] = {}  # endpoints, and when they may be tried again
        self._due_look = 0.0
        self._directory = ""

    def listen(self, directory: str) -> None:
        """Let others of the node link up, at a socket in this directory; without one where that can't be."""
        if self.listener is not None and self._directory == directory:
            return
        former, self.listener, self._directory = self.listener, None, directory
        if former is not None:
            former.close()
        try:
            self.listener = UnixListener(endpoint_socket(directory, self._endpoint.id))
        except OSError as error:
            logger.info("no direct links to this process: %s", error)
        self._endpoint.incoming.links_changed()

    # ---- beginning ----

    def open(self, wanted: Iterable[int]) -> None:
        """Link up to these endpoints of the node, as far as that can be."""
        now = time.monotonic()
        for endpoint in wanted:
            if now < self._not_before.get(endpoint, 0.0) or not self._has_place(now):
                continue
            self._not_before[endpoint] = now + _AGAIN_SECONDS
            try:
                connection = connect_unix(endpoint_socket(self._directory, endpoint), _CONNECT_SECONDS)
            except (OSError, errors.NotAuthorised) as error:
                logger.debug("no direct link to endpoint %016x: %s", endpoint, error)
                continue
            link = DirectLink(connection, now, endpoint)
            mine = self._endpoint
            hello = wire.Hello(mine.namespace, mine.node, mine.id, os.getpid())
            link.out.append(frames.frame(frames.HELLO, wire.encode(hello)))
            self._begin(link, now)
            link.write()

    def _has_place(self, now: float) -> bool:
        if len(self.all) < MAX_DIRECT_LINKS:
            return True
        idle = min(self.all, key=lambda link: link.idle_since)
        if idle.is_used or now - idle.idle_since < IDLE_SECONDS:
            return False
        self.end(idle)
        return True

    def _begin(self, link: DirectLink, now: float) -> None:
        mine = self._endpoint
        with mine.lock:
            if mine.closed:
                link.connection.close()
                return
            former = [each for each in self.all if each.endpoint == link.endpoint and each is not link]
            self.all = (*(each for each in self.all if each not in former and each is not link), link)
            mine.core.ways.linked(link.endpoint, link.out, now)
            if former:
                mine.calls.direct_link_ended(link.endpoint)
        for each in former:
            each.close()
        mine.exchange.linked(link)
        mine.incoming.links_changed()

    def accept(self) -> None:
        """Take in who has linked up; the reading thread calls this."""
        now = time.monotonic()
        listener = self.listener
        while listener is not None and (connection := listener.accept()) is not None:
            if self._has_place(now):
                self.all = (*self.all, DirectLink(connection, now))
                self._endpoint.incoming.links_changed()
            else:
                connection.close()

    def greeted(self, link: DirectLink, body: bytes) -> bool:
        """The first frame of a link that others have begun says who they are; False where it must not go on."""
        try:
            hello = wire.decode(body)
        except wire.MalformedMessage:
            return False
        mine = self._endpoint
        if not isinstance(hello, wire.Hello) or hello.namespace != mine.namespace or hello.node != mine.node:
            return False
        # Both may have begun at once: they agree on which of the two links stays.
        if any(each.endpoint == hello.endpoint and each.is_ours for each in self.all) and mine.id < hello.endpoint:
            return False
        link.endpoint = hello.endpoint
        link.framer.max_bytes = frames.MAX_FRAME_BYTES
        self._begin(link, time.monotonic())
        return True

    # ---- ending ----

    def end(self, link: DirectLink) -> None:
        """A link ends, whoever has ended it: what it had is sent again another way. A second call does nothing."""
        mine = self._endpoint
        now = time.monotonic()
        with mine.lock:
            if link not in self.all:
                return
            self.all = tuple(each for each in self.all if each is not link)
            self._not_before[link.endpoint] = now + _AGAIN_SECONDS
            mine.core.ways.lost(link.endpoint, now)
            mine.calls.direct_link_ended(link.endpoint)
            mine.carry_out()
        link.close()
        mine.exchange.path_lost(link.endpoint)
        mine.incoming.links_changed()
        mine.outgoing.write()

    def tick(self, now: float) -> None:
        """Open what the core wants, and end what nobody has used for long."""
        ways = self._endpoint.core.ways
        if ways.wanted:
            with self._endpoint.lock:
                wanted = [*ways.wanted]
                ways.wanted.clear()
            if self._directory:
                self.open(wanted)
        if now < self._due_look:
            return
        self._due_look = now + IDLE_SECONDS
        self._not_before = {each: when for each, when in self._not_before.items() if when > now}
        for link in self.all:
            if link.is_used:
                link.is_used, link.idle_since = False, now
            elif now - link.idle_since >= MOST_IDLE_SECONDS:
                self.end(link)

    def of(self, endpoint: int) -> DirectLink | None:
        """The link to an endpoint."""
        return next((link for link in self.all if link.endpoint == endpoint), None)

    def close(self) -> None:
        """End all links, and let nobody link up any more."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.close()
        links, self.all = self.all, ()
        for link in links:
            link.close()

    def forget(self) -> None:
        """In the child of a fork: all of them are the parent's."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.forget()
        links, self.all = self.all, ()
        for link in links:
            link.connection.forget()
