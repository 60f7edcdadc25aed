"""A scripted endpoint: what a process does with `Sender` and `Receiver`, without sockets, threads or clocks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import islice
from typing import ClassVar

from echannel_ray.core import frames
from echannel_ray.core.flows import FlowReceiver, FlowSender, SentPack
from echannel_ray.core.gathering import Columns, Gather
from echannel_ray.core.kinds import BLOCK as BLOCK_KIND
from echannel_ray.core.kinds import PICKLED, PLAIN, Block, typed
from echannel_ray.core.receiving import Delivered, Receiver, Reception
from echannel_ray.core.sending import Sender
from echannel_ray.core.streams import BLOCK, NEVER, RAISE, Recipient, SenderStream
from tests.core.network import End, Network
from tests.core.published import Event, Part, Published, Subscription, split

TICK_SECONDS = 0.1
ASK_SECONDS = 0.25
CHUNK = 64


class Endpoint:
    """One process. It is told to publish and subscribe; all else it does by itself."""

    def __init__(self, network: Network, node: int, number: int, ack_bytes: int) -> None:
        self.network = network
        self.node = node
        self.number = number
        self.sender = Sender(node, number)
        self.receiver = Receiver(node, number, ack_bytes)
        self.link: End | None = None
        self.dead = False
        self.published: dict[int, Published] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.drained: Callable[[Published, int], None] = lambda published, sequence: None
        self._wires: dict[int, SenderStream] = {}
        self._ticking = False
        self._ask_at = 0.0
        self._flush_due = False

    # ---- the link ----

    def attached(self, link: End) -> None:
        """The concentrator is there, for the first time or again."""
        again = bool(self.sender.flows or self.receiver.flows)
        self.link = link
        link.receive = self._received
        if again:
            self.sender.new_flows.clear()
            for flow in self.sender.flows.values():
                self._declare(flow)
            self._probe([*self.sender.flows.values()], at_once=True)
            for received in self.receiver.flows.values():
                me = [(self.node, self.number)]
                self.send(frames.flow_declaration(received.endpoint, received.flow, received.node, me))
        self.flush()

    def send(self, data: bytes) -> None:
        if self.link is not None:
            self.link.send(data)

    def _declare(self, flow: FlowSender) -> None:
        self.send(frames.flow_declaration(self.number, flow.number, self.node, flow.destinations))

    # ---- publishing ----

    def publish(self, published: Published, size: int) -> None:
        """Publish, or wait in line."""
        published.pending.append(size)
        self.pump(published)

    def pump(self, published: Published) -> None:
        """Publish what waits, as far as there is room."""
        stream = published.stream
        while published.pending and not stream.closed:
            size = published.pending[0]
            event = Event((self.number, stream.number, published.last + 1, size))
            if size % 5 == 3 and self._publish_block(published):
                continue
            if size <= frames.CHUNK_BYTES and stream.published_bytes + size <= stream.limit_bytes:
                gather = stream.gather
                assert gather is not None
                assert stream.limit_bytes != NEVER
                if gather.stream is not stream or gather.kind != PICKLED * (size % 2):
                    gather.turn(stream, PICKLED * (size % 2))
                gather.events.append(event)
                stream.published_bytes += size
            elif not (stream.route or stream.groups or stream.laggards):
                assert self.sender.skip(stream) == event[2]
            elif stream.overflow in (BLOCK, RAISE) and (not stream.fits(size) or self.sender.full_groups(stream, size)):
                if stream.overflow == BLOCK:
                    self.wake()
                    return
                published.pending.popleft()  # refused: the caller was told, and the event never was
                continue
            else:
                sequence, _ = self.sender.send_to_all(stream, PICKLED * (size % 2), event, size)
                assert sequence == event[2], (sequence, event)
            published.pending.popleft()
            published.sizes.append(size)
            self._check_windows(stream, size)
            if self.network.rng.random() < 0.3:
                self.flush()
            elif not self._flush_due:
                self._flush_due = True
                self.network.after(0.002, self.flush)
        if published.closing and not published.pending and not published.finished:
            self.wake()

    def _publish_block(self, published: Published) -> bool:
        """A few at once, if there is room for all of them."""
        stream = published.stream
        sizes = [*islice(published.pending, 3)]
        is_small = max(sizes) <= frames.CHUNK_BYTES and stream.published_bytes + sum(sizes) <= stream.limit_bytes
        if not is_small or stream.gather is None:
            return False
        first = published.last + 1
        events = [Event((self.number, stream.number, first + i, size)) for i, size in enumerate(sizes)]
        stream.published_bytes += sum(sizes)
        stream.gather.add_block(stream, typed(BLOCK_KIND, 7), events, len(events))
        for size in sizes:
            published.pending.popleft()
            published.sizes.append(size)
        if not self._flush_due:
            self._flush_due = True
            self.network.after(0.002, self.flush)
        return True

    def _check_windows(self, stream: SenderStream, size: int) -> None:
        for recipient in stream.recipients.values():
            if recipient.route is None:
                outstanding = stream.published_bytes - recipient.handled_mark
            else:
                outstanding = recipient.outstanding_bytes
            # An event larger than the window passes alone; a laggard may have begun with one, and got nothing since.
            alone = outstanding == size or (
                recipient.route is not None and sum(u.size_bytes > 0 for u in recipient.sent) <= 1
            )
            assert outstanding <= stream.window_bytes or alone, (recipient.subscription, outstanding)

    def flush(self) -> None:
        """Send what is gathered. Without a link it is kept, numbered, and lost: probes find that out later."""
        self._flush_due = False
        if self.dead:
            return
        for flow in self.sender.new_flows:
            self._declare(flow)
        self.sender.new_flows.clear()
        for number, gather in self.sender.gathers.items():
            while gather:
                self._send_pack(self.sender.flows[number], gather)
        for flow in self.sender.ended_flows():
            self.send(frames.frame(frames.FLOW_ENDED, frames.KEY.pack(self.number, flow.number)))
        if self._is_busy():
            self.wake()

    def _send_pack(self, flow: FlowSender, gather: Gather) -> None:
        has_large = gather.has_large
        columns = gather.take()
        for entry in columns.control:
            if entry[0] == "route":
                self._wires[entry[1]] = self.published[entry[2]].stream
        if has_large:
            for part in split(columns):
                if any(isinstance(event, Event) and event[3] > frames.CHUNK_BYTES for event in part.events):
                    self._send_chunks(flow, part)
                else:
                    self._send_body(flow, 0, part)
        else:
            self._send_body(flow, 0, columns)
        for wire in columns.streams:
            self.published[self._wires[wire].number].flow_marks[flow] = flow.last_sent

    def _send_chunks(self, flow: FlowSender, columns: Columns) -> None:
        data = pickle.dumps(columns.events[0]) * 3
        kind = columns.kinds[0] if columns.kinds else PLAIN
        for offset in range(0, len(data), CHUNK):
            fixed = (columns.streams[0], columns.firsts[0], columns.marks[0], kind, 0, len(data), offset, 0)
            body = frames.CHUNK_FIXED.pack(*fixed) + data[offset : offset + CHUNK]
            self._send_bytes(flow, frames.IS_CHUNK, body)

    def _send_body(self, flow: FlowSender, flags: int, columns: Columns) -> None:
        self._send_bytes(flow, flags, pickle.dumps(tuple(columns), protocol=5))

    def _send_bytes(self, flow: FlowSender, flags: int, body: bytes) -> None:
        number = flow.sent([body], flags, self.network.now)
        self.send(frames.pack_head(self.number, flow.number, number, 0, flags, len(body)) + body)

    # ---- what comes in ----

    def _received(self, end: End, data: bytes) -> None:
        for each in frames.scan(data, 0, len(data)):
            self._handlers[each.kind](self, each.flags, data[each.start : each.end])

    def _pack(self, flags: int, body: bytes) -> None:
        *_, number, _ = frames.PACK_FIXED.unpack_from(body)
        flow = self._flow(body)
        if flow is None:
            return
        content = memoryview(body)[frames.PACK_FIXED.size :]
        if flags & frames.IS_CHUNK:
            fixed = frames.CHUNK_FIXED.unpack_from(content)
            done = self.receiver.chunk_received(flow, number, fixed, content[frames.CHUNK_FIXED.size :])
            if done is not None:
                event = pickle.loads(done[1])
                self._take([d if d.gap_last else d._replace(events=[event] * len(d.events)) for d in done[0]])
        else:
            self._take(self.receiver.pack_received(flow, number, Columns(*pickle.loads(content)), len(body)) or [])
        if flow.ack_wanted:
            self._acknowledge(flow)
        self.wake()

    def _flow(self, body: bytes) -> FlowReceiver | None:
        flow = self.receiver.flows.get(body[: frames.KEY.size])
        if flow is None:
            self.send(frames.frame(frames.UNKNOWN_FLOW, body[: frames.KEY.size]))
        return flow

    def _acknowledge(self, flow: FlowReceiver) -> None:
        self.send(frames.ack(flow.endpoint, flow.flow, flow.acknowledge(), self.node))

    def _take(self, delivered: list[Delivered]) -> None:
        for each in map(_unpacked, delivered):
            subscription = self.subscriptions[each.reception.subscription]
            source = (each.reception.stream.endpoint, each.reception.stream.number)
            runs = subscription.received.setdefault(source, [])
            runs.append((each.first, each.gap_last or each.first + len(each.events) - 1, bool(each.gap_last)))
            last = runs[-1][1]
            subscription.parts.setdefault(source[0], []).append(Part(each.turn, source[1], each.first, last))
            for sequence, event in enumerate(each.events, each.first):
                assert tuple(event[:3]) == (*source, sequence), (event, source, sequence)
            subscription.queue.append(each)
            self.work(subscription)

    def work(self, subscription: Subscription) -> None:
        """Handle what has arrived, unless the handler is stopped."""
        if subscription.queue and not (subscription.busy or subscription.paused or subscription.closed):
            subscription.busy = True
            self.network.after(0.02 * self.network.rng.random(), self._handle, subscription)

    def _handle(self, subscription: Subscription) -> None:
        subscription.busy = False
        if self.dead or subscription.closed or subscription.paused:
            return
        each = subscription.queue.popleft()
        reception = each.reception
        handled = subscription.handled.setdefault((reception.stream.endpoint, reception.stream.number), [])
        handled.extend((event[2], each.redelivered) for event in each.events)
        if reception.handled(each.mark):
            self._credit(reception)
        self.work(subscription)

    def _credit(self, reception: Reception, final: bool = False) -> None:
        stream = reception.stream
        fixed = (stream.node, stream.endpoint, stream.number, self.number, reception.subscription, reception.credit())
        self.send(frames.frame(frames.CREDIT, frames.CREDIT_FIXED.pack(*fixed), frames.IS_FINAL if final else 0))

    def _probed(self, flags: int, body: bytes) -> None:
        *_, number, _ = frames.PACK_FIXED.unpack_from(body)
        flow = self._flow(body)
        if flow is not None:
            self._acknowledge(flow)
            fixed = (flow.node, flow.endpoint, flow.flow, self.node, self.number, flow.received, number)
            self.send(frames.frame(frames.ANSWER, frames.ANSWER_FIXED.pack(*fixed)))

    def _answered(self, flags: int, body: bytes) -> None:
        _, _, number, node, _, received, probed = frames.ANSWER_FIXED.unpack_from(body)
        flow = self.sender.flows.get(number)
        for pack in flow.answered(node, received, probed) if flow else ():
            self._resend(flow, pack, node)

    def _resend(self, flow: FlowSender | None, pack: SentPack, node: int) -> None:
        assert flow is not None
        flags = pack.flags | frames.IS_RESENT
        head = frames.pack_head(self.number, flow.number, pack.number, node, flags, pack.size_bytes)
        self.send(head + b"".join(pack.body))

    def _acked(self, flags: int, body: bytes) -> None:
        _, number, received, node = frames.ACK_FIXED.unpack_from(body)
        flow = self.sender.flows.get(number)
        if flow is not None:
            flow.acknowledged(node, received, self.network.now)
            self._progress()

    def _credited(self, flags: int, body: bytes) -> None:
        _, _, number, endpoint, subscription, mark = frames.CREDIT_FIXED.unpack_from(body)
        stream = self.sender.streams.get(number)
        if stream is not None:
            self.sender.credited(stream, endpoint, subscription, mark, bool(flags & frames.IS_FINAL))
            self.pump(self.published[number])
            self._progress()

    def _credit_wanted(self, flags: int, body: bytes) -> None:
        _, _, node, endpoint, stream, subscription, mark = frames.CREDIT_WANTED_FIXED.unpack_from(body)
        answer = self.receiver.credit_wanted(endpoint, stream, subscription, mark)
        if answer is not None:
            fixed = (node, endpoint, stream, self.number, subscription, answer[0])
            self.send(
                frames.frame(frames.CREDIT, frames.CREDIT_FIXED.pack(*fixed), frames.IS_FINAL if answer[1] else 0)
            )

    def _gone(self, flags: int, body: bytes) -> None:
        (endpoint,) = frames.NUMBER.unpack(body)
        self.sender.endpoint_gone(endpoint, self.network.now)
        self.receiver.endpoint_gone(endpoint)
        for published in [*self.published.values()]:
            self.pump(published)
        self._progress()

    def _declared(self, flags: int, body: bytes) -> None:
        declared = frames.parse_flow(body)
        assert all(pair[0] == self.node for pair in declared.destinations)
        self.receiver.flow_declared(body[: frames.KEY.size], declared.node, declared.endpoint, declared.flow)

    def _ended(self, flags: int, body: bytes) -> None:
        self.receiver.flow_ended(body)

    def _unknown(self, flags: int, body: bytes) -> None:
        flow = self.sender.flows.get(frames.KEY.unpack(body)[1])
        if flow is not None:
            self._declare(flow)
        else:
            self.send(frames.frame(frames.FLOW_ENDED, body))

    def _restored(self, flags: int, body: bytes) -> None:
        (node,) = frames.NUMBER.unpack(body)
        self._probe([flow for flow in self.sender.flows.values() if node in flow.acked], at_once=True)

    _handlers: ClassVar[dict[int, Callable[[Endpoint, int, bytes], None]]] = {
        frames.PACK: _pack,
        frames.PROBE: _probed,
        frames.ANSWER: _answered,
        frames.ACK: _acked,
        frames.CREDIT: _credited,
        frames.CREDIT_WANTED: _credit_wanted,
        frames.GONE: _gone,
        frames.FLOW: _declared,
        frames.FLOW_ENDED: _ended,
        frames.UNKNOWN_FLOW: _unknown,
        frames.PATH_RESTORED: _restored,
    }

    # ---- subscriptions ----

    def close_subscription(self, subscription: Subscription) -> None:
        """Discard what comes from now on; a group's other members get what this one has not handled."""
        subscription.closed = True
        for reception in self.receiver.subscription_closed(subscription.number):
            if reception.grouped:
                self._credit(reception, final=True)

    # ---- time ----

    def wake(self) -> None:
        """Something is unfinished: look again on the next tick."""
        if not self._ticking and not self.dead:
            self._ticking = True
            self.network.after(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self.dead:
            return
        for received in self.receiver.flows.values():
            if received.unacked_bytes:
                self._acknowledge(received)
        self._probe([*self.sender.flows.values()], at_once=False)
        self._progress()
        if self.network.now >= self._ask_at:
            self._ask_at = self.network.now + ASK_SECONDS
            for published in self.published.values():
                for recipient in self._awaited(published):
                    self._ask(published.stream, recipient)
        if self._is_busy():
            self.wake()

    def _probe(self, flows: list[FlowSender], at_once: bool) -> None:
        if self.link is not None:
            for flow in flows:
                for node in flow.nodes_to_probe(self.network.now, at_once):
                    self.send(frames.probe(self.number, flow.number, flow.last_sent, node))

    def _awaited(self, published: Published) -> list[Recipient]:
        """Those whose credit somebody waits for: full windows, laggards, and members of groups with work in hand."""
        stream = published.stream
        plain = stream.full_recipients(published.pending[0]) if published.pending else []
        return [*plain, *stream.laggards, *(m for members in stream.groups.values() for m in members if m.sent)]

    def _ask(self, stream: SenderStream, recipient: Recipient) -> None:
        mark = recipient.sent[-1].mark if recipient.sent else recipient.handled_mark + 1
        fixed = (
            recipient.node,
            recipient.endpoint,
            self.node,
            self.number,
            stream.number,
            recipient.subscription,
            mark,
        )
        self.send(frames.frame(frames.CREDIT_WANTED, frames.CREDIT_WANTED_FIXED.pack(*fixed)))

    def _is_busy(self) -> bool:
        if any(flow.kept for flow in self.sender.flows.values()) or any(self.sender.gathers.values()):
            return True
        if any(p.pending or p.drains or self._awaited(p) for p in self.published.values() if not p.finished):
            return True
        return any(f.unacked_bytes for f in self.receiver.flows.values()) or bool(self.sender.new_flows)

    def _progress(self) -> None:
        """What waited for acknowledgements or credit may be done now."""
        for published in [*self.published.values()]:
            if published.finished:
                continue
            if published.closing and not published.done and not published.pending and not published.drains:
                published.drains.append(published.last)
            if published.drains and self.is_drained(published):
                for sequence in published.drains:
                    self.drained(published, sequence)
                is_last = published.drains[-1] == published.last
                published.drains.clear()
                published.done = published.closing and is_last and not published.pending
                family = published.family.streams.values()
                if all(each.done for each in family):
                    published.family.end()
                    for each in family:
                        each.finished = True
                        self.sender.close_stream(each.stream)
        self.flush()

    def is_drained(self, published: Published) -> bool:
        """Whether all that was published is received, or handled by a member of each group."""
        stream = published.stream
        if any(self.sender.gathers.values()) or stream.undelivered:
            return False
        if any(r.gap or r.backlog or (r.sent and r.consumer.group) for r in stream.recipients.values()):
            return False
        return all(flow.lowest_acked >= number for flow, number in published.flow_marks.items())


def _unpacked(delivered: Delivered) -> Delivered:
    """With the events of a block in a list."""
    block = delivered.events
    return delivered._replace(events=block.data[block.start : block.stop]) if isinstance(block, Block) else delivered
