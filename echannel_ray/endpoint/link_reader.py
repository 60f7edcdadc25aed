"""How what arrives is taken in: frames read from the link, packs decoded, the protocol told, inboxes filled."""

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
from echannel_ray.core.kinds import RECORD
from echannel_ray.core.messages import Membership, NodeDrains, StatsWanted
from echannel_ray.core.receiver import Delivered
from echannel_ray.formats.packs import Undecodable, decode_body
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    from echannel_ray.core.mixed_receipts import TargetOf
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 512 << 10
_LONG_READ_BYTES = 32 << 10
_IS_PECULIAR = frames.IS_CHUNK | frames.IS_MIXED
_PACK_FIXED_BYTES = frames.PACK_FIXED.size


class LinkReader:
    """What comes by the link of one endpoint; `read` is called by the thread that leads, and only by it."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._decode_events, self._decode_event = endpoint.decoding
        self._core = endpoint.core
        self._framer = Framer()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._expects_more = False
        self._poll = select.poll()
        self._polled = -1
        self._taker = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)
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

    def restart(self) -> None:
        """Begin with a new link."""
        self._framer = Framer()
        self._taker = 0
        self._expects_more = False

    def read(self, connection: Connection, timeout_seconds: float | None) -> bool:
        """Wait for input (or `interrupt`) and take it in; False at the end of the link."""
        try:
            # Under load there is more to read, and asking first would be a system call for nothing. After a short read
            # there is not, and a read that finds nothing costs more (an exception) than asking.
            if not self._expects_more and not self._wait(connection, timeout_seconds):
                return True
            if self._framer.needed_bytes > len(self._buffer):
                self._buffer = bytearray(self._framer.needed_bytes + _BUFFER_BYTES)
                self._view = memoryview(self._buffer)
            have = self._framer.begin(self._buffer) if self._framer.rest else 0
            received = connection.recv_into(self._view[have:] if have else self._view)
            if received is None:
                self._expects_more = False
                return True
            if not received:
                return False
            self._expects_more = received >= _LONG_READ_BYTES
            self._taker = threading.get_ident()
            for kind, flags, start, stop in self._framer.frames(self._buffer, have + received):
                if kind == PACK:
                    self._pack(flags, start, stop)
                else:
                    self._frame(kind, flags, self._view[start:stop])
            self._taker = 0
        except errors.Closed:
            return False
        except frames.MalformedFrame as error:
            self.malformed += 1
            logger.warning("the concentrator sent what is no frame (%s): linking up again", error)
            return False
        endpoint = self._endpoint
        endpoint.heard_at = time.monotonic()
        if self._core.to_acknowledge:
            with endpoint.lock:
                self._core.acknowledge_wanted()
        return True

    def _wait(self, connection: Connection, timeout_seconds: float | None) -> bool:
        descriptor = connection.fileno()
        if descriptor != self._polled:
            if self._polled >= 0:
                try:
                    self._poll.unregister(self._polled)
                except KeyError:
                    pass
            self._poll.register(descriptor, select.POLLIN)
            self._polled = descriptor
        ready = self._poll.poll(None if timeout_seconds is None else max(0.0, timeout_seconds) * 1000)
        readable = False
        for each, _ in ready:
            if each == self._wake_read:
                try:
                    os.read(self._wake_read, 4096)
                except BlockingIOError:
                    pass
            else:
                readable = True
        return readable

    # ---- packs ----

    def _pack(self, flags: int, start: int, stop: int) -> None:
        core = self._core
        flow = core.next_pack(self._view, start)
        if flow is None:
            return
        received_before = flow.received
        data = self._view[start + _PACK_FIXED_BYTES : stop]
        try:
            if flags & _IS_PECULIAR:
                if flags & frames.IS_CHUNK:
                    self._chunk(flow, data)
                else:
                    self._mixed_pack(flow, received_before, data)
                return
            pack = decode_body(data)
            pack.events = self._decode_events(pack)
            endpoint = self._endpoint
            if pack.kinds and not PECULIAR.isdisjoint(map(type, pack.events)):
                endpoint.peculiar_seen = True
            with endpoint.lock:
                if flow.received != received_before:
                    return  # decoding gave way to another thread, which has read on
                self._offer(core.pack_received(flow, pack, len(data)))
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
