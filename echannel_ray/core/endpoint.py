"""One endpoint's whole protocol: what a process does about what it publishes, what comes in, and the time that passes.

Theory of operation:

* The shell hands in what happens: a link that is there, frames, events to publish, what was handled, memberships,
  ticks. Time comes in as `now`. Nothing here reads a clock, waits, or does I/O.
* What follows for the link lies in `out`, frames in order, for whoever writes. What follows for the process lies in
  `instructions`, in order, for the shell to carry out as soon as the call has returned.
* Packs come in two steps, since events are decoded in between (which may run code of their classes, so the shell holds
  no lock then): `next_pack` says whether one is the next of its flow, `pack_received` takes it in as it was decoded.
* When packs have left, the shell says what that cost (`left`): packing policies want to know.
* With some endpoints of the node there are *direct links* (`ways`). What is for a neighbour alone lies in
  a queue of that link instead of `out`. It may be lost at any time: what it had is asked for again, by way of the
  concentrator.

The endpoint that runs in each process and the one of the simulated networks are this class, and both link to `Relay`s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from echannel_ray.core import credit, frames, large_events
from echannel_ray.core.credit import Reception
from echannel_ray.core.deliveries import RELEASED, Answered, Awaited, Deliveries
from echannel_ray.core.flows import FlowReceiver, FlowSender, SentPack
from echannel_ray.core.frames import CHUNK_BYTES, KEY_BYTES, Buffer
from echannel_ray.core.gather import Gather, PackColumns
from echannel_ray.core.large_events import WaitingPack, WaitingPacks
from echannel_ray.core.messages import Consumer
from echannel_ray.core.packing import Policy
from echannel_ray.core.receiver import Delivered, Receiver
from echannel_ray.core.sender import Sender
from echannel_ray.core.streams import Recipient, Route, SenderStream
from echannel_ray.core.ways import Ways

if TYPE_CHECKING:
    from echannel_ray.core.mixed_receipts import MixedArrival
    from echannel_ray.core.mixtures import Column, Lanes, MixedColumns, Mixture

# What may be under way of one flow: bounds what concentrators hold, and is far above what a link needs to be busy.
FLOW_WINDOW_BYTES = 8 << 20
# Whoever waits for an acknowledgement probes for it. The rest only free memory, and each wakes the sender's process: at
# 2 ms they were a tenth of its CPU with eight consumers.
ACK_SECONDS = 0.02
ACK_BYTES = FLOW_WINDOW_BYTES // 8
# How often it looks whether something is to be probed, or has ended.
LOOK_SECONDS = 0.05
# A report of credit may be lost with a link. Nobody blocks for that of a laggard or of a group's member, so they are
# asked now and then.
ASK_FOR_CREDIT_SECONDS = 0.25
NEVER = float("inf")
_NUMBER_FROM = frames.NUMBER.unpack_from

# columns, bytes of their events, when the first was gathered
Encode = Callable[["PackColumns | MixedColumns", int, float], list[Buffer]]


# ---- instructions --------------------------------------------------------------------------------------------------


class Acknowledged(NamedTuple):
    """A destination has more of a flow than before: who waits for that should look again."""


class Credited(NamedTuple):
    """A recipient of this stream has handled more; `has_moved`: publishers that wait for room should look again."""

    stream: int
    has_moved: bool


class LargeEventLeft(NamedTuple):
    """The last chunk of a large event of this stream has left: what waits behind it may go on."""

    stream: int


class EndpointGone(NamedTuple):
    """Another process has died or left."""

    endpoint: int


class PathRestored(NamedTuple):
    """The way to another node is there again; what was sent before may have been lost."""

    node: int


Instruction = Acknowledged | Credited | LargeEventLeft | EndpointGone | PathRestored | Answered


class EndpointCore:
    """The protocol of one endpoint, without any I/O. Large: a method for each thing that may happen, and each frame."""

    def __init__(
        self,
        node: int,
        endpoint: int,
        encode: Encode,
        *,
        clock_offset_seconds: float = 0.0,
        ack_bytes: int = ACK_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
        flow_window_bytes: int = FLOW_WINDOW_BYTES,
    ) -> None:
        """`encode` makes the body of a pack; the offset leads from the clock of `now` to everybody's."""
        self.node = node
        self.endpoint = endpoint
        self.out: deque[Buffer] = deque()
        self.sender = sender = Sender(node, endpoint, self.out, clock_offset_seconds)
        self.ways = Ways(self)
        self.receiver = Receiver(node, endpoint, ack_bytes)
        self.to_acknowledge = self.receiver.to_acknowledge  # what `acknowledge_wanted` has to do
        # A pack of which `next_pack` gave the flow was decoded: what is to be handed to which subscription.
        self.pack_received = self.receiver.pack_received
        # What needs nothing but the sender, without a call in between.
        self.open_stream, self.close_stream = sender.open_stream, sender.close_stream
        self.cutover_point_of = sender.cutovers.cutover_point_of
        # One event for every recipient, for which the shell has made sure that there is room, or that the policy drops;
        # so many for nobody in another process; so many that a policy has dropped for everybody.
        self.publish_one, self.skip, self.drop_for_all = sender.send_to_all, sender.skip, sender.drop_for_all
        self.deliveries = Deliveries(node, endpoint)
        self.instructions: deque[Instruction] = deque()
        # Of packs that have left, if a policy was asked: the gather, the events, their bytes, what made it due, how
        # long it was gathered.
        self.departed: list[tuple[Gather, int, int, Policy, float]] = []
        self.packs_sent = 0
        self._encode = encode
        self._chunk_bytes = chunk_bytes
        self._flow_window_bytes = flow_window_bytes
        self._waiting: dict[FlowSender, WaitingPacks] = {}  # chunks, until their flow has room
        self._due_acks = 0.0
        self._due_look = 0.0
        self._due_credit = 0.0

    # ---- the link ----

    def linked(self, now: float, greeting: Iterable[Buffer] = ()) -> None:
        """Say over a new link, the first or another, what the other side may not know; behind the greeting."""
        self.out.clear()  # what was to be written with a link that is lost; probes will show what that was
        self.out.extend(greeting)
        self.sender.new_flows.clear()
        for flow in self.sender.flows.values():
            self.declare(flow)
        self.probe(self.sender.flows.values(), now, at_once=True)
        for received in self.receiver.flows.values():
            # A relay that was restarted can't know of them: without this nobody would say when a producer dies.
            me = [(self.node, self.endpoint)]
            self.out.append(frames.flow_declaration(received.endpoint, received.flow, received.node, me))

    def frame(self, kind: int, flags: int, body: memoryview, now: float) -> bool:
        """A frame has come in that is no pack; False where it is not of the protocol that endpoints speak."""
        handle = _HANDLERS.get(kind)
        if handle is None:
            return False
        handle(self, flags, body, now)
        return True

    # ---- direct links ----

    def direct_frame(self, endpoint: int, kind: int, flags: int, body: memoryview, now: float) -> bool:
        """A frame that is no pack has come in by a direct link; False where none such may come so."""
        if kind == frames.FLOW:
            declared = frames.parse_flow(body)
            if declared.endpoint != endpoint:
                return False
            self._flow_declared(flags, body, now)
            flow = self.receiver.flows.get(frames.KEY.pack(endpoint, declared.flow))
            if flow is not None:
                flow.is_direct = True
        elif kind == frames.PROBE:
            self._probed(flags, body, now, self.ways.neighbours.get(endpoint))
        elif kind in _DIRECT_KINDS:
            return self.frame(kind, flags, body, now)
        else:
            return False
        return True

    # ---- what comes in: packs ----

    def next_pack(self, view: memoryview, start: int) -> FlowReceiver | None:
        """A pack has come in, whose body starts there: its flow, where it is the next one of that and is to be
        decoded; else it is dealt with.
        """
        behind = start + KEY_BYTES
        key = bytes(view[start:behind])
        flow = self.receiver.flows.get(key)
        if flow is None:
            self.out.append(frames.frame(frames.UNKNOWN_FLOW, key))
            return None
        (number,) = _NUMBER_FROM(view, behind)
        if number == flow.received + 1 or flow.is_next(number):
            return flow
        self.receiver.to_acknowledge[flow] = None
        return None

    def chunk_received(self, flow: FlowReceiver, data: memoryview) -> tuple[list[Delivered], int, bytes] | None:
        """The next pack of a flow is a chunk: with the last one, who gets the event, its kind, and its bytes.

        The runs have None in the event's place: it is still to be decoded.
        """
        if len(data) < frames.CHUNK_FIXED.size:
            raise ValueError("a chunk is shorter than its head")
        fixed = frames.CHUNK_FIXED.unpack_from(data)
        taken = self.receiver.chunk_received(flow, fixed, data[frames.CHUNK_FIXED.size :])
        return None if taken is None else (taken[0], fixed[3], taken[1])

    def pack_unreadable(self, flow: FlowReceiver, received_before: int, size_bytes: int) -> None:
        """The next pack of a flow can't be read. Sent again it would be no better: to wait for it would stop all."""
        if flow.received == received_before:
            flow.skipped(size_bytes)

    def acknowledge_wanted(self) -> None:
        """What was read is taken in: acknowledge what must not wait for a tick."""
        for flow in self.to_acknowledge:
            self._acknowledge(flow)
        self.to_acknowledge.clear()
        for flow in self.receiver.sent_too_early() if self.receiver.refused_flows else ():
            self._answer(flow, flow.highest, self.ways.to(flow.node, flow.endpoint))

    @property
    def has_to_acknowledge(self) -> bool:
        """Whether `acknowledge_wanted` has something to do."""
        return bool(self.to_acknowledge or self.receiver.refused_flows)

    def _acknowledge(self, flow: FlowReceiver, out: deque[Buffer] | None = None) -> None:
        if out is None:
            # A flow that goes by the concentrator may have other destinations, whose numbers it knows.
            out = self.ways.to(flow.node, flow.endpoint) if flow.is_direct else self.out
        out.append(frames.ack(flow.endpoint, flow.flow, flow.acknowledge(), self.node))

    def _answer(self, flow: FlowReceiver, probed: int, out: deque[Buffer]) -> None:
        fixed = frames.ANSWER_FIXED.pack(
            flow.node, flow.endpoint, flow.flow, self.node, self.endpoint, flow.received, probed
        )
        out.append(frames.frame(frames.ANSWER, fixed))

    # ---- what comes in: everything else ----

    def _heartbeat(self, flags: int, body: memoryview, now: float) -> None:
        self.out.append(frames.frame(frames.HEARTBEAT))

    def _flow_declared(self, flags: int, body: memoryview, now: float) -> None:
        declared = frames.parse_flow(body)
        key = frames.KEY.pack(declared.endpoint, declared.flow)
        self.receiver.flow_declared(key, declared.node, declared.endpoint, declared.flow)
        flow = self.receiver.flows.get(key)
        if flow is not None:
            flow.is_direct = False

    def _flow_ended(self, flags: int, body: memoryview, now: float) -> None:
        self.receiver.flow_ended(bytes(body))

    def _flow_unknown(self, flags: int, body: memoryview, now: float) -> None:
        owner, number = frames.KEY.unpack(body)
        flow = self.sender.flows.get(number) if owner == self.endpoint else None
        if flow is not None:
            self.declare(flow)
            self.probe([flow], now, at_once=True)
        elif owner == self.endpoint:
            self.out.append(frames.frame(frames.FLOW_ENDED, body))

    def _probed(self, flags: int, body: memoryview, now: float, out: deque[Buffer] | None = None) -> None:
        _, _, probed, _ = frames.PACK_FIXED.unpack(body)
        key = bytes(body[: frames.KEY_BYTES])
        flow = self.receiver.flows.get(key)
        if flow is None:
            self.out.append(frames.frame(frames.UNKNOWN_FLOW, key))
            return
        # By the way on which it was asked: of another one the sender may know that it is lost.
        out = self.out if out is None else out
        self._acknowledge(flow, out)
        self._answer(flow, probed, out)

    def _acknowledged(self, flags: int, body: memoryview, now: float) -> None:
        _, number, acknowledged, node = frames.ACK_FIXED.unpack(body)
        flow = self.sender.flows.get(number)
        if flow is not None:
            flow.acknowledged(node, acknowledged, now)
            if flow.change is not None and flow.lowest_acked >= flow.change.number:
                self.ways.end_change(flow)
            self._pump(flow, now)
            self.instructions.append(Acknowledged())

    def _answered(self, flags: int, body: memoryview, now: float) -> None:
        _, _, number, node, _, received, probed = frames.ANSWER_FIXED.unpack(body)
        flow = self.sender.flows.get(number)
        lost = flow.answered(node, received, probed) if flow is not None else []
        if flow is not None and lost:
            if flow.change is not None:
                self.ways.end_change(flow, lost)
                return
            self.declare(flow)
            for pack in lost:
                self.resend(flow, pack, node)

    def _credited(self, flags: int, body: memoryview, now: float) -> None:
        _, _, number, endpoint, subscription, mark = frames.CREDIT_FIXED.unpack(body)
        stream = self.sender.streams.get(number)
        if stream is None:
            return
        final = bool(flags & frames.IS_FINAL)
        if final:
            self.flush_all(now)  # the stream may change its route
        limit = stream.limit_bytes
        self.sender.credited(stream, endpoint, subscription, mark, final)
        if stream.limit_bytes < 0 and stream.mixture is None:
            self.flush_all(now)
        # Of many consumers only the slowest one's report lets the publisher go on: the others need not wake it.
        self.instructions.append(Credited(number, stream.limit_bytes != limit or limit < 0))

    def _credit_wanted(self, flags: int, body: memoryview, now: float) -> None:
        _, _, node, endpoint, number, subscription, mark = frames.CREDIT_WANTED_FIXED.unpack(body)
        answer = self.receiver.credit_wanted(endpoint, number, subscription, mark)
        if answer is not None:
            handled, final = answer
            self._put_credit((node, endpoint, number), subscription, handled, final)

    def _result(self, flags: int, body: memoryview, now: float) -> None:
        _, _, number, endpoint, subscription = frames.RESULT_FIXED.unpack_from(body)
        outcome = bytes(body[frames.RESULT_FIXED.size :])
        answered = self.deliveries.answered(number, endpoint, subscription, outcome)
        if answered is not None:
            self.instructions.append(answered)

    def _result_wanted(self, flags: int, body: memoryview, now: float) -> None:
        _, _, delivery, node, endpoint, subscription = frames.RESULT_WANTED_FIXED.unpack(body)
        open_ones = self.receiver.subscriptions
        again = self.deliveries.answer_again(node, endpoint, delivery, subscription, open_ones)
        if again is not None:
            self.ways.to(node, endpoint).append(again)

    def _gone(self, flags: int, body: memoryview, now: float) -> None:
        (endpoint,) = frames.NUMBER.unpack(body)
        self.flush_all(now)
        self.sender.endpoint_gone(endpoint, now)
        self.flush_all(now)
        for flow in [*self.sender.flows.values()]:
            self._pump(flow, now)
        self.receiver.endpoint_gone(endpoint)
        self.instructions.extend(self.deliveries.endpoint_gone(endpoint))
        self.instructions.append(EndpointGone(endpoint))

    def _path_restored(self, flags: int, body: memoryview, now: float) -> None:
        (node,) = frames.NUMBER.unpack(body)
        self.probe([flow for flow in self.sender.flows.values() if node in flow.acked], now, at_once=True)
        self.instructions.append(PathRestored(node))

    # ---- what is published ----

    def publish_batch(
        self, stream: SenderStream, kind: int, events: list[Any], size_bytes: int, now: float, may_wait: bool
    ) -> bool:
        """Small events of one kind, for which all plain recipients have room; each full pack leaves.

        Whether the last one has left, or (not `may_wait`) was looked at: else somebody has to see it off.
        """
        each_bytes, rest_bytes = divmod(size_bytes, len(events))
        policy = stream.policy
        start = 0
        has_left = False
        while start < len(events):  # pack by pack: a little too many must not make two small ones
            gather = stream.gather
            route = stream.route
            assert gather is not None and route is not None  # noqa: PT018 (of the same thing)
            if gather.stream is not stream or gather.kind != kind:
                gather.begin_run(stream, kind)
            room = max(1, policy.degree - len(gather.events))
            if each_bytes > _LEAST_SMALL_BYTES:
                room = min(room, frames.MAX_PACK_BYTES // each_bytes)
            part = events[start : start + room]
            start += len(part)
            part_bytes = each_bytes * len(part) + (rest_bytes if start == len(events) else 0)
            stream.own_mark += part_bytes
            gather.gathered_bytes += part_bytes
            gather.events += part  # never the list itself: modulators may have it too
            is_full = len(gather.events) >= policy.degree or gather.gathered_bytes >= frames.MAX_PACK_BYTES
            has_left = (is_full or not may_wait) and self.see_off(stream, route, now)
        return has_left

    def publish_block(
        self, stream: SenderStream, kind: int, block: Any, count: int, size_bytes: int, now: float
    ) -> int:
        """Many records at once, which leave at once; the first one's sequence number. No group and no laggard may be
        among the recipients.
        """
        route = stream.route
        assert route is not None
        self.sender.end_run(stream)
        first = stream.next_sequence
        stream.published_bytes += size_bytes
        route.gather.add_block(stream, kind, block, count)
        self.flush(route.flow, now)
        return first

    def publish_mixed(
        self, mixture: Mixture, lanes: Lanes, events: list[Any], sizes: Column, reserve_bytes: int
    ) -> Collection[int]:
        """Small events of a mixture's streams, in turn. The places of those of streams that have left it meanwhile:
        these were not published.
        """
        return mixture.publish(lanes, events, sizes, reserve_bytes)

    def see_off(self, stream: SenderStream, route: Route, now: float) -> bool:
        """Something was gathered: the pack leaves now, or at the gather's `due_at`. Whether it has left."""
        gather = route.gather
        policy = stream.policy if route is stream.route else stream.policy_on(gather)
        is_due = gather.see_off(policy, now, now - stream.waited_seconds)
        if not is_due and not gather.segment_bytes:
            return False
        is_behind = stream.published_bytes + stream.window_bytes // 2 > stream.limit_bytes >= 0
        # What is large waits for nobody, but that a few leave together where consumers have enough to do.
        if not is_due and is_behind and gather.segment_bytes < stream.window_bytes // 2:
            return False
        if is_behind:
            policy.lags(now)
        self.flush(route.flow, now)
        return True

    def see_off_mixed(self, mixture: Mixture, now: float) -> bool:
        """Do as `see_off` for events of a mixture."""
        if not mixture.gather.see_off(mixture.policy, now, now):
            return False
        self.flush(mixture.flow, now)
        return True

    def deliver(self, awaited: Awaited, stream: SenderStream, sequence: int, now: float) -> list[Recipient]:
        """The event of this number, which was just published, leaves at once. Who gets it, and has to answer."""
        reached = [r for r in stream.recipients.values() if r.route is None or r.was_last_sent(sequence)]
        self.deliveries.expect(awaited, reached, now)
        routes = {r.route or stream.route for r in reached}
        for flow in sorted({route.flow for route in routes if route is not None}, key=attrgetter("number")):
            self.flush(flow, now, awaited.number)
        return reached

    def deliver_small(
        self, awaited: Awaited, stream: SenderStream, kind: int, payload: Any, size_bytes: int, now: float
    ) -> None:
        """Publish one more event and do as `deliver`, where it is a small one for plain recipients."""
        route = stream.route
        assert route is not None
        flow = route.flow
        self.deliveries.expect(awaited, route.recipients, now)
        if route.gather or not route.declared or self.sender.new_flows or flow in self._waiting:
            stream.append(kind, payload, size_bytes)
            self.flush(flow, now, awaited.number)
            return
        # Nothing goes with it, so it need not be gathered.
        columns = stream.alone(kind, payload, size_bytes, awaited.number)
        body = self._encode(columns, size_bytes, now + self.sender.clock_offset_seconds)
        stream.packs += 1
        stream.bytes_between_nodes += self._pack(flow, body, 0, now) * flow.crossings(self.node)

    # ---- consumers ----

    def members_changed(
        self,
        stream: SenderStream,
        version: tuple[int, int],
        consumers: Iterable[Consumer],
        deleted: bool = False,
        cutover_points: Mapping[tuple[int, int], tuple[int, int]] | None = None,
    ) -> None:
        """The consumers of a stream that are in other processes, or in groups, have changed."""
        self.sender.membership_changed(stream, version, consumers, deleted, cutover_points or {})

    def subscription_opened(self, subscription: int) -> None:
        """Take in the events of a subscription from now on."""
        self.receiver.subscription_opened(subscription)

    def subscription_closed(self, subscription: int) -> None:
        """Its events are discarded from now on, and no handler is at work; producers that share events out among the
        members of a group are told how far it came.
        """
        for reception in self.receiver.subscription_closed(subscription):
            if reception.grouped:
                self._credit(reception)

    def handled(self, reception: Reception, mark: int, delivery: int, outcome: bytes) -> None:
        """A subscription has handled a stream up to `mark`; the last event of it was perhaps a delivered one."""
        if delivery:
            stream = reception.stream
            to = (stream.node, stream.endpoint, delivery)
            self.ways.to(stream.node, stream.endpoint).append(
                self.deliveries.answer(*to, reception.subscription, outcome)
            )
        if reception.handled(mark):
            self._credit(reception)

    def mixed_handled(self, arrival: MixedArrival, count: int) -> None:
        """The first so many events of a mixed pack were handled."""
        for reception, mark in self.receiver.mixed.handled(arrival, count):
            self.handled(reception, mark, 0, b"")

    def release(self, reception: Reception, delivery: int) -> None:
        """Let whoever delivered an event wait no longer: nobody will handle it."""
        stream = reception.stream
        to = (stream.node, stream.endpoint, delivery)
        self.ways.to(stream.node, stream.endpoint).append(self.deliveries.answer(*to, reception.subscription, RELEASED))

    def _credit(self, reception: Reception) -> None:
        stream = reception.stream
        to = (stream.node, stream.endpoint, stream.number)
        self._put_credit(to, reception.subscription, reception.credit(), reception.final)

    def _put_credit(self, to: tuple[int, int, int], subscription: int, mark: int, final: bool) -> None:
        fixed = frames.CREDIT_FIXED.pack(*to, self.endpoint, subscription, mark)
        self.ways.to(to[0], to[1]).append(frames.frame(frames.CREDIT, fixed, frames.IS_FINAL if final else 0))

    def ask_for_credit(self, stream: SenderStream) -> None:
        """Have those who are behind report as soon as they have handled what was sent."""
        for recipient, mark in credit.unreported(stream):
            fixed = frames.CREDIT_WANTED_FIXED.pack(
                recipient.node, recipient.endpoint, self.node, self.endpoint,
                stream.number, recipient.subscription, mark,
            )  # fmt: skip
            self.ways.to(recipient.node, recipient.endpoint).append(frames.frame(frames.CREDIT_WANTED, fixed))

    # ---- what leaves ----

    def flush(self, flow: FlowSender, now: float, delivery: int = 0) -> None:
        """Send what the flow has gathered."""
        gather = self.sender.gathers[flow.number]
        if not gather:
            return
        if self.sender.new_flows:
            self.declare_new_flows()
        began_at = gather.began_at or now
        stamp = began_at + self.sender.clock_offset_seconds
        has_large, due_by = gather.has_large, gather.due_by
        for part, gathered_bytes in gather.take(delivery):
            if due_by is not None:  # else nothing was held, and no policy need know
                self.departed.append((gather, len(part.events), gathered_bytes, due_by, now - began_at))
            if isinstance(part, PackColumns):
                columns = part
            elif flow in self._waiting:
                columns = part.as_runs()
            else:
                self._send_mixed(flow, part, gathered_bytes, stamp, now)
                continue
            # What a member that died had not handled, say, may be much more than a pack.
            if has_large or gathered_bytes >= 2 * frames.MAX_PACK_BYTES:
                self._send_in_pieces(flow, columns, now)
                continue
            body = self._encode(columns, gathered_bytes, stamp)
            self._count(flow, columns, sum(map(len, body)))
            if flow not in self._waiting or not self._hold(flow, columns, body):
                self._pack(flow, body, 0, now)

    def _send_mixed(
        self, flow: FlowSender, columns: MixedColumns, gathered_bytes: int, stamp: float, now: float
    ) -> None:
        body = self._encode(columns, gathered_bytes, stamp)
        columns.mixture.left(columns, sum(map(len, body)) * flow.crossings(self.node))
        self._pack(flow, body, frames.IS_MIXED, now)

    def left(self, now: float, seconds: float, seconds_each: float, delayed_seconds: float = 0.0) -> None:
        """Note what it took the sending thread to send what has left since the last call, and to write a pack of it;
        and for how long the source was kept from running, of all the time so far.
        """
        departed = self.departed
        if departed:
            each_seconds = seconds / len(departed) + seconds_each
            for gather, events, size_bytes, due_by, filling_seconds in departed:
                gather.left(now, events, size_bytes, each_seconds, due_by, filling_seconds, delayed_seconds)
            departed.clear()

    def flush_all(self, now: float) -> None:
        """Send everything that was gathered, the oldest first: before a stream changes its route."""
        gathers = self.sender.gathers
        started = [number for number, gather in gathers.items() if gather]
        for number in sorted(started, key=lambda number: gathers[number].began_at) if len(started) > 1 else started:
            self.flush(self.sender.flows[number], now)

    def flush_due(self, now: float) -> float:
        """Send what has to leave by now; when the next pack has to."""
        next_at = NEVER
        # A copy: when the last chunk of a large event leaves, a recipient that lagged may get another flow.
        for number, gather in [*self.sender.gathers.items()]:
            if gather:
                if gather.due_at <= now:
                    self.flush(self.sender.flows[number], now)
                else:
                    next_at = min(next_at, gather.due_at)
        return next_at

    def _pack(self, flow: FlowSender, body: list[Buffer], flags: int, now: float) -> int:
        size_bytes = sum(map(len, body))
        number = flow.sent(body, flags, size_bytes, now)
        head = frames.pack_head(self.endpoint, flow.number, number, 0, flags, size_bytes)
        flow.out.extend((head, *body))
        self.packs_sent += 1
        return size_bytes

    def _count(self, flow: FlowSender, columns: PackColumns, size_bytes: int) -> None:
        """Add each stream's share of a pack to the statistics."""
        streams = self.sender.gathers[flow.number].stream_of_route
        crossing_bytes = size_bytes * flow.crossings(self.node)
        if len(columns.streams) == 1:
            stream = streams.get(columns.streams[0])
            if stream is not None:
                stream.packs += 1
                stream.bytes_between_nodes += crossing_bytes
            return
        share_bytes = crossing_bytes // (sum(columns.counts) or 1)
        for route, count in zip(columns.streams, columns.counts, strict=True):
            stream = streams.get(route)
            if stream is not None:
                stream.bytes_between_nodes += share_bytes * count
        for stream in {streams.get(route) for route in columns.streams}:  # which may have several runs in it
            if stream is not None:
                stream.packs += 1

    def _send_in_pieces(self, flow: FlowSender, columns: PackColumns, now: float) -> None:
        waiting = self._waiting.setdefault(flow, WaitingPacks())
        for piece in large_events.pieces(columns, self.sender.gathers[flow.number].stream_of_route):
            if isinstance(piece, PackColumns):
                body = self._encode(piece, 0, now + self.sender.clock_offset_seconds)
                if not self._hold(flow, piece, body):
                    self._pack(flow, body, 0, now)
            else:
                stream = piece.large.stream
                for chunk in piece.chunks(self._chunk_bytes):
                    waiting.add(WaitingPack(chunk, frames.IS_CHUNK, {stream}, {stream.number}))
                stream.bytes_between_nodes += piece.large.total_bytes * flow.crossings(self.node)
        self._pump(flow, now)

    def _hold(self, flow: FlowSender, columns: PackColumns, body: list[Buffer]) -> bool:
        """Have a pack wait behind chunks of a stream that it has to do with; False where there are none."""
        waiting = self._waiting[flow]
        streams, numbers = large_events.concerned(columns, self.sender.gathers[flow.number].stream_of_route)
        is_behind = waiting.concerns(numbers)
        if is_behind:
            waiting.add(WaitingPack(body, 0, streams, numbers))
        return is_behind

    def _pump(self, flow: FlowSender, now: float) -> None:
        """Let waiting packs leave, as far as the flow's window allows."""
        waiting = self._waiting.get(flow)
        if waiting is None:
            return
        while waiting.packs and flow.kept_bytes < self._flow_window_bytes:
            pack, done = waiting.pop()
            self._pack(flow, pack.body, pack.flags, now)
            for stream in done:
                self.sender.laggards.large_event_left(stream)
                self.instructions.append(LargeEventLeft(stream.number))
        if not waiting.packs:
            self._waiting.pop(flow, None)

    def declare_new_flows(self) -> None:
        """Send the declarations of new flows, which go before their first packs."""
        for flow in self.sender.new_flows:
            self.declare(flow)
        self.sender.new_flows.clear()

    def declare(self, flow: FlowSender) -> None:
        """Say to whom the packs of a flow go."""
        declaration = frames.flow_declaration(self.endpoint, flow.number, self.node, flow.destinations)
        # To the concentrator in any case: it tells both ends of the other's death.
        self.out.append(declaration)
        if flow.out is not self.out and flow.change is None:
            flow.out.append(declaration)

    def resend(self, flow: FlowSender, pack: SentPack, node: int) -> None:
        """Send a pack again to the destinations on one node."""
        flags = pack.flags | frames.IS_RESENT
        head = frames.pack_head(self.endpoint, flow.number, pack.number, node, flags, pack.size_bytes)
        flow.out.extend((head, *pack.body))

    def probe(self, flows: Iterable[FlowSender], now: float, at_once: bool = False) -> None:
        """Ask the destinations of these flows what they have: those that lag, and if it is time, or `at_once`."""
        for flow in flows:
            if flow.change is not None:
                continue  # it is asked already for what has left, and the rest is here
            for node in flow.nodes_to_probe(now, at_once):
                flow.out.append(frames.probe(self.endpoint, flow.number, flow.last_sent, node))

    # ---- time ----

    def tick(self, now: float) -> bool:
        """Acknowledge, probe and ask again what is due; whether something was acknowledged, so that more may come."""
        busy = False
        if now >= self._due_acks:
            self._due_acks = now + ACK_SECONDS
            for received in self.receiver.flows.values():
                if received.unacked_bytes:
                    self._acknowledge(received)
                    busy = True
        if now >= self._due_look:
            self._due_look = now + LOOK_SECONDS
            self.ways.look(now)
            self.probe([flow for flow in self.sender.flows.values() if flow.probe_at <= now], now)
            for flow in self.sender.ended_flows(self.deliveries.awaited_endpoints()):
                self.out.append(frames.frame(frames.FLOW_ENDED, frames.KEY.pack(self.endpoint, flow.number)))
            self.out.extend(self.deliveries.overdue(now))
            if now >= self._due_credit:
                self._due_credit = now + ASK_FOR_CREDIT_SECONDS
                for stream in self.sender.served_apart():
                    if credit.is_awaited(stream):
                        self.ask_for_credit(stream)
        return busy

    @property
    def is_waiting(self) -> bool:
        """Whether something that was sent has not been answered: then time matters even if nothing comes in."""
        return (
            bool(self.deliveries.awaited)
            or any(flow.kept for flow in self.sender.flows.values())
            or any(credit.is_awaited(stream) for stream in self.sender.served_apart())
        )

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        self.sender.validate()
        self.receiver.validate()
        held = [stream for waiting in self._waiting.values() for pack in waiting.packs for stream in pack.streams]
        for stream in self.sender.streams.values():
            assert stream.chunks == held.count(stream), (stream.number, stream.chunks)
        for flow, waiting in self._waiting.items():
            assert waiting.packs
            assert flow.kept_bytes >= self._flow_window_bytes, "chunks wait, and there is room for them"


# With more, a pack may be full of bytes before it is of events.
_LEAST_SMALL_BYTES = 128

# What may come by a direct link besides packs: what two endpoints say to each other.
_DIRECT_KINDS = frozenset({
    frames.ACK, frames.ANSWER, frames.CREDIT, frames.CREDIT_WANTED, frames.RESULT, frames.RESULT_WANTED,
})  # fmt: skip

_HANDLERS: dict[int, Callable[[EndpointCore, int, memoryview, float], None]] = {
    frames.HEARTBEAT: EndpointCore._heartbeat,
    frames.FLOW: EndpointCore._flow_declared,
    frames.FLOW_ENDED: EndpointCore._flow_ended,
    frames.UNKNOWN_FLOW: EndpointCore._flow_unknown,
    frames.PROBE: EndpointCore._probed,
    frames.ACK: EndpointCore._acknowledged,
    frames.ANSWER: EndpointCore._answered,
    frames.CREDIT: EndpointCore._credited,
    frames.CREDIT_WANTED: EndpointCore._credit_wanted,
    frames.RESULT: EndpointCore._result,
    frames.RESULT_WANTED: EndpointCore._result_wanted,
    frames.GONE: EndpointCore._gone,
    frames.PATH_RESTORED: EndpointCore._path_restored,
}
