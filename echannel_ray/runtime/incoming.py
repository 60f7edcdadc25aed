"""How what arrives is taken in: frames read from the link, packs decoded, the protocol told, mailboxes filled."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.core.flows import FlowReceiver
from echannel_ray.core.frames import HEADER_BYTES, LEAST_BODY, MAGIC, MAX_FRAME_BYTES, PACK
from echannel_ray.core.messages import Membership, NodeDrains, StatsWanted
from echannel_ray.formats.events import RECORD
from echannel_ray.formats.packs import MalformedPack, Undecodable, decode_body
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.mailbox import PECULIAR
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 512 << 10
_LONG_READ_BYTES = 32 << 10


class Incoming:
    """One per endpoint; `read` is called by the thread that leads, and only by it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._decode_events, self._decode_event = endpoint.decoding
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._expects_more = False
        self._poll = select.poll()
        self._polled = -1
        self._taker = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.POLLIN)
        self.malformed = 0
        self.packs_received = 0

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
        """The link is a new one."""
        self._have = 0
        self._taker = 0
        self._expects_more = False

    def read(self, connection: Connection, timeout_seconds: float | None) -> bool:
        """Wait for input (or `interrupt`) and take it in; False at the end of the link."""
        have = self._have
        try:
            # Under load there is more to read, and asking first would be a system call for nothing. After a short read
            # there is not, and a read that finds nothing costs more (an exception) than asking.
            if not self._expects_more and not self._wait(connection, timeout_seconds):
                return True
            received = connection.recv_into(self._view[have:] if have else self._view)
            if received is None:
                self._expects_more = False
                return True
            if not received:
                return False
            self._expects_more = received >= _LONG_READ_BYTES
            end = have + received
            self._taker = threading.get_ident()
            position = self._take(end)
            self._taker = 0
        except errors.Closed:
            return False
        except frames.MalformedFrame as error:
            self.malformed += 1
            logger.warning("the concentrator sent what is no frame (%s): linking up again", error)
            return False
        self._have = end - position
        if position and self._have:
            self._buffer[: self._have] = self._buffer[position:end]
        self._endpoint.heard_at = time.monotonic()
        self._acknowledge_wanted()
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

    def _take(self, end: int) -> int:
        buffer = self._buffer
        unpack = frames.HEADER.unpack_from
        position = 0
        while end - position >= HEADER_BYTES:
            length, kind, flags, magic = unpack(buffer, position)
            if magic != MAGIC or length > MAX_FRAME_BYTES or length < LEAST_BODY[kind]:
                frames.check_header(length, kind, magic)
            body = position + HEADER_BYTES
            following = body + length
            if following > end:
                if HEADER_BYTES + length > len(buffer):
                    self._grow(position, end, HEADER_BYTES + length)
                    return 0 if position == 0 else position
                break
            if kind == PACK:
                self._pack(flags, body, following)
            else:
                self._frame(kind, flags, self._view[body:following])
            position = following
        return position

    def _grow(self, position: int, end: int, needed: int) -> None:
        bigger = bytearray(needed + _BUFFER_BYTES)
        bigger[position:end] = self._buffer[position:end]
        self._buffer = bigger
        self._view = memoryview(bigger)

    # ---- packs ----

    def _pack(self, flags: int, body: int, end: int) -> None:
        endpoint = self._endpoint
        view = self._view
        key = bytes(view[body : body + 12])
        (number,) = frames.NUMBER.unpack_from(self._buffer, body + 12)
        flow = endpoint.receiver.flows.get(key)
        if flow is None:
            with endpoint.lock:
                endpoint.outgoing.put(frames.frame(frames.UNKNOWN_FLOW, key))
            return
        if number != flow.received + 1:
            flow.is_next(number)
            flow.ack_wanted = True
            return
        self.packs_received += 1
        data = view[body + frames.PACK_FIXED.size : end]
        try:
            if flags & frames.IS_CHUNK:
                self._chunk(flow, number, data)
                return
            pack = decode_body(data)
            pack.events = self._decode_events(pack)
            if pack.kinds and not PECULIAR.isdisjoint(map(type, pack.events)):
                endpoint.peculiar_seen = True
            with endpoint.lock:
                delivered = endpoint.receiver.pack_received(flow, number, pack, len(data))
                if delivered:
                    for each in delivered:
                        mailbox = endpoint.mailboxes.get(each.reception.subscription)
                        if mailbox is not None:
                            mailbox.offer(each)
        except Exception as error:  # whatever is wrong with it concerns this sender alone, not who reads
            self._skip(flow, number, len(data), error)

    def _skip(self, flow: FlowReceiver, number: int, size_bytes: int, error: Exception) -> None:
        # Sent again it would be no better: to wait for it would stop the flow for good.
        self.malformed += 1
        logger.error("a pack from endpoint %016x is malformed and was skipped: %r", flow.endpoint, error)
        if flow.received < number:
            flow.skipped(size_bytes)

    def _chunk(self, flow: FlowReceiver, number: int, data: memoryview) -> None:
        endpoint = self._endpoint
        if len(data) < frames.CHUNK_FIXED.size:
            raise MalformedPack("a chunk is shorter than its head")
        fixed = frames.CHUNK_FIXED.unpack_from(data)
        with endpoint.lock:
            taken = endpoint.receiver.chunk_received(flow, number, fixed, data[frames.CHUNK_FIXED.size :])
        if taken is None:
            return
        delivered, assembled = taken
        kind = fixed[3]
        try:
            # Into what a record is decoded depends on who reads it.
            event = assembled if kind == RECORD else self._decode_event(kind, assembled)
        except Exception as error:  # a class's own code runs here; its trouble concerns this event alone
            event = Undecodable(error, None)
            endpoint.peculiar_seen = True
        with endpoint.lock:
            for each in delivered:
                mailbox = endpoint.mailboxes.get(each.reception.subscription)
                if mailbox is not None:
                    # Chunks carry no time; this one is late by the event's own transfer.
                    is_gap = bool(each.gap_last)
                    mailbox.offer(each if is_gap else each._replace(events=[event], published_at=time.time()))

    # ---- acknowledgements ----

    def _acknowledge_wanted(self) -> None:
        endpoint = self._endpoint
        for flow in endpoint.receiver.flows.values():
            if flow.ack_wanted:
                with endpoint.lock:
                    self._acknowledge(flow)

    def acknowledge(self) -> bool:
        """Acknowledge what has arrived since the last time; under the lock. Whether there was anything."""
        there_was = False
        for flow in self._endpoint.receiver.flows.values():
            if flow.unacked_bytes:
                self._acknowledge(flow)
                there_was = True
        return there_was

    def _acknowledge(self, flow: FlowReceiver) -> None:
        endpoint = self._endpoint
        endpoint.outgoing.put(frames.ack(flow.endpoint, flow.flow, flow.acknowledge(), endpoint.node))

    # ---- everything else ----

    def _frame(self, kind: int, flags: int, body: memoryview) -> None:
        handler = _HANDLERS.get(kind)
        if handler is None:
            return
        try:
            if kind in _UNLOCKED:
                handler(self, flags, body)
                return
            with self._endpoint.lock:
                handler(self, flags, body)
        except (
            Exception
        ):  # relays pass on what they can't judge; the link has not lost its place, so the next frame is read
            self.malformed += 1
            logger.exception("a frame of type %d makes no sense and was skipped", kind)

    def _on_heartbeat(self, flags: int, body: memoryview) -> None:
        self._endpoint.outgoing.put(frames.frame(frames.HEARTBEAT))

    def _on_refused(self, flags: int, body: memoryview) -> None:
        try:
            wire.decode(body)
        except errors.EChannelError as error:
            self._endpoint.dismissed = error

    def _on_flow(self, flags: int, body: memoryview) -> None:
        declared = frames.parse_flow(body)
        key = frames.KEY.pack(declared.endpoint, declared.flow)
        self._endpoint.receiver.flow_declared(key, declared.node, declared.endpoint, declared.flow)

    def _on_flow_ended(self, flags: int, body: memoryview) -> None:
        self._endpoint.receiver.flow_ended(bytes(body))

    def _on_unknown_flow(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        owner, number = frames.KEY.unpack(body)
        flow = endpoint.sender.flows.get(number) if owner == endpoint.id else None
        if flow is not None:
            endpoint.outgoing.put(frames.flow_declaration(endpoint.id, number, endpoint.node, flow.destinations))
            for node in flow.nodes_to_probe(time.monotonic(), at_once=True):
                endpoint.outgoing.put(frames.probe(endpoint.id, number, flow.last_sent, node))
        elif owner == endpoint.id:
            endpoint.outgoing.put(frames.frame(frames.FLOW_ENDED, body))

    def _on_probe(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        owner, number, probed, _ = frames.PACK_FIXED.unpack(body)
        key = bytes(body[:12])
        flow = endpoint.receiver.flows.get(key)
        if flow is None:
            endpoint.outgoing.put(frames.frame(frames.UNKNOWN_FLOW, key))
            return
        self._acknowledge(flow)
        fixed = frames.ANSWER_FIXED.pack(flow.node, owner, number, endpoint.node, endpoint.id, flow.received, probed)
        endpoint.outgoing.put(frames.frame(frames.ANSWER, fixed))

    def _on_ack(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        _, number, acknowledged, node = frames.ACK_FIXED.unpack(body)
        flow = endpoint.sender.flows.get(number)
        if flow is not None:
            flow.acknowledged(node, acknowledged, time.monotonic())
            endpoint.outgoing.pump(flow)
            if endpoint.draining:
                endpoint.room.notify_all()

    def _on_answer(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        _, _, number, node, _, received, probed = frames.ANSWER_FIXED.unpack(body)
        flow = endpoint.sender.flows.get(number)
        if flow is not None:
            lost = flow.answered(node, received, probed)
            if lost:
                endpoint.outgoing.resend(flow, node, lost)

    def _on_credit(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        _, _, number, consumer, subscription, mark = frames.CREDIT_FIXED.unpack(body)
        stream = endpoint.sender.streams.get(number)
        if stream is not None:
            if flags & frames.IS_FINAL:
                endpoint.flush_all()  # the stream may change its route
            limit = stream.limit_bytes
            endpoint.sender.credited(stream, consumer, subscription, mark, bool(flags & frames.IS_FINAL))
            if stream.limit_bytes < 0:
                endpoint.flush_all()
            branch = endpoint.queueing.get(number)
            if branch is not None and branch.host is not None:
                endpoint.crew.submit(Errand(branch.host.pump))
            # Of many consumers only the slowest one's report lets the publisher go on: the others need not wake it.
            has_moved = stream.limit_bytes != limit or limit < 0
            if has_moved and (endpoint.blocked_publishers or endpoint.draining):
                endpoint.room.notify_all()

    def _on_credit_wanted(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        _, _, node, producer, number, subscription, mark = frames.CREDIT_WANTED_FIXED.unpack_from(body)
        answer = endpoint.receiver.credit_wanted(producer, number, subscription, mark)
        if answer is not None:
            handled, final = answer
            fixed = frames.CREDIT_FIXED.pack(node, producer, number, endpoint.id, subscription, handled)
            endpoint.outgoing.put(frames.frame(frames.CREDIT, fixed, frames.IS_FINAL if final else 0))

    def _on_result(self, flags: int, body: memoryview) -> None:
        _, _, number, consumer, subscription = frames.RESULT_FIXED.unpack_from(body)
        delivery = self._endpoint.deliveries.get(number)
        if delivery is not None:
            delivery.remote_result(consumer, subscription, bytes(body[frames.RESULT_FIXED.size :]))

    def _on_result_wanted(self, flags: int, body: memoryview) -> None:
        _, _, delivery, node, producer, subscription = frames.RESULT_WANTED_FIXED.unpack_from(body)
        self._endpoint.result_wanted(delivery, node, producer, subscription)

    def _on_call(self, flags: int, body: memoryview) -> None:
        self._endpoint.calls.arrived(body)

    def _on_returned(self, flags: int, body: memoryview) -> None:
        self._endpoint.calls.returned(flags, body)

    def _on_gone(self, flags: int, body: memoryview) -> None:
        self._endpoint.endpoint_gone(frames.NUMBER.unpack(body)[0])

    def _on_path_restored(self, flags: int, body: memoryview) -> None:
        (node,) = frames.NUMBER.unpack(body)
        self._endpoint.probe_all(node)
        self._endpoint.calls.repeat(node)

    def _on_reply(self, flags: int, body: memoryview) -> None:
        (number,) = frames.REQUEST_ID.unpack_from(body)
        self._endpoint.requests.answered(number, bytes(body[frames.REQUEST_ID.size :]))

    def _on_push(self, flags: int, body: memoryview) -> None:
        endpoint = self._endpoint
        (number,) = frames.REQUEST_ID.unpack_from(body)
        message: Any = wire.decode(body[frames.REQUEST_ID.size :])
        answer: object = None
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


_HANDLERS = {
    frames.HEARTBEAT: Incoming._on_heartbeat,
    frames.REFUSED: Incoming._on_refused,
    frames.FLOW: Incoming._on_flow,
    frames.FLOW_ENDED: Incoming._on_flow_ended,
    frames.UNKNOWN_FLOW: Incoming._on_unknown_flow,
    frames.PROBE: Incoming._on_probe,
    frames.ACK: Incoming._on_ack,
    frames.ANSWER: Incoming._on_answer,
    frames.CREDIT: Incoming._on_credit,
    frames.CREDIT_WANTED: Incoming._on_credit_wanted,
    frames.RESULT: Incoming._on_result,
    frames.RESULT_WANTED: Incoming._on_result_wanted,
    frames.CALL: Incoming._on_call,
    frames.RETURNED: Incoming._on_returned,
    frames.GONE: Incoming._on_gone,
    frames.PATH_RESTORED: Incoming._on_path_restored,
    frames.REPLY: Incoming._on_reply,
    frames.PUSH: Incoming._on_push,
}
# Their handlers take the lock themselves, for as long as they need it.
_UNLOCKED = frozenset({frames.CALL, frames.RETURNED})
