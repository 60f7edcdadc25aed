"""What one endpoint receives: flows, the streams inside them, and how far each subscription has come.

Rules:

* A pack is taken in whole or not at all: it must be the next of its flow, and none of its runs may leave a gap in a
  subscription. (A stream that changed its flow may have packs of the earlier flow still on their way; then the later
  flow waits, and is probed.)
* Per subscription, events of one stream arrive without gap or repetition. Only members of groups see some numbers and
  not others.
* What is handled is reported by marks (see `sending`): each `credit_bytes`, or at once when the producer asked for a
  mark that is reached.
* What came from an endpoint that is gone is forgotten, and so is a flow that has ended; neither number is ever used
  again.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, NamedTuple

from echannel_ray.protocol.flows import FlowReceiver
from echannel_ray.protocol.gathering import GAP, Columns, Pack


class Reception:
    """One stream at one subscription."""

    __slots__ = (
        "credited_mark", "ends_at", "expected", "final", "grouped", "handled_mark", "stream", "subscription",
        "wanted_mark",
    )  # fmt: skip

    def __init__(self, stream: ReceivedStream, subscription: int, first_sequence: int, first_mark: int) -> None:
        self.stream = stream
        self.subscription = subscription
        self.expected = first_sequence
        self.handled_mark = first_mark
        self.credited_mark = first_mark
        self.wanted_mark: int | None = None
        self.grouped = False
        self.final = False
        self.ends_at: int | None = None  # the stream was closed: nothing comes from this number on

    def handled(self, mark: int) -> bool:
        """Everything up to `mark` was handled; True when that is to be reported now."""
        if mark < self.handled_mark and not self.grouped:
            mark = self.handled_mark  # a gap that was found out late
        self.handled_mark = mark
        wanted = self.wanted_mark
        if wanted is not None and mark >= wanted:
            return True
        return mark - self.credited_mark >= self.stream.credit_bytes or mark < self.credited_mark

    def credit(self) -> int:
        """The mark to report now."""
        self.credited_mark = self.handled_mark
        if self.wanted_mark is not None and self.handled_mark >= self.wanted_mark:
            self.wanted_mark = None
        return self.handled_mark


class ReceivedStream:
    """One producer's stream, at one endpoint that consumes it."""

    __slots__ = ("channel", "credit_bytes", "endpoint", "node", "number", "receptions")

    def __init__(self, node: int, endpoint: int, number: int, channel: str, window_bytes: int) -> None:
        self.node = node
        self.endpoint = endpoint
        self.number = number
        self.channel = channel
        self.credit_bytes = max(1, window_bytes // 4)
        self.receptions: dict[int, Reception] = {}


class WireRoute(NamedTuple):
    """What a wire number of a flow stands for at this endpoint."""

    stream: ReceivedStream
    receptions: list[Reception]
    redelivers: bool
    grouped: bool


class Delivered(NamedTuple):
    """Events for one subscription, in order. A gap has no events: it stands for `first` to `last`."""

    reception: Reception
    first: int
    events: list[Any]
    mark: int
    size_bytes: int
    redelivered: bool
    delivery: int
    gap_last: int = 0
    published_at: float = 0.0


class Assembly:
    """A large event that is arriving in chunks, in order."""

    __slots__ = ("arrived_bytes", "buffer", "total_bytes")

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.arrived_bytes = 0
        # Grows with what arrives, whatever total a peer claims; and gives its bytes away in the end without a copy.
        self.buffer = BytesIO()

    def add(self, offset: int, data: memoryview) -> bool:
        """One more chunk; False where it does not follow on what has arrived."""
        if offset != self.arrived_bytes or offset + len(data) > self.total_bytes:
            return False
        self.arrived_bytes += self.buffer.write(data)
        return True


class Receiver:
    """Everything that one endpoint receives; the shell calls it under the endpoint's lock."""

    def __init__(self, node: int, endpoint: int, ack_bytes: int) -> None:
        self.node = node
        self.endpoint = endpoint
        self.ack_bytes = ack_bytes
        self.flows: dict[bytes, FlowReceiver] = {}
        self.routes: dict[tuple[int, int], WireRoute] = {}  # (endpoint, wire number)
        self.streams: dict[tuple[int, int], ReceivedStream] = {}  # (endpoint, stream)
        self.subscriptions: set[int] = set()
        # Closed members of groups, by (endpoint, stream, subscription): a handler may still be at work on its last
        # event.
        self.finished: dict[tuple[int, int, int], Reception] = {}
        self.assemblies: dict[tuple[int, int, int], Assembly] = {}  # (endpoint, wire number, sequence)
        self.malformed = 0
        self.refused = 0  # packs that came before the ones that their streams wait for
        self.duplicates: dict[int, int] = {}  # by subscription
        self._ended: dict[bytes, None] = {}  # flows, the last few thousand
        self._gone: dict[int, None] = {}  # endpoints, the last few thousand
        self._ending: set[ReceivedStream] = set()  # closed, with events still on their way
        self._skipped: list[Delivered] = []  # gaps that a declaration has shown, to be told ahead of what comes next

    # ---- flows ----

    def flow_declared(self, key: bytes, node: int, endpoint: int, flow: int) -> None:
        """A flow has this endpoint among its destinations; repeated after a relay was restarted."""
        if key not in self.flows and endpoint not in self._gone and key not in self._ended:
            self.flows[key] = FlowReceiver(node, endpoint, flow)

    def flow_ended(self, key: bytes) -> None:
        """The sender will not use this flow again, and all of it has arrived."""
        if self.flows.pop(key, None) is not None:
            _remember(self._ended, key)

    def endpoint_gone(self, endpoint: int) -> list[ReceivedStream]:
        """A sender has died: what it sent stays, what it would have sent is forgotten. The streams that it had."""
        _remember(self._gone, endpoint)
        self.flows = {key: flow for key, flow in self.flows.items() if flow.endpoint != endpoint}
        self.routes = {key: route for key, route in self.routes.items() if key[0] != endpoint}
        self.assemblies = {key: each for key, each in self.assemblies.items() if key[0] != endpoint}
        self.finished = {key: each for key, each in self.finished.items() if key[0] != endpoint}
        gone = [stream for key, stream in self.streams.items() if key[0] == endpoint]
        for stream in gone:
            del self.streams[endpoint, stream.number]
            self._ending.discard(stream)
        return gone

    # ---- packs ----

    def pack_received(self, flow: FlowReceiver, number: int, pack: Pack, size_bytes: int) -> list[Delivered] | None:
        """Take a pack in: what is to be handed to which subscription; None where it was not the one that is next."""
        if not flow.is_next(number):
            flow.ack_wanted = True
            return None
        if len(pack.streams) == 1 and not pack.control:
            delivered = self._usual_pack(flow, pack, size_bytes)
            if delivered is not None:
                return delivered
        for entry in pack.control:
            if entry[0] == "route":  # again where the pack is refused now and accepted later: that changes nothing
                self._route_declared(flow, *entry[1:])
        routes = self.routes
        endpoint = flow.endpoint
        runs: list[WireRoute | None] = []
        is_ahead = False
        for wire, first in zip(pack.streams, pack.firsts, strict=True):
            route = routes.get((endpoint, wire))
            if route is None:
                runs.append(None)  # nobody of this endpoint: a subscription that was closed meanwhile
                continue
            if not route.grouped:
                for reception in route.receptions:
                    if first > reception.expected:
                        is_ahead = True
            runs.append(route)
        # Where a pack was skipped, what is missing may never come: then it becomes a gap.
        if is_ahead and not flow.has_skipped and _leaves_gap(pack, runs):
            self.refused += 1
            return None
        flow.accepted(size_bytes)
        if flow.unacked_bytes >= self.ack_bytes:
            flow.ack_wanted = True
        delivered = self._deliver(pack, runs, size_bytes)
        if self._skipped:
            delivered = [*self._skipped, *delivered]
            self._skipped.clear()
        for entry in pack.control:
            if entry[0] == "ended":  # behind the last events, which may be in this very pack
                self._stream_ended(flow.endpoint, *entry[1:])
        if self._ending:
            self._end_streams()
        return delivered

    def _usual_pack(self, flow: FlowReceiver, pack: Pack, size_bytes: int) -> list[Delivered] | None:
        """The short way of most packs: one run, next in order, for one subscription. None where it is not so simple."""
        route = self.routes.get((flow.endpoint, pack.streams[0]))
        if route is None or route.grouped or len(route.receptions) != 1 or self._skipped or self._ending:
            return None
        reception = route.receptions[0]
        first = pack.firsts[0]
        if first != reception.expected or (pack.kinds and pack.kinds[0] == GAP):
            return None
        flow.accepted(size_bytes)
        if flow.unacked_bytes >= self.ack_bytes:
            flow.ack_wanted = True
        reception.expected = first + pack.counts[0]
        return [
            Delivered(
                reception, first, pack.events, pack.marks[0], size_bytes, route.redelivers, pack.delivery, 0, pack.stamp
            )
        ]

    def _deliver(self, pack: Pack, runs: list[WireRoute | None], size_bytes: int) -> list[Delivered]:
        delivered: list[Delivered] = []
        offset = 0
        events = pack.events
        kinds = pack.kinds
        each_bytes = size_bytes // (len(events) or 1)
        for i, route in enumerate(runs):
            count = pack.counts[i]
            if route is not None:
                kind = (kinds[0] if len(kinds) == 1 else kinds[offset]) if kinds else 0
                taken = events if count == len(events) else events[offset : offset + count]
                delivery = pack.delivery if pack.delivery and _is_delivered(pack, runs, i) else 0
                run = Delivered(
                    route.receptions[0], pack.firsts[i], taken, pack.marks[i], each_bytes * count, route.redelivers,
                    delivery, 0, pack.stamp,
                )  # fmt: skip
                for reception in route.receptions:
                    if kind == GAP:
                        self._deliver_gap(delivered, reception, run)
                    elif route.grouped:
                        delivered.append(run._replace(reception=reception))
                    else:
                        self._deliver_run(delivered, reception, run)
            offset += count
        return delivered

    def _deliver_run(self, delivered: list[Delivered], reception: Reception, run: Delivered) -> None:
        count = len(run.events)
        repeated = reception.expected - run.first
        if not repeated:
            reception.expected += count
            delivered.append(run if run.reception is reception else run._replace(reception=reception))
            return
        if repeated < 0:
            delivered.append(_missing(reception, run.first))
            repeated = 0
        else:
            seen = self.duplicates
            seen[reception.subscription] = seen.get(reception.subscription, 0) + min(repeated, count)
        if repeated < count:
            reception.expected = run.first + count
            first = run.first + repeated
            delivered.append(run._replace(reception=reception, first=first, events=run.events[repeated:]))

    def _deliver_gap(self, delivered: list[Delivered], reception: Reception, run: Delivered) -> None:
        last = run.events[0]
        if reception.grouped:  # whose members do not see every number
            delivered.append(run._replace(reception=reception, events=[], size_bytes=0, gap_last=last))
        elif last >= reception.expected:
            start = max(run.first, reception.expected)
            delivered.append(run._replace(reception=reception, first=start, events=[], size_bytes=0, gap_last=last))
            reception.expected = last + 1

    def chunk_received(
        self, flow: FlowReceiver, number: int, fixed: tuple[int, int, int, int, int, int, int], data: memoryview
    ) -> tuple[list[Delivered], bytes] | None:
        """Take a chunk of a large event in; with its last one, the event's bytes and who gets it."""
        if not flow.is_next(number):
            flow.ack_wanted = True
            return None
        wire, sequence, mark, kind, delivery, total, offset = fixed
        route = self.routes.get((flow.endpoint, wire))
        is_ahead = route is not None and not route.grouped and any(sequence > r.expected for r in route.receptions)
        if is_ahead and not flow.has_skipped:
            self.refused += 1
            return None
        flow.accepted(len(data))
        if flow.unacked_bytes >= self.ack_bytes:
            flow.ack_wanted = True
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
        whole = Columns([], [wire], [sequence], [1], [mark], bytes((kind,)), delivery, [None])
        delivered = self._deliver(whole, [route], total)
        if self._ending:
            self._end_streams()
        return delivered, assembly.buffer.getvalue()

    def _route_declared(
        self,
        flow: FlowReceiver,
        wire: int,
        number: int,
        channel: str,
        window_bytes: int,
        redelivers: bool,
        grouped: bool,
        who: list[list[int]],
    ) -> None:
        mine = [each[1:] for each in who if each[0] == self.endpoint and each[1] in self.subscriptions]
        if not mine:
            return
        key = (flow.endpoint, number)
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = ReceivedStream(flow.node, flow.endpoint, number, channel, window_bytes)
        receptions = []
        for subscription, first_sequence, first_mark in mine:
            reception = stream.receptions.get(subscription)
            if reception is None:
                reception = Reception(stream, subscription, first_sequence, first_mark)
                reception.grouped = grouped
                stream.receptions[subscription] = reception
            elif first_sequence > reception.expected and not grouped:
                # The producer had let go of this subscription and taken it up again: what is between was never sent to
                # it.
                self._skipped.append(_missing(reception, first_sequence))
                reception.expected = first_sequence
            receptions.append(reception)
        self.routes[flow.endpoint, wire] = WireRoute(stream, receptions, redelivers, grouped)

    def _stream_ended(self, endpoint: int, number: int, ends_at: int, who: list[list[int]]) -> None:
        stream = self.streams.get((endpoint, number))
        if stream is None:
            return
        for each, subscription in who:
            reception = stream.receptions.get(subscription) if each == self.endpoint else None
            if reception is not None:
                # Members of groups do not see every number; what they get has come by this flow, ahead of its end.
                reception.ends_at = 0 if reception.grouped else ends_at
                self._ending.add(stream)

    def _end_streams(self) -> None:
        """Forget closed streams of which everything has arrived: an earlier flow may still have events to bring."""
        for stream in [*self._ending]:
            for number, reception in [*stream.receptions.items()]:
                if reception.ends_at is not None and reception.expected >= reception.ends_at:
                    del stream.receptions[number]
                    self._leave_routes(number, stream)
            if not any(reception.ends_at is not None for reception in stream.receptions.values()):
                self._ending.discard(stream)
            if not stream.receptions:
                self.streams.pop((stream.endpoint, stream.number), None)

    def _leave_routes(self, subscription: int, stream: ReceivedStream | None = None) -> None:
        """Nothing more goes to this subscription (by this stream)."""
        for key, route in [*self.routes.items()]:
            if stream is None or route.stream is stream:
                left = [r for r in route.receptions if r.subscription != subscription]
                if not left:
                    del self.routes[key]
                    for assembly in [each for each in self.assemblies if each[:2] == key]:
                        del self.assemblies[assembly]
                elif len(left) < len(route.receptions):
                    self.routes[key] = route._replace(receptions=left)

    # ---- subscriptions ----

    def subscription_opened(self, subscription: int) -> None:
        """From now on its events are taken in."""
        self.subscriptions.add(subscription)

    def subscription_closed(self, subscription: int) -> list[Reception]:
        """Its events are discarded from now on. Where each of its streams stood."""
        self.subscriptions.discard(subscription)
        self.duplicates.pop(subscription, None)
        closed = []
        for key, stream in [*self.streams.items()]:
            reception = stream.receptions.pop(subscription, None)
            if reception is not None:
                reception.final = True
                closed.append(reception)
                if reception.grouped:
                    self.finished[key[0], key[1], subscription] = reception
            if not stream.receptions:
                del self.streams[key]
                self._ending.discard(stream)
        self._leave_routes(subscription)
        return closed

    def credit_wanted(self, endpoint: int, number: int, subscription: int, mark: int) -> tuple[int, bool] | None:
        """A producer waits until `mark` is handled: what to report at once (mark, whether it is final), if anything."""
        stream = self.streams.get((endpoint, number))
        reception = stream.receptions.get(subscription) if stream else None
        if reception is None:
            if subscription in self.subscriptions:
                return None  # it has not reached us yet: the producer asks again
            finished = self.finished.get((endpoint, number, subscription))
            return finished.handled_mark if finished is not None else 0, True
        reception.wanted_mark = mark
        return reception.credit(), False

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for (endpoint, number), stream in self.streams.items():
            assert (stream.endpoint, stream.number) == (endpoint, number)
            assert stream.receptions
            assert set(stream.receptions) <= self.subscriptions
        for (endpoint, _), route in self.routes.items():
            assert route.stream.endpoint == endpoint
            assert route.receptions
        for assembly in self.assemblies.values():
            assert assembly.arrived_bytes < assembly.total_bytes
        for stream in self._ending:
            assert self.streams.get((stream.endpoint, stream.number)) is stream
        for endpoint, wire, _ in self.assemblies:
            assert (endpoint, wire) in self.routes


def _is_delivered(pack: Pack, runs: list[WireRoute | None], i: int) -> bool:
    """Whether this run ends with the pack's last event, which somebody delivers and waits for.

    The plain recipients of a stream and the chosen member of a group get that event in a run each.
    """
    last, final = runs[-1], pack.firsts[-1] + pack.counts[-1]
    run = runs[i]
    same_stream = last is None or (run is not None and run.stream is last.stream)
    return same_stream and pack.firsts[i] + pack.counts[i] == final


def _missing(reception: Reception, until: int) -> Delivered:
    """A gap of events that were never sent to a subscription, or that nobody can read."""
    return Delivered(reception, reception.expected, [], reception.handled_mark, 0, False, 0, until - 1)


def _leaves_gap(pack: Pack, runs: list[WireRoute | None]) -> bool:
    """Whether a run begins behind what its subscription has by then, the earlier runs of the same pack included."""
    ends: dict[Reception, int] = {}
    offset = 0
    for i, route in enumerate(runs):
        count = pack.counts[i]
        if route is not None and not route.grouped:
            kind = (pack.kinds[0] if len(pack.kinds) == 1 else pack.kinds[offset]) if pack.kinds else 0
            behind = pack.events[offset] + 1 if kind == GAP else pack.firsts[i] + count
            for reception in route.receptions:
                expected = ends.get(reception, reception.expected)
                if pack.firsts[i] > expected:
                    return True
                ends[reception] = max(expected, behind)
        offset += count
    return False


def _remember(last: dict[Any, None], item: Any) -> None:
    """Keep this one, and forget one of long ago: what could still speak of that has arrived or been lost since."""
    last[item] = None
    if len(last) > 4096:
        del last[next(iter(last))]
