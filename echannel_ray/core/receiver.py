"""What one endpoint receives: flows, the streams inside them, and how far each subscription has come.

Rules:

* A pack is taken in whole or not at all: it must be the next of its flow, and none of its runs may leave a gap in a
  subscription. (A stream that changed its flow may have packs of the earlier flow still on their way; then the later
  flow waits, and is probed.)
* Per subscription, events of one stream arrive without gap or repetition. Only members of groups see some numbers and
  not others.
* What came from an endpoint that is gone is forgotten, and so is a flow that has ended; neither number is ever used
  again.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from echannel_ray.core.arrivals import Arrival
from echannel_ray.core.credit import Reception
from echannel_ray.core.cutover import ReceiverCutovers
from echannel_ray.core.flows import FlowReceiver
from echannel_ray.core.gather import Pack, PackColumns
from echannel_ray.core.kinds import BLOCK, GAP, TOKEN_BYTES, Block, entries_of, kind_at, wire_kind
from echannel_ray.core.lags import place_of, stream_name

if TYPE_CHECKING:
    from echannel_ray.core.mixed_receipts import MixedReceiver

# A pack of another flow that can't be read may have had what this one waits for; after so many probes it is given up.
_MAX_REFUSALS = 5


class ReceivedStream:
    """One producer's stream, at one endpoint that consumes it."""

    __slots__ = ("credit_bytes", "endpoint", "node", "number", "producer", "receptions")

    def __init__(self, node: int, endpoint: int, number: int, producer: int, window_bytes: int) -> None:
        self.node = node
        self.endpoint = endpoint
        self.number = number
        self.producer = stream_name(endpoint, producer)
        self.credit_bytes = max(1, window_bytes // 4)
        self.receptions: dict[int, Reception] = {}


Delivered: TypeAlias = Arrival[Reception]  # its mark is what the stream had published with it, in bytes


class WireRoute(NamedTuple):
    """What a wire number of a flow stands for at this endpoint."""

    stream: ReceivedStream
    receptions: list[Reception]
    handler_versions: list[int]  # one for each reception
    redelivers: bool
    grouped: bool
    sole: Reception | None  # the only one, where it is no member of a group


class DeclaredRoute(NamedTuple):
    """What a declaration says of this endpoint's subscriptions: [number, first sequence, first mark, handler version,
    cut-over point].
    """

    node: int
    endpoint: int
    wire: int
    number: int  # of the stream
    producer: int  # the number of its producer: that of the stream on the channel itself
    window_bytes: int
    redelivers: bool
    grouped: bool
    who: list[list[Any]]


Addressees = WireRoute | DeclaredRoute | None  # of a run of a pack; None is nobody of this endpoint


class Assembly:
    """A large event that is arriving in chunks, in order."""

    __slots__ = ("arrived_bytes", "buffer", "total_bytes")

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.arrived_bytes = 0
        # Grows with what arrives, whatever total a peer claims; and gives its bytes away in the end without a copy.
        self.buffer = BytesIO()

    def add(self, offset: int, data: memoryview) -> bool:
        """Append a chunk; False where it does not follow on what has arrived."""
        if offset != self.arrived_bytes or offset + len(data) > self.total_bytes:
            return False
        self.arrived_bytes += self.buffer.write(data)
        return True


class Receiver:
    """Everything that one endpoint receives, under the endpoint's lock. Large: its packs meet in one order of rules."""

    def __init__(self, node: int, endpoint: int, ack_bytes: int) -> None:
        self.node = node
        self.endpoint = endpoint
        self.ack_bytes = ack_bytes
        self.flows: dict[bytes, FlowReceiver] = {}
        self.to_acknowledge: dict[FlowReceiver, None] = {}  # at once, not at the next tick
        self.routes: dict[tuple[int, int], WireRoute] = {}  # (endpoint, wire number)
        self.cutovers = ReceiverCutovers(self)
        self._mixed: MixedReceiver | None = None
        self.streams: dict[tuple[int, int], ReceivedStream] = {}  # (endpoint, stream)
        self.subscriptions: set[int] = set()
        self.receptions: dict[int, dict[tuple[int, int], Reception]] = {}  # of `streams`, by subscriptions
        # Members of groups that were closed or have gone over to another stream, by (endpoint, stream, subscription): a
        # handler may still be at work on their events.
        self.finished: dict[tuple[int, int, int], Reception] = {}
        self.assemblies: dict[tuple[int, int, int], Assembly] = {}  # (endpoint, wire number, sequence)
        self.malformed = 0
        self.refused = 0  # packs that came before the ones that their streams wait for
        self.refused_flows: dict[FlowReceiver, None] = {}  # whose next packs these were
        self.duplicates: dict[int, int] = {}  # by subscription
        self._ended: dict[bytes, None] = {}  # flows, the last few thousand
        self._gone: dict[int, None] = {}  # endpoints, the last few thousand
        self._ending: set[ReceivedStream] = set()  # closed, with events still on their way
        self._unreadable: dict[int, None] = {}  # endpoints of which a pack was skipped, by flows that have ended
        self._skipped: list[Delivered] = []  # gaps that a declaration has shown, to be told ahead of what comes next

    # ---- flows ----

    def flow_declared(self, key: bytes, node: int, endpoint: int, flow: int) -> None:
        """A flow has this endpoint among its destinations; repeated after a relay was restarted."""
        if key not in self.flows and endpoint not in self._gone and key not in self._ended:
            self.flows[key] = FlowReceiver(node, endpoint, flow)

    def flow_ended(self, key: bytes) -> None:
        """The sender will not use this flow again, and all of it has arrived."""
        ended = self.flows.pop(key, None)
        if ended is not None:
            ended.is_over = True
            _remember(self._ended, key)
            if self._mixed is not None:
                self._mixed.flow_ended(ended.endpoint, ended.flow)
            if ended.has_skipped:
                _remember(self._unreadable, ended.endpoint)

    def endpoint_gone(self, endpoint: int) -> list[ReceivedStream]:
        """A sender has died: what it sent stays, what it would have sent is forgotten. The streams that it had."""
        _remember(self._gone, endpoint)
        for flow in self.flows.values():
            flow.is_over |= flow.endpoint == endpoint
        self.flows = {key: flow for key, flow in self.flows.items() if flow.endpoint != endpoint}
        self.routes = {key: route for key, route in self.routes.items() if key[0] != endpoint}
        self.cutovers.endpoint_gone(endpoint)
        if self._mixed is not None:
            self._mixed.endpoint_gone(endpoint)
        self.assemblies = {key: each for key, each in self.assemblies.items() if key[0] != endpoint}
        self._unreadable.pop(endpoint, None)
        self.finished = {key: each for key, each in self.finished.items() if key[0] != endpoint}
        gone = [stream for key, stream in self.streams.items() if key[0] == endpoint]
        for stream in gone:
            for subscription in stream.receptions:
                del self.receptions[subscription][endpoint, stream.number]
            del self.streams[endpoint, stream.number]
            self._ending.discard(stream)
        return gone

    # ---- packs ----

    def pack_received(self, flow: FlowReceiver, pack: Pack, size_bytes: int) -> list[Delivered]:
        """Take the next pack of a flow in: what is to be handed to which subscription. Nothing where it is refused,
        since its streams wait for something else first.
        """
        if len(pack.streams) == 1 and not pack.control:
            delivered = self._usual_pack(flow, pack, size_bytes)
            if delivered is not None:
                return delivered
        self.routes_declared(flow, pack.control)
        routes = self.routes
        endpoint = flow.endpoint
        runs: list[Addressees] = []
        is_ahead = False
        for wire, first in zip(pack.streams, pack.firsts, strict=True):
            route = routes.get((endpoint, wire))
            if route is None:
                # None is nobody of this endpoint: a subscription that was closed meanwhile.
                waiting = self.cutovers.waiting.get((endpoint, wire)) if self.cutovers.waiting else None
                is_ahead |= waiting is not None
                runs.append(waiting)
                continue
            if not route.grouped:
                for reception in route.receptions:
                    if first > reception.expected:
                        is_ahead = True
            runs.append(route)
        ending = self.cutovers.waiting_to_end(endpoint, pack.control) if self.cutovers.waiting else []
        if (is_ahead or ending) and not self._may_be_missing(flow) and self._leaves_gap(endpoint, pack, runs, ending):
            self._refuse(flow)
            return []
        self.accepted(flow, size_bytes)
        delivered = self._deliver(pack, runs, size_bytes)
        for declared in ending:
            self._open(declared, delivered)
        if self._skipped:
            delivered = [*self._skipped, *delivered]
            self._skipped.clear()
        for entry in pack.control:  # behind the last events, which may be in this very pack
            if entry[0] == "ended":
                self._stream_ended(endpoint, *entry[1:])
            elif entry[0] == "left":
                self.cutovers.stream_left(endpoint, *entry[1:])
            elif entry[0] == "mixture ended":
                self.mixed.mixture_ended(endpoint, entry[1])
        if self._ending:
            self._end_streams()
        return delivered

    def routes_declared(self, flow: FlowReceiver, control: list[Any]) -> None:
        """Take in what a pack declares; again where it is refused now and accepted later: that changes nothing."""
        for entry in control:
            if entry[0] == "route":
                self._route_declared(flow, *entry[1:])
            elif entry[0] == "lane":
                self.mixed.lane_declared(flow, *entry[1:])

    @property
    def mixed(self) -> MixedReceiver:
        """The mixtures that are received; there is none before one is declared."""
        if self._mixed is None:
            from echannel_ray.core.mixed_receipts import MixedReceiver

            self._mixed = MixedReceiver(self)
        return self._mixed

    def accepted(self, flow: FlowReceiver, size_bytes: int) -> None:
        """The next pack of a flow was taken in."""
        flow.accepted(size_bytes)
        if flow.unacked_bytes >= self.ack_bytes:
            self.to_acknowledge[flow] = None

    def _refuse(self, flow: FlowReceiver) -> None:
        self.refused += 1
        self.refused_flows[flow] = None
        flow.refused(self._others_have(flow))

    def _others_have(self, flow: FlowReceiver) -> int:
        flows = self.flows.values()
        return sum(each.received for each in flows if each.endpoint == flow.endpoint and each is not flow)

    def sent_too_early(self) -> list[FlowReceiver]:
        """The flows whose packs were refused and may be taken in now. Their senders would find out by probes, but a
        flow that goes by a direct link and one that does not overtake each other often.
        """
        ready = []
        for flow in [*self.refused_flows]:
            if flow.received >= flow.highest or flow.is_over:
                del self.refused_flows[flow]
            elif flow.is_to_be_sent_again(self._others_have(flow)):
                flow.asked_until = flow.highest
                ready.append(flow)
        return ready

    @property
    def has_to_look_twice(self) -> bool:
        """Whether gaps are to be told first, or streams end when what is missing has come."""
        return bool(self._skipped or self._ending)

    def _may_be_missing(self, flow: FlowReceiver) -> bool:
        """Whether what a pack waits for may never come, since one was skipped that had it: then it becomes a gap."""
        if flow.has_skipped:
            return True
        if flow.refusals < _MAX_REFUSALS:
            return False
        endpoint = flow.endpoint
        return endpoint in self._unreadable or any(
            other.has_skipped for other in self.flows.values() if other.endpoint == endpoint
        )

    def _usual_pack(self, flow: FlowReceiver, pack: Pack, size_bytes: int) -> list[Delivered] | None:
        """The short way of most packs: one run, next in order, for one subscription. None where it is not so simple."""
        route = self.routes.get((flow.endpoint, pack.streams[0]))
        if route is None or self._skipped or self._ending:
            return None
        reception = route.sole
        first = pack.firsts[0]
        kind = kind_at(pack, 0, 0)
        if reception is not None and reception.seat is not None:
            reception.stand_up()
        if reception is None or first != reception.own_expected or kind == GAP:
            return None
        flow.accepted(size_bytes)
        if flow.unacked_bytes >= self.ack_bytes:
            self.to_acknowledge[flow] = None
        reception.own_expected = first + pack.counts[0]
        events = pack.events if kind & 0xFF != BLOCK else Block(pack.events[0], pack.counts[0])
        run = Arrival(
            reception, first, events, pack.marks[0], size_bytes, route.redelivers, pack.delivery, 0, pack.stamp,
            route.handler_versions[0], kind,
        )  # fmt: skip
        return [run]

    def _deliver(self, pack: Pack, runs: list[Addressees], size_bytes: int) -> list[Delivered]:
        delivered: list[Delivered] = []
        offset = 0
        events = pack.events
        each_bytes = size_bytes // (len(events) or 1)
        end = _delivered_end(pack, runs) if pack.delivery and runs else 0
        number = _number_of(runs[-1]) if runs and runs[-1] is not None else None
        for i, route in enumerate(runs):
            count = pack.counts[i]
            kind = kind_at(pack, i, offset)
            entries = entries_of(kind, count)
            if isinstance(route, DeclaredRoute):
                route = runs[i] = self._open(route, delivered)
            if route is not None:
                if wire_kind(kind) == BLOCK:
                    taken: Any = Block(events[offset], count)
                else:
                    taken = events if count == len(events) else events[offset : offset + count]
                is_its_stream = number is None or _number_of(route) == number
                delivery = pack.delivery if is_its_stream and kind != GAP and pack.firsts[i] + count == end else 0
                run = Arrival(
                    route.receptions[0], pack.firsts[i], taken, pack.marks[i], each_bytes * entries, route.redelivers,
                    delivery, 0, pack.stamp, route.handler_versions[0], kind,
                )  # fmt: skip
                for reception, handler_version in zip(route.receptions, route.handler_versions, strict=True):
                    if reception is not run.source:
                        run = run._replace(source=reception, version=handler_version)
                    if kind == GAP:
                        self._deliver_gap(delivered, run)
                    elif route.grouped:
                        reception.expected = max(reception.expected, run.first + count)
                        delivered.append(run)
                    else:
                        self._deliver_run(delivered, run)
            offset += entries
        return delivered

    def _deliver_run(self, delivered: list[Delivered], run: Delivered) -> None:
        reception = run.source
        count = len(run.events)
        repeated = reception.expected - run.first
        if not repeated:
            reception.expected += count
            delivered.append(run)
            return
        if repeated < 0:
            delivered.append(_missing(reception, run.first, run.version))
            repeated = 0
        else:
            seen = self.duplicates
            seen[reception.subscription] = seen.get(reception.subscription, 0) + min(repeated, count)
        if repeated < count:
            reception.expected = run.first + count
            first = run.first + repeated
            delivered.append(run._replace(first=first, events=run.events[repeated:]))

    def _deliver_gap(self, delivered: list[Delivered], run: Delivered) -> None:
        reception = run.source
        last = run.events[0]
        if reception.grouped:  # whose members do not see every number
            delivered.append(run._replace(events=[], size_bytes=0, gap_last=last))
            reception.expected = max(reception.expected, last + 1)
        elif last >= reception.expected:
            start = max(run.first, reception.expected)
            delivered.append(run._replace(first=start, events=[], size_bytes=0, gap_last=last))
            reception.expected = last + 1

    def chunk_received(
        self, flow: FlowReceiver, fixed: tuple[int, int, int, int, int, int, int, int], data: memoryview
    ) -> tuple[list[Delivered], bytes] | None:
        """Take the next pack of a flow in, a chunk of a large event; with its last one, the event's bytes and who gets
        it.
        """
        wire, sequence, mark, kind, delivery, total, offset, token = fixed
        route: Addressees = self.routes.get((flow.endpoint, wire)) or self.cutovers.waiting.get((flow.endpoint, wire))
        if isinstance(route, DeclaredRoute):
            is_ahead = not self.cutovers.is_due(route, {})
        else:
            is_ahead = route is not None and not route.grouped and any(sequence > r.expected for r in route.receptions)
        if is_ahead and not self._may_be_missing(flow):
            self._refuse(flow)
            return None
        self.accepted(flow, len(data))
        if route is None:
            return None
        key = (flow.endpoint, wire, sequence)
        assembly = self.assemblies.get(key)
        if assembly is None:
            assembly = self.assemblies[key] = Assembly(total)
        if not assembly.add(offset, data):
            self.malformed += 1
            return None
        if assembly.arrived_bytes < assembly.total_bytes:
            return None
        del self.assemblies[key]
        tokens = token.to_bytes(TOKEN_BYTES, "little")
        whole = PackColumns([], [wire], [sequence], [1], [mark], bytes((kind,)), delivery, [None], 0.0, tokens)
        delivered = [*self._skipped, *self._deliver(whole, [route], total)]
        self._skipped.clear()
        if self._ending:
            self._end_streams()
        return delivered, assembly.buffer.getvalue()

    def _route_declared(
        self,
        flow: FlowReceiver,
        wire: int,
        number: int,
        producer: int,
        window_bytes: int,
        redelivers: bool,
        grouped: bool,
        who: list[list[Any]],
    ) -> None:
        mine = [each[1:] for each in who if each[0] == self.endpoint]
        declared = DeclaredRoute(
            flow.node, flow.endpoint, wire, number, producer, window_bytes, redelivers, grouped, mine
        )
        if self.cutovers.is_due(declared, {}):
            self._open(declared, self._skipped)
        else:
            self.cutovers.waiting[flow.endpoint, wire] = declared

    # ---- routes ----

    def reception(self, endpoint: int, number: int, subscription: int) -> Reception | None:
        """The reception of one stream at one subscription, if it is known."""
        stream = self.streams.get((endpoint, number))
        return stream.receptions.get(subscription) if stream is not None else None

    def _open(self, declared: DeclaredRoute, delivered: list[Delivered]) -> WireRoute | None:
        """Use a route from now on. What its subscriptions should have had before, and never will, is a gap."""
        endpoint, wire, number, grouped = declared.endpoint, declared.wire, declared.number, declared.grouped
        self.cutovers.waiting.pop((endpoint, wire), None)
        who = [each for each in declared.who if each[0] in self.subscriptions]
        if not who:
            return None
        for reception_left, last in self.cutovers.receptions_left(declared, who):
            self._leave_at_cutover(
                reception_left, last, is_same=reception_left.stream.number == number, delivered=delivered
            )
        stream = self.streams.get((endpoint, number))
        if stream is None:
            stream = ReceivedStream(declared.node, endpoint, number, declared.producer, declared.window_bytes)
            self.streams[endpoint, number] = stream
        receptions = [self._take_up(stream, each, grouped) for each in who]
        handler_versions = [each[3] for each in who]
        route = self.routes[endpoint, wire] = _wire_route(
            stream, receptions, handler_versions, declared.redelivers, grouped
        )
        return route

    def _leave_at_cutover(
        self, reception_left: Reception, last: int, is_same: bool, delivered: list[Delivered]
    ) -> None:
        if reception_left.expected <= last and not reception_left.grouped:
            delivered.append(_missing(reception_left, last + 1, reception_left.handler_version))
            reception_left.expected = last + 1
        if not is_same:
            self._forget(reception_left)
            if reception_left.grouped:
                stream = reception_left.stream
                self.finished[stream.endpoint, stream.number, reception_left.subscription] = reception_left

    def _take_up(self, stream: ReceivedStream, each: list[Any], grouped: bool) -> Reception:
        subscription, first_sequence, first_mark, handler_version, _ = each
        reception = stream.receptions.get(subscription)
        if reception is None:
            reception = Reception(stream, subscription, first_sequence, first_mark, handler_version)
            reception.grouped = grouped
            stream.receptions[subscription] = reception
            self.receptions.setdefault(subscription, {})[stream.endpoint, stream.number] = reception
            place = (stream.endpoint, stream.number, subscription)
            self.finished.pop(place, None)
            if (ends_at := self.cutovers.end_of(*place)) is not None:
                self.ends(reception, ends_at)
        elif handler_version > reception.handler_version:
            reception.handler_version = handler_version
            if not grouped:  # what is between was for another stream's consumers
                reception.expected = max(reception.expected, first_sequence)
        elif first_sequence > reception.expected and not grouped:
            # The producer had let go of this subscription and taken it up again: what is between was never sent to it.
            self._skipped.append(_missing(reception, first_sequence, handler_version))
            reception.expected = first_sequence
        return reception

    def ends(self, reception: Reception, ends_at: int) -> None:
        """Note that a stream sends nothing from this number on: it is forgotten when all before that is here."""
        reception.ends_at = ends_at
        self._ending.add(reception.stream)

    def _forget(self, reception: Reception) -> None:
        """End a reception: everything of its stream has arrived at its subscription."""
        reception.stand_up()
        stream = reception.stream
        del stream.receptions[reception.subscription]
        del self.receptions[reception.subscription][stream.endpoint, stream.number]
        self._leave_routes(reception.subscription, stream)
        if not stream.receptions:
            self.streams.pop((stream.endpoint, stream.number), None)
        if not any(each.ends_at is not None for each in stream.receptions.values()):
            self._ending.discard(stream)

    def _leaves_gap(self, endpoint: int, pack: Pack, runs: list[Addressees], ending: list[DeclaredRoute]) -> bool:
        """Whether a run begins behind what its subscription has by then, the earlier runs of the same pack included."""
        ends: dict[tuple[int, int], int] = {}  # (stream, subscription): what it expects next
        offset = 0
        for i, route in enumerate(runs):
            count = pack.counts[i]
            if route is not None:
                kind = kind_at(pack, i, offset)
                first = pack.firsts[i]
                behind = pack.events[offset] + 1 if kind == GAP else first + count
                if isinstance(route, DeclaredRoute) and not self.cutovers.is_due(route, ends):
                    return True
                for key, expected in self._expected(route):
                    expected = max(expected, ends.get(key, 0))
                    if first > expected and not route.grouped:
                        return True
                    ends[key] = max(expected, behind)
            offset += entries_of(kind_at(pack, i, offset), count)
        return not all(self.cutovers.is_due(declared, ends) for declared in ending)

    def _expected(self, route: WireRoute | DeclaredRoute) -> list[tuple[tuple[int, int], int]]:
        if isinstance(route, WireRoute):
            number = route.stream.number
            return [((number, reception.subscription), reception.expected) for reception in route.receptions]
        return [((route.number, each[0]), each[1]) for each in route.who if each[0] in self.subscriptions]

    def _stream_ended(self, endpoint: int, number: int, ends_at: int, who: list[list[int]]) -> None:
        stream = self.streams.get((endpoint, number))
        if stream is None:
            return
        for each, subscription in who:
            reception = stream.receptions.get(subscription) if each == self.endpoint else None
            if reception is not None:
                # Members of groups do not see every number; what they get has come by this flow, ahead of its end.
                self.ends(reception, 0 if reception.grouped else ends_at)

    def _end_streams(self) -> None:
        """Forget closed streams of which everything has arrived: an earlier flow may still have events to bring."""
        for stream in [*self._ending]:
            for reception in [*stream.receptions.values()]:
                if reception.ends_at is not None and reception.expected >= reception.ends_at:
                    self._forget(reception)

    def _leave_routes(self, subscription: int, stream: ReceivedStream | None = None) -> None:
        """Take a subscription out of the routes (of one stream): nothing more goes to it."""
        for key, route in [*self.routes.items()]:
            if stream is None or route.stream is stream:
                left = [i for i, r in enumerate(route.receptions) if r.subscription != subscription]
                if not left:
                    del self.routes[key]
                    for assembly in [each for each in self.assemblies if each[:2] == key]:
                        del self.assemblies[assembly]
                elif len(left) < len(route.receptions):
                    receptions = [route.receptions[i] for i in left]
                    handler_versions = [route.handler_versions[i] for i in left]
                    self.routes[key] = _wire_route(
                        route.stream, receptions, handler_versions, route.redelivers, route.grouped
                    )

    # ---- subscriptions ----

    def subscription_opened(self, subscription: int) -> None:
        """Take in the events of a subscription from now on."""
        self.subscriptions.add(subscription)

    def subscription_closed(self, subscription: int) -> list[Reception]:
        """Discard the events of a subscription from now on; where each of its streams stood."""
        self.subscriptions.discard(subscription)
        self.duplicates.pop(subscription, None)
        self.receptions.pop(subscription, None)
        self.cutovers.subscription_closed(subscription)
        closed = []
        for key, stream in [*self.streams.items()]:
            reception = stream.receptions.pop(subscription, None)
            if reception is not None:
                reception.stand_up()
                reception.final = True
                closed.append(reception)
                if reception.grouped:
                    self.finished[key[0], key[1], subscription] = reception
            if not stream.receptions:
                del self.streams[key]
                self._ending.discard(stream)
        self._leave_routes(subscription)
        return closed

    def stand_up_all(self, subscription: int) -> None:
        """Something is to be handled for a subscription that comes by no mixture: its events come in runs from here
        on, until it is at rest again.
        """
        for reception in self.receptions.get(subscription, {}).values():
            reception.stand_up()

    def credit_wanted(self, endpoint: int, number: int, subscription: int, mark: int) -> tuple[int, bool] | None:
        """A producer waits until `mark` is handled: what to report at once (mark, whether it is final), if anything."""
        stream = self.streams.get((endpoint, number))
        reception = stream.receptions.get(subscription) if stream else None
        if reception is None:
            finished = self.finished.get((endpoint, number, subscription))
            if subscription not in self.subscriptions:
                return finished.handled_mark if finished is not None else 0, True
            if finished is None:
                return None  # it has not reached us yet: the producer asks again
            reception = finished  # it has gone over to another stream, and its handler may be at work on this one
        return reception.wanted(mark), False

    def arrived(self, subscription: int, handler_version: int) -> dict[str, int]:
        """Of each stream what this handler version of its gets next, if it is no member of a group: see `lags`."""
        receptions = self.receptions.get(subscription, {}).values()
        return {
            place_of(stream_name(each.stream.endpoint, each.stream.number), self.endpoint, subscription): each.expected
            for each in receptions
            if each.handler_version >= handler_version and not each.grouped  # others are of a stream that it has left
        }

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for subscription, receptions in self.receptions.items():
            assert subscription in self.subscriptions
            assert all(self.streams[key].receptions[subscription] is each for key, each in receptions.items())
        assert sum(map(len, self.receptions.values())) == sum(len(each.receptions) for each in self.streams.values())
        for (endpoint, number), stream in self.streams.items():
            assert (stream.endpoint, stream.number) == (endpoint, number)
            assert stream.receptions
            assert set(stream.receptions) <= self.subscriptions
        for (endpoint, _), route in self.routes.items():
            assert route.stream.endpoint == endpoint
            assert route.receptions
            assert len(route.handler_versions) == len(route.receptions)
            assert (route.sole is not None) == (len(route.receptions) == 1 and not route.grouped)
            assert all(route.stream.receptions.get(r.subscription) is r for r in route.receptions)
        for key, declared in self.cutovers.waiting.items():
            assert key == (declared.endpoint, declared.wire)
            assert key not in self.routes
        for assembly in self.assemblies.values():
            assert assembly.arrived_bytes < assembly.total_bytes
        for stream in self._ending:
            assert self.streams.get((stream.endpoint, stream.number)) is stream
        for endpoint, wire, _ in self.assemblies:
            assert (endpoint, wire) in self.routes


def _wire_route(
    stream: ReceivedStream, receptions: list[Reception], handler_versions: list[int], redelivers: bool, grouped: bool
) -> WireRoute:
    sole = receptions[0] if len(receptions) == 1 and not grouped else None
    return WireRoute(stream, receptions, handler_versions, redelivers, grouped, sole)


def _delivered_end(pack: Pack, runs: list[Addressees]) -> int:
    """The number behind the pack's delivered event, which is the last of the stream that its last run is of.

    That stream's plain recipients, laggards and the chosen members of its groups get what they get in runs of their
    own, so the delivered event need not be in the last run; and who lacks it has a gap there.
    """
    stream = None if runs[-1] is None else _number_of(runs[-1])
    end = offset = 0
    for i, run in enumerate(runs):
        count = pack.counts[i]
        kind = kind_at(pack, i, offset)
        offset += entries_of(kind, count)
        if kind != GAP and (None if run is None else _number_of(run)) == stream:
            end = max(end, pack.firsts[i] + count)
    return end


def _number_of(run: WireRoute | DeclaredRoute) -> int:
    return run.stream.number if isinstance(run, WireRoute) else run.number


def _missing(reception: Reception, until: int, handler_version: int) -> Delivered:
    """A gap of events that were never sent to a subscription, or that nobody can read."""
    mark = reception.handled_mark
    return Arrival(reception, reception.expected, [], mark, 0, False, 0, until - 1, version=handler_version)


def _remember(last: dict[Any, None], item: Any) -> None:
    """Keep this one, and forget one of long ago: what could still speak of that has arrived or been lost since."""
    last[item] = None
    if len(last) > 4096:
        del last[next(iter(last))]
