"""How what arrives is taken in: frames read from the links, packs decoded, the protocol told, inboxes filled."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.consumers.trouble import PECULIAR
from echannel_ray.core import frames
from echannel_ray.core.flows import FlowReceiver
from echannel_ray.core.frames import PACK
from echannel_ray.core.framing import Framer
from echannel_ray.core.kinds import IN_SEGMENT, RECORD
from echannel_ray.core.messages import Membership, NodeDrains, StatsWanted
from echannel_ray.core.receiver import Delivered
from echannel_ray.formats.packs import Undecodable, decode_body
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    from echannel_ray.core.mixed_receipts import TargetOf
    from echannel_ray.endpoint.direct_links import DirectLink
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 512 << 10
_LONG_READ_BYTES = 32 << 10
_MAX_UNASKED = 16
_IS_PECULIAR = frames.IS_CHUNK | frames.IS_MIXED
_PACK_FIXED_BYTES = frames.PACK_FIXED.size


class LinkBytes:
    """What one link has brought, the one to the concentrator or a direct one: where it is read into and told apart."""

    __slots__ = ("buffer", "connection", "direct", "framer", "view")

    def __init__(self, connection: Connection, direct: DirectLink | None = None) -> None:
        self.connection = connection
        self.direct = direct
        self.framer = Framer() if direct is None else direct.framer
        self.buffer = bytearray(_BUFFER_BYTES) if direct is None else direct.buffer
        self.view = memoryview(self.buffer)

    def receive(self) -> int | None:
        """Read what there is behind what waits; where the new bytes end, None if there are none, 0 at the end."""
        framer = self.framer
        if framer.needed_bytes > len(self.buffer):
            self.buffer = bytearray(framer.needed_bytes + _BUFFER_BYTES)
            self.view = memoryview(self.buffer)
        have = framer.begin(self.buffer) if framer.rest else 0
        view = self.view[have:] if have else self.view
        received = self.connection.recv_into(view) if self.direct is None else self.direct.receive(view)
        return have + received if received else received


class LinkReader:
    """What comes by the links of one endpoint; `read` is called by the thread that leads, and only by it."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._decode_events, self._decode_event = endpoint.decoding
        self._core = endpoint.core
        self._main: LinkBytes | None = None
        self._sources: dict[int, LinkBytes] = {}  # by descriptor
        self._eager: LinkBytes | None = None  # has more to read, as its last read was a long one
        self._unasked = 0  # how often it has read since it asked whether there is anything else
        self._poll = select.poll()
        self._is_stale = False  # what is polled is to be made anew
        self._listening = -1
        self._taker = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.malformed = 0

    def __del__(self) -> None:
        for descriptor in (self._wake_read, self._wake_write):
            try:
                os.close(descriptor)
            except OSError:
                pass  # the parent of a fork, or interpreter shutdown, has closed it

    def interrupt(self) -> None:
        """Make the thread that waits in `read` return."""
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it has been woken more often than it can have noticed

    @property
    def is_taking(self) -> bool:
        """Whether the calling thread takes in what was read: it must not wait for what has still to be read."""
        return self._taker == threading.get_ident()

    def links_changed(self) -> None:
        """A direct link has come, gone, or filled up; or the link to the concentrator is another."""
        self._is_stale = True
        if self._taker != threading.get_ident():
            self.interrupt()

    def read(self, connection: Connection | None, timeout_seconds: float | None) -> bool:
        """Wait for input (or `interrupt`) and take it in; False at the end of the link to the concentrator.

        Direct links are read also while there is no `connection` to that.
        """
        main = self._main
        if self._is_stale or (main.connection if main is not None else None) is not connection:
            main = self._renew(connection)
        # Under load there is more to read, and asking first would be a system call for nothing. After a short read
        # there is not, and a read that finds nothing costs more (an exception) than asking.
        eager = self._eager
        if eager is not None and len(self._sources) == 1 and self._unasked < _MAX_UNASKED:
            self._unasked += 1
            ready = [eager]
        else:
            self._unasked = 0
            ready = self._wait(0.0 if eager is not None else timeout_seconds)
            if eager is not None and eager not in ready:
                self._eager = None
        goes_on = True
        for source in ready:
            if not self._take(source):
                if source.direct is None:
                    goes_on = False
                else:
                    self._endpoint.direct.end(source.direct)
        if main is not None and main in ready:
            self._endpoint.heard_at = time.monotonic()
        if self._core.has_to_acknowledge:
            with self._endpoint.lock:
                self._core.acknowledge_wanted()
        return goes_on

    def _renew(self, connection: Connection | None) -> LinkBytes | None:
        """Poll what there is now."""
        self._is_stale = False
        self._eager = None
        main = self._main
        if connection is None:
            main = None
        elif main is None or main.connection is not connection:
            main = LinkBytes(connection)
        self._main = main
        known = {source.direct: source for source in self._sources.values()}
        sources = [main] if main is not None else []
        sources += [known.get(link) or LinkBytes(link.connection, link) for link in self._endpoint.direct.all]
        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)
        self._sources = {}
        for source in sources:
            descriptor = source.connection.fileno()
            if descriptor < 0:
                continue  # closed by this side: it will be gone in a moment
            self._sources[descriptor] = source
            is_full = source.direct is not None and source.direct.is_full
            self._poll.register(descriptor, select.POLLIN | select.POLLOUT if is_full else select.POLLIN)
        listener = self._endpoint.direct.listener
        self._listening = -1 if listener is None else listener.fileno()
        if self._listening >= 0:
            self._poll.register(self._listening, select.POLLIN)
        return main

    def _wait(self, timeout_seconds: float | None) -> list[LinkBytes]:
        """The links that have something to read."""
        ready = []
        for descriptor, events in self._poll.poll(
            None if timeout_seconds is None else max(0.0, timeout_seconds) * 1000
        ):
            if descriptor == self._wake_read:
                try:
                    os.read(self._wake_read, 4096)
                except BlockingIOError:
                    pass
            elif descriptor == self._listening:
                self._endpoint.direct.accept()
            elif (source := self._sources.get(descriptor)) is not None:
                if events & select.POLLOUT and source.direct is not None:
                    source.direct.is_full = False
                    self._is_stale = True
                    source.direct.write()
                if events & ~select.POLLOUT:
                    ready.append(source)
        return ready

    def _take(self, source: LinkBytes) -> bool:
        """Read from a link, and take in what has come; False at its end."""
        direct = source.direct
        try:
            end = source.receive()
            if end is None:
                self._eager = None
                return True
            if not end:
                return False
            self._eager = source if end >= _LONG_READ_BYTES else None
            if direct is not None:
                direct.is_used = True
            self._taker = threading.get_ident()
            view = source.view
            for kind, flags, start, stop in source.framer.frames(source.buffer, end):
                if kind == PACK and (direct is None or direct.endpoint):
                    self._pack(view, flags, start, stop)
                elif direct is None:
                    self._frame(kind, flags, view[start:stop])
                elif not self._direct_frame(direct, kind, flags, view[start:stop]):
                    logger.warning("a direct link brought what may not come so, a frame of type %d: it ends", kind)
                    self.malformed += 1
                    return False
        except errors.Closed:
            return False
        except frames.MalformedFrame as error:
            self.malformed += 1
            logger.warning("a link brought what is no frame (%s): it is made again", error)
            return False
        finally:
            self._taker = 0
        return True

    def _direct_frame(self, link: DirectLink, kind: int, flags: int, body: memoryview) -> bool:
        endpoint = self._endpoint
        if not link.endpoint:
            return kind == frames.HELLO and endpoint.direct.greeted(link, bytes(body))
        if kind >= frames.ARENA:
            endpoint.exchange.frame(link, kind, body)
            return True
        if kind in (frames.CALL, frames.RETURNED):
            self._frame(kind, flags, body)
            return True
        with endpoint.lock:
            began = time.monotonic()
            is_legal = self._core.direct_frame(link.endpoint, kind, flags, body, began)
            if self._core.instructions or self._core.departed:
                endpoint.outgoing.sent(began)
        return is_legal

    def _read_to_the_end(self, endpoint: int) -> None:
        """A process of this node is gone: what it has said before that counts."""
        link = self._endpoint.direct.of(endpoint)
        source = None if link is None else next((s for s in self._sources.values() if s.direct is link), None)
        if link is None or source is None:
            return
        taker, eager = self._taker, self._eager
        while self._take(source) and self._eager is source:
            pass
        self._taker, self._eager = taker, eager
        self._endpoint.direct.end(link)

    # ---- packs ----

    def _pack(self, view: memoryview, flags: int, start: int, stop: int) -> None:
        core = self._core
        flow = core.next_pack(view, start)
        if flow is None:
            return
        received_before = flow.received
        data = view[start + _PACK_FIXED_BYTES : stop]
        try:
            if flags & _IS_PECULIAR:
                if flags & frames.IS_CHUNK:
                    self._chunk(flow, data)
                else:
                    self._mixed_pack(flow, received_before, data)
                return
            pack = decode_body(data)
            size_bytes = len(data)
            if pack.kinds and max(pack.kinds) >= IN_SEGMENT:
                size_bytes += self._endpoint.exchange.borrowed.open(flow.endpoint, pack)
            pack.events = self._decode_events(pack)
            endpoint = self._endpoint
            if pack.kinds and not PECULIAR.isdisjoint(map(type, pack.events)):
                endpoint.peculiar_seen = True
            with endpoint.lock:
                if flow.received != received_before:
                    return  # decoding gave way to another thread, which has read on
                self._offer(core.pack_received(flow, pack, size_bytes))
        except Exception as error:  # whatever is wrong with it concerns this sender alone, not who reads
            self.malformed += 1
            logger.error("a pack from endpoint %016x is malformed and was skipped: %r", flow.endpoint, error)
            core.pack_unreadable(flow, received_before, len(data))

    def _offer(self, delivered: list[Delivered]) -> None:
        endpoint = self._endpoint
        for each in delivered:
            inbox = endpoint.inboxes.get(each.source.subscription)
            if inbox is not None:
                inbox.offer(each)
            elif each.delivery:  # it is being closed
                self._core.release(each.source, each.delivery)

    def _mixed_pack(self, flow: FlowReceiver, received_before: int, data: memoryview) -> None:
        from echannel_ray.formats.mixed_packs import decode_mixed

        pack = decode_mixed(data)
        endpoint = self._endpoint
        target_of: TargetOf | None = endpoint.mixed.target_of
        if pack.kinds:
            pack.events = self._decode_events(pack)
            if not PECULIAR.isdisjoint(map(type, pack.events)):
                endpoint.peculiar_seen = True
                target_of = None
        with endpoint.lock:
            if flow.received != received_before:
                return  # decoding gave way to another thread, which has read on
            delivered, arrival = self._core.receiver.mixed.received(
                flow, pack, pack.mixture, pack.control, len(data), target_of
            )
            self._offer(delivered)
            if arrival is not None:
                endpoint.mixed.put(arrival)

    def _chunk(self, flow: FlowReceiver, data: memoryview) -> None:
        endpoint = self._endpoint
        with endpoint.lock:
            taken = self._core.chunk_received(flow, data)
        if taken is None:
            return
        delivered, kind, assembled = taken
        try:
            # Into what a record is decoded depends on who reads it.
            event = assembled if kind == RECORD else self._decode_event(kind, assembled)
        except Exception as error:  # a class's own code runs here; its trouble concerns this event alone
            event = Undecodable(error, None)
            endpoint.peculiar_seen = True
        with endpoint.lock:
            for each in delivered:
                inbox = endpoint.inboxes.get(each.source.subscription)
                if inbox is not None:
                    # Chunks carry no time; this one is late by the event's own transfer.
                    is_gap = bool(each.gap_last)
                    inbox.offer(each if is_gap else each._replace(events=[event], published_at=time.time()))
                elif each.delivery:
                    self._core.release(each.source, each.delivery)

    # ---- everything else ----

    def _frame(self, kind: int, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        try:
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, flags, body)
                return
            if kind == frames.GONE and endpoint.direct.all:
                self._read_to_the_end(frames.NUMBER.unpack(body)[0])
            with endpoint.lock:
                began = time.monotonic()
                self._core.frame(kind, flags, body, began)
                if self._core.instructions or self._core.departed:
                    endpoint.outgoing.sent(began)
        except Exception:
            # Relays pass on what they can't judge; the link has not lost its place, so the next frame is read.
            self.malformed += 1
            logger.exception("a frame of type %d makes no sense and was skipped", kind)

    def _refused(self, flags: int, body: memoryview) -> None:
        try:
            wire.decode(body)
        except errors.EChannelError as error:
            self._endpoint.dismissed = error

    def _call(self, flags: int, body: memoryview) -> None:
        self._endpoint.calls.arrived(body)

    def _returned(self, flags: int, body: memoryview) -> None:
        self._endpoint.calls.returned(flags, body)

    def _reply(self, flags: int, body: memoryview) -> None:
        self._endpoint.calls.replied(body)

    def _push(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        (number,) = frames.REQUEST_ID.unpack_from(body)
        message: Any = wire.decode(body[frames.REQUEST_ID.size :])
        answer: object = None
        with endpoint.lock:
            if isinstance(message, Membership):
                answer = endpoint.installer.pushed(message, number)
                if answer is None:
                    return
            elif isinstance(message, StatsWanted):
                answer = endpoint.stats_of(message.channel)
            elif isinstance(message, NodeDrains):
                endpoint.leave_node(message.seconds)
                answer = True
            reply = frames.REQUEST_ID.pack(number) + wire.encode(answer)
            endpoint.outgoing.put(frames.frame(frames.PUSHED, reply))


# What is not for the core. These take the endpoint's lock themselves, for as long as they need it.
_HANDLERS = {
    frames.REFUSED: LinkReader._refused,
    frames.CALL: LinkReader._call,
    frames.RETURNED: LinkReader._returned,
    frames.REPLY: LinkReader._reply,
    frames.PUSH: LinkReader._push,
}
