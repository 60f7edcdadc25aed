"""A process on the simulated network: the endpoint that ships, with a script in the place of threads and handlers.

What a process adds to its `EndpointCore` is only what the shell does too: it writes what lies in `out`, carries out
instructions, decodes packs, handles events in its own time, and publishes what there is room for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableSequence
from itertools import islice

from echannel_ray.core import frames, windows
from echannel_ray.core.deliveries import Answered, Awaited
from echannel_ray.core.drain_point import DrainPoint
from echannel_ray.core.endpoint import EndpointCore
from echannel_ray.core.flows import FlowReceiver
from echannel_ray.core.framing import Framer
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import BLOCK as BLOCK_KIND
from echannel_ray.core.kinds import PICKLED, typed
from echannel_ray.core.large_events import Large
from echannel_ray.core.mixtures import MixedColumns
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import NEVER, SenderStream
from echannel_ray.formats.mixed_packs import decode_mixed
from echannel_ray.formats.packs import decode_body, encode_pack
from tests.core.mixing import ReceivedMixtures, SentMixtures
from tests.core.network import End, Network
from tests.core.published import EVENT, Part, Published, Subscription, event_of, events_of

TICK_SECONDS = 0.002
# Small ones: a large event has several chunks, and they wait for each other.
CHUNK_BYTES = 24
FLOW_WINDOW_BYTES = 400
TOKEN = 7
_WRITTEN = Framer()


class Process:
    """One process. It is told to publish and subscribe; all else it does by itself."""

    def __init__(self, network: Network, node: int, number: int, ack_bytes: int) -> None:
        self.network = network
        self.node = node
        self.number = number
        self.core = EndpointCore(
            node,
            number,
            self._encode,
            ack_bytes=ack_bytes,
            chunk_bytes=CHUNK_BYTES,
            flow_window_bytes=FLOW_WINDOW_BYTES,
        )
        self.link: End | None = None
        self.direct: dict[int, End] = {}  # links to other processes of the node
        self.packs_by_direct_links = 0
        self.dead = False
        self.published: dict[int, Published] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.drained: Callable[[Published, int], None] = lambda published, sequence: None
        self._wakes_at = float("inf")
        self._is_performing = False
        self._asking: set[int] = set()  # streams for which somebody has asked a moment ago
        self.mixtures = SentMixtures(self)
        self.mixed = ReceivedMixtures(self)

    def _encode(self, columns: PackColumns | MixedColumns, gathered_bytes: int, stamp: float) -> list[frames.Buffer]:
        assert stamp <= self.network.now
        return encode_pack(columns, gathered_bytes, stamp)

    # ---- the link ----

    def attached(self, link: End) -> None:
        """The concentrator is there, for the first time or again."""
        self.link = link
        link.receive = self._received
        self.core.linked(self.network.now)
        self.perform()

    def linked_directly(self, endpoint: int, end: End) -> None:
        """There is a direct link to another process of the node, in the place of one whose end is not known yet."""
        if endpoint in self.direct:
            self.network.cut(self.direct[endpoint])
        self.direct[endpoint] = end
        end.receive = lambda end, data: self._received(end, data, endpoint)
        end.ended = lambda end: self._direct_link_ended(endpoint, end)
        self.core.ways.linked(endpoint, deque(), self.network.now)
        self.perform()

    def _direct_link_ended(self, endpoint: int, end: End) -> None:
        if self.direct.get(endpoint) is end and not self.dead:
            del self.direct[endpoint]
            self.core.ways.lost(endpoint, self.network.now)
            self.perform()

    def perform(self) -> None:
        """Write, carry out instructions, publish what there is room for now, and see to it that time passes."""
        core = self.core
        if self._is_performing or self.dead:
            return
        self._is_performing = True
        is_new = True
        while is_new or core.instructions:
            self._carry_out()
            for published in [*self.published.values()]:
                if published.closing or published.drains:
                    self._finish_what_can_be(published)
            is_new = False
        if core.departed:
            core.left(self.network.now, 20e-6, 20e-6)
        self._is_performing = False
        if self.link is not None:
            write(self.link, core.out)
        for endpoint, out in core.ways.neighbours.items():
            write(self.direct[endpoint], out)
        self._plan()

    def _carry_out(self) -> None:
        while self.core.instructions:
            while self.core.instructions:
                instruction = self.core.instructions.popleft()
                if isinstance(instruction, Answered):
                    self._note_answer(instruction)
            for published in [*self.published.values()]:
                if published.pending:
                    self.pump(published)

    def _note_answer(self, answered: Answered) -> None:
        for published in self.published.values():
            awaited = [each for each in published.delivered.values() if each.number == answered.delivery]
            for each in awaited:
                published.answers.setdefault(each.number, []).append(answered)

    # ---- publishing ----

    def publish(self, published: Published, size: int, is_delivered: bool = False) -> None:
        """Publish, or wait in line."""
        published.pending.append((size, is_delivered))
        self.pump(published)
        self.perform()

    def pump(self, published: Published) -> None:
        """Publish what waits, as far as there is room."""
        stream = published.stream
        while published.pending and not stream.closed:
            size, is_delivered = published.pending[0]
            if not is_delivered and size % 5 == 3:
                self.mixtures.absorb()
                if self._publish_block(published):
                    continue
            if not self.mixtures.may_take(stream, size):
                self.mixtures.absorb()  # which may use up the room
            blockers = windows.blockers(stream, size)
            if blockers and windows.refuses(stream.overflow):
                published.pending.popleft()  # refused: the caller was told, and the event never was
                continue
            if blockers:
                self._wait_for_room(stream)
                return
            published.pending.popleft()
            published.sizes.append((size, is_delivered))
            if is_delivered or not self.mixtures.publish(published, size):
                self.mixtures.absorb()
                self._publish_one(published, size, is_delivered, published.last)
            self._check_windows(stream, size)

    def publish_late(self, published: Published, size: int, sequence: int) -> None:
        """Publish what was found in the list of a mixture that its stream has left."""
        if not published.stream.closed:
            self._publish_one(published, size, False, sequence)

    def _publish_one(self, published: Published, size: int, is_delivered: bool, sequence: int) -> None:
        stream, core, now = published.stream, self.core, self.network.now
        kind = PICKLED * (size % 2)
        event = event_of(self.number, stream.number, sequence, size)
        if size <= frames.CHUNK_BYTES and stream.published_bytes + size <= stream.limit_bytes:
            assert stream.limit_bytes != NEVER
            assert stream.route is not None
            if is_delivered:
                awaited = core.deliveries.begin()
                core.deliver_small(awaited, stream, kind, event, size, now)
                self._await(published, awaited)
                return
            if self.network.rng.random() < 0.5:
                stream.append(kind, event, size)
            else:
                core.publish_batch(stream, kind, [event], size, now, may_wait=True)
            core.see_off(stream, stream.route, now)
            return
        if not stream.recipients:
            assert core.skip(stream) == sequence
            return
        payload: object = event
        if size > frames.CHUNK_BYTES:
            payload = Large(stream, kind, [event, event[:7], event[7:]])
        got, _ = core.publish_one(stream, kind, payload, size)
        assert got == sequence, (got, event)
        if is_delivered:
            self._deliver(published, sequence)
        for route in stream.routes():
            if route.gather:
                core.see_off(stream, route, now)

    def _deliver(self, published: Published, sequence: int) -> None:
        awaited = self.core.deliveries.begin()
        self.core.deliver(awaited, published.stream, sequence, self.network.now)
        self._await(published, awaited)

    def _await(self, published: Published, awaited: Awaited) -> None:
        published.delivered[published.last] = awaited
        published.expected[awaited.number] = len(awaited.waiting)

    def _wait_for_room(self, stream: SenderStream) -> None:
        """Ask, and ask again a while later: a report may be lost."""
        if stream.number not in self._asking:
            self._asking.add(stream.number)
            self.core.ask_for_credit(stream)
            self.network.after(0.3, self._ask_again, stream)

    def _ask_again(self, stream: SenderStream) -> None:
        self._asking.discard(stream.number)
        if not self.dead:
            self.pump(self.published[stream.number])
            self.perform()

    def _publish_block(self, published: Published) -> bool:
        """A few at once, if there is room for all of them."""
        stream = published.stream
        taken = [*islice(published.pending, 3)]
        sizes = [size for size, _ in taken]
        is_small = max(sizes) <= frames.CHUNK_BYTES and stream.published_bytes + sum(sizes) <= stream.limit_bytes
        if not is_small or any(is_delivered for _, is_delivered in taken):
            return False
        first = published.last + 1
        events = [event_of(self.number, stream.number, first + i, size) for i, size in enumerate(sizes)]
        block = b"".join(events)
        got = self.core.publish_block(stream, typed(BLOCK_KIND, TOKEN), block, len(sizes), sum(sizes), self.network.now)
        assert got == first
        for each in taken:
            published.pending.popleft()
            published.sizes.append(each)
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
        """Send what was gathered, before streams change their routes and behind that."""
        self.mixtures.absorb()
        self.core.flush_all(self.network.now)

    # ---- what comes in ----

    def _received(self, end: End, data: bytes, neighbour: int = 0) -> None:
        core = self.core
        view = memoryview(data)
        for kind, flags, start, stop in Framer().frames(data, len(data)):
            if kind == frames.PACK:
                self.packs_by_direct_links += bool(neighbour)
                self._pack(flags, view, start, stop)
            elif neighbour:
                assert core.direct_frame(neighbour, kind, flags, view[start:stop], self.network.now)
            else:
                assert core.frame(kind, flags, view[start:stop], self.network.now)
        core.acknowledge_wanted()
        self.perform()

    def _pack(self, flags: int, view: memoryview, start: int, stop: int) -> None:
        core = self.core
        flow = core.next_pack(view, start)
        if flow is None:
            return
        data = view[start + frames.PACK_FIXED.size : stop]
        if flags & frames.IS_CHUNK:
            self._chunk(flow, data)
        elif flags & frames.IS_MIXED:
            body = decode_mixed(data)
            delivered, arrival = core.receiver.mixed.received(
                flow, body, body.mixture, body.control, len(data), self.mixed.target_of
            )
            self._take(delivered)
            if arrival is not None:
                self.mixed.put(arrival)
        else:
            self._take(core.pack_received(flow, decode_body(data), len(data)))

    def _chunk(self, flow: FlowReceiver, data: memoryview) -> None:
        done = self.core.chunk_received(flow, data)
        if done is not None:
            delivered, _, assembled = done
            assert assembled[: EVENT.size] == assembled[EVENT.size :]
            self._take([d if d.gap_last else d._replace(events=[assembled] * len(d.events)) for d in delivered])

    def _take(self, delivered: list[Delivered]) -> None:
        for each in delivered:
            subscription = self.subscriptions[each.source.subscription]
            self.mixed.give_up(subscription)
            self.note_arrival(each)
            subscription.queue.append(each)
            self.work(subscription)

    def note_arrival(self, each: Delivered) -> None:
        """Note what a subscription has been given, for the promises to be checked by."""
        events = events_of(each)
        subscription = self.subscriptions[each.source.subscription]
        source = (each.source.stream.endpoint, each.source.stream.number)
        runs = subscription.received.setdefault(source, [])
        runs.append((each.first, each.gap_last or each.first + len(events) - 1, bool(each.gap_last)))
        last = runs[-1][1]
        subscription.parts.setdefault(source[0], []).append(Part(each.version, source[1], each.first, last))
        for sequence, event in enumerate(events, each.first):
            assert EVENT.unpack(event)[:3] == (*source, sequence), (event, source, sequence)

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
        reception = each.source
        handled = subscription.handled.setdefault((reception.stream.endpoint, reception.stream.number), [])
        handled.extend((EVENT.unpack(event)[2], each.redelivered) for event in events_of(each))
        self.core.handled(reception, each.mark, each.delivery, b"")
        self.work(subscription)
        self.perform()

    # ---- subscriptions ----

    def close_subscription(self, subscription: Subscription) -> None:
        """Discard what comes from now on; a group's other members get what this one has not handled."""
        self.mixed.give_up(subscription)
        subscription.closed = True
        for each in subscription.queue:
            if each.delivery:
                self.core.release(each.source, each.delivery)
        self.core.subscription_closed(subscription.number)
        self.perform()

    # ---- time ----

    def _plan(self) -> None:
        """Have `_tick` called when it has something to do next, if nothing else happens before.

        The shell looks at fixed times instead, and more often: a look at which nothing is due changes nothing.
        """
        core, planned = self.core, self._wakes_at
        earliest = self.network.now + TICK_SECONDS  # the ticker of a process is no faster
        if planned <= earliest:
            return
        if self.mixtures.has_pending:
            planned = self._wakes_at = earliest
            self.network.at(planned, self._tick, planned)
            return
        wake = min((gather.due_at for gather in core.sender.gathers.values() if gather), default=planned)
        if core._due_acks < min(wake, planned) and any(flow.unacked_bytes for flow in core.receiver.flows.values()):
            wake = core._due_acks
        if core._due_look < min(wake, planned) and (core.is_waiting or self._has_ended_flows()):
            wake = core._due_look
        if wake < planned:
            self._wakes_at = wake = max(wake, earliest)
            self.network.at(wake, self._tick, wake)

    def _has_ended_flows(self) -> bool:
        sender = self.core.sender
        awaited = self.core.deliveries.awaited_endpoints()
        return any(sender._has_ended(flow, awaited) for flow in sender.flows.values())

    def _tick(self, when: float) -> None:
        if self.dead or when != self._wakes_at:
            return
        self._wakes_at = float("inf")
        self.mixtures.absorb()
        self.core.tick(self.network.now)
        self.core.flush_due(self.network.now)
        self.perform()

    def drain(self, published: Published) -> None:
        """Somebody waits until all that was published so far is acknowledged."""
        self.flush()
        published.drains.append((published.last, DrainPoint([published.stream])))
        self.perform()

    def close(self, published: Published) -> None:
        """The producer of these streams leaves when all that waits was published and is acknowledged."""
        for each in published.family.streams.values():
            each.closing = True
        self.perform()

    def _finish_what_can_be(self, published: Published) -> None:
        """What waited for acknowledgements or credit may be done now."""
        if published.finished:
            return
        if published.closing and not published.done and not published.pending and not published.drains:
            self.drain(published)
        for sequence, point in [*published.drains]:
            if point.is_reached():
                self.drained(published, sequence)
                published.drains.remove((sequence, point))
        if published.drains:
            self._ask_to_drain(published)
        published.done = published.closing and not published.pending and not published.drains
        family = published.family.streams.values()
        if all(each.done for each in family):
            published.family.end()
            for each in family:
                each.finished = True
                self.core.close_stream(each.stream)
            self.flush()

    def _ask_to_drain(self, published: Published) -> None:
        if published.stream.number not in self._asking:
            self._asking.add(published.stream.number)
            for _, point in published.drains:
                self.core.probe(point.flows, self.network.now, at_once=True)
                for stream in point.streams_that_need_credit:
                    self.core.ask_for_credit(stream)
            self.network.after(0.3, self._ask_again, published.stream)


def write(link: End, out: MutableSequence[frames.Buffer]) -> None:
    """Hand frames to a link one by one, so that it may lose each of them."""
    if not out:
        return
    data = b"".join(out)
    out.clear()
    for _, _, start, stop in _WRITTEN.frames(data, len(data)):
        link.send(data[start - frames.HEADER_BYTES : stop])
    assert not _WRITTEN.rest, "what is written ends in the middle of a frame"
