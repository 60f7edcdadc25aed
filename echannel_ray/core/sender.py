"""What one endpoint sends: streams, the routes that they take, and their windows.

Rules:

* A *stream* is what one producer puts on one channel, or on one derived channel. Its events are numbered from 1, and
  its `published_bytes` only grow: the value after an event is that event's *mark*, and consumers report how far they
  are by marks.
* A *recipient* is one subscription in another process. Plain recipients share a route: one flow to all their
  endpoints. A member of a group, and a recipient that lags behind where the producer drops, has a route of its own.
* A *route* is a wire number for (stream, who of the endpoint is meant), declared inside the first pack that uses it.
  When the plain recipients change, the stream gets a new route; the receivers put the two in order by sequence numbers.
* `limit_bytes` is the mark up to which the hot path may publish without asking: the slowest plain recipient's mark
  and a window. It is NEVER where the hot path would be wrong: nobody to send to, groups, laggards, consumers in this
  process, closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from echannel_ray.core import credit
from echannel_ray.core.cutover import SenderCutovers
from echannel_ray.core.flows import FlowSender
from echannel_ray.core.frames import Buffer
from echannel_ray.core.gather import Gather
from echannel_ray.core.kinds import GAP, wire_kind
from echannel_ray.core.laggards import Laggards
from echannel_ray.core.messages import Consumer
from echannel_ray.core.packing import Packing
from echannel_ray.core.streams import (
    FOR_GROUP,
    NEVER,
    NEWEST,
    CutoverPoint,
    Recipient,
    RecipientKey,
    Route,
    SenderStream,
    Unhandled,
)
from echannel_ray.core.windows import full_recipients, group_has_room, has_room, holds_up

if TYPE_CHECKING:
    from echannel_ray.core.mixtures import Mixture

_NO_CUTOVER_POINTS: Mapping[RecipientKey, CutoverPoint] = {}


class Sender:
    """Everything that one endpoint sends, under the endpoint's lock. Large: plain recipients, groups and flows meet."""

    def __init__(self, node: int, endpoint: int, out: deque[Buffer], clock_offset_seconds: float = 0.0) -> None:
        """`out` is where frames for the concentrator are put."""
        self.node = node
        self.endpoint = endpoint
        self.out = out
        self.neighbours: dict[int, deque[Buffer]] = {}  # by endpoint: where frames for its direct link are put
        self.clock_offset_seconds = clock_offset_seconds  # from the clock of `now` to everybody's
        self.streams: dict[int, SenderStream] = {}
        self.flows: dict[int, FlowSender] = {}
        self.gathers: dict[int, Gather] = {}  # by flow number
        self.new_flows: list[FlowSender] = []  # to be declared to the concentrator before their first pack
        self.flow_to: dict[frozenset[tuple[int, int]], FlowSender] = {}
        self._apart: dict[int, SenderStream] = {}  # that have, or had, groups or laggards
        self.laggards = Laggards(self)
        self.cutovers = SenderCutovers(self)
        self._next_flow = 1
        self._next_route = 1
        self._next_stream = 1
        self._next_mixture = 1

    # ---- streams and membership ----

    def open_stream(
        self,
        channel: str,
        overflow: str,
        window_bytes: int,
        packing: Packing = Packing(),  # noqa: B008 (it is frozen)
    ) -> SenderStream:
        """Make the stream of a new producer."""
        number = self._next_stream
        stream = SenderStream(number, channel, overflow, window_bytes, packing, lambda: self.clock_offset_seconds)
        self.streams[stream.number] = stream
        self._next_stream += 1
        return stream

    def close_stream(self, stream: SenderStream) -> None:
        """A producer was closed: tell its recipients, also of what they missed, and leave its routes."""
        self.end_run(stream)
        # Now: the credit at which they would be told comes too late.
        for recipient in [*stream.laggards]:
            self.laggards.send_all(stream, recipient)
        for name in [*stream.group_gaps]:
            self.tell_group_gap(stream, name)
        stream.closed = True
        for route in (stream.route, *(r.route for r in stream.recipients.values())):
            # Also by a route that carried nothing: what earlier ones carried may still be on its way.
            if route is None:
                continue
            if any(r.first_sequence < stream.next_sequence for r in route.recipients):
                route.declare(stream)
                who = [[r.endpoint, r.subscription] for r in route.recipients]
                route.gather.say(["ended", stream.number, stream.next_sequence, who])
            self.cutovers.stream_closed(stream, route)
        self._leave(stream, stream.route)
        stream.go_by(None)
        for recipient in stream.recipients.values():
            self.leave_own_routes(stream, recipient)
        stream.recipients.clear()
        stream.groups.clear()
        stream.laggards.clear()
        stream.refresh_limit()
        self.streams.pop(stream.number, None)
        for flow in stream.flows:
            flow.carries.discard(stream)

    def membership_changed(
        self,
        stream: SenderStream,
        version: tuple[int, int],
        consumers: Iterable[Consumer],
        deleted: bool = False,
        cutover_points: Mapping[RecipientKey, CutoverPoint] = _NO_CUTOVER_POINTS,
    ) -> None:
        """The manager's list of consumers; those of this endpoint itself are not among them.

        `cutover_points` has the cut-over points of those that come from another stream of this producer: see
        `SenderCutovers.cutover_point_of`.
        """
        if version <= stream.version or stream.closed:
            return
        self.end_run(stream)
        stream.version = version
        stream.deleted = deleted
        wanted = {(c.endpoint, c.subscription): c for c in consumers}
        for key in [key for key in stream.recipients if key not in wanted]:
            recipient = stream.recipients[key]
            if recipient.consumer.group is not None:
                recipient.become("not listed")
                if not recipient.sent:
                    self.drop(stream, recipient)
            else:
                self.drop(stream, recipient)
        for key, consumer in wanted.items():
            known = stream.recipients.get(key)
            if known is None:
                self.take_up(stream, consumer, cutover_points.get(key))
            elif known.consumer.handler_version == consumer.handler_version:
                if known.consumer.group is not None:
                    known.become("listed")
            else:
                self.cutovers.replace_handler_version(stream, known, consumer, cutover_points.get(key))
        self.reroute(stream)
        for name in [*stream.undelivered]:
            self.redistribute(stream, name)

    def take_up(self, stream: SenderStream, consumer: Consumer, cutover_point: CutoverPoint | None) -> None:
        """Make a subscription a recipient of a stream."""
        recipient = Recipient(consumer, stream.next_sequence, stream.published_bytes, cutover_point)
        stream.recipients[consumer.endpoint, consumer.subscription] = recipient
        if cutover_point is not None and (stream_before := self.streams.get(cutover_point[0])) is not None:
            stream.uses(stream_before.flows)  # until it has used one of its own: see `is_last_flow_used`
        if consumer.group is not None:
            self.give_own_route(recipient)
            stream.groups.setdefault(consumer.group, []).append(recipient)

    def endpoint_gone(self, endpoint: int, now: float) -> list[SenderStream]:
        """Forget a destination that has died: the streams that had recipients there."""
        for flow in self.flows.values():
            flow.endpoint_gone(endpoint, now)
        concerned = []
        for stream in self.streams.values():
            gone = [r for r in stream.recipients.values() if r.endpoint == endpoint]
            if gone:
                self.end_run(stream)
                for recipient in gone:
                    self.drop(stream, recipient)
                self.reroute(stream)
                for name in [*stream.undelivered]:
                    self.redistribute(stream, name)
                concerned.append(stream)
        return concerned

    def drop(self, stream: SenderStream, recipient: Recipient) -> None:
        """Forget a recipient; what a member of a group had not handled goes to the others."""
        del stream.recipients[recipient.endpoint, recipient.subscription]
        recipient.become("dropped")
        if recipient in stream.laggards:
            stream.laggards.remove(recipient)
        group = recipient.consumer.group
        if group is not None:
            members = stream.groups[group]
            members.remove(recipient)
            if recipient.sent:
                for unhandled in recipient.sent:
                    unhandled.redelivered = True
                left = stream.undelivered.setdefault(group, deque())
                merged = sorted([*left, *recipient.sent], key=lambda unhandled: unhandled.sequence)
                stream.undelivered[group] = deque(merged)
            if not members:
                del stream.groups[group]
                stream.group_gaps.pop(group, None)
        self.leave_own_routes(stream, recipient)

    def reroute(self, stream: SenderStream) -> None:
        """Give the stream the route that its plain recipients need now."""
        plain = [r for r in stream.recipients.values() if r.consumer.group is None and not r.is_lagging]
        if plain != stream.plain_recipients:
            self._leave(stream, stream.route)
            stream.go_by(self._make_route(plain) if plain else None)
        stream.refresh_limit()
        if stream.groups or stream.laggards:
            self._apart[stream.number] = stream

    def served_apart(self) -> list[SenderStream]:
        """The streams that have recipients with a route of their own: those that somebody has to look after."""
        for number, stream in [*self._apart.items()]:
            if stream.closed or not (stream.groups or stream.laggards):
                del self._apart[number]
        return [*self._apart.values()]

    def _make_route(self, recipients: list[Recipient]) -> Route:
        flow = self._flow_to(frozenset((r.node, r.endpoint) for r in recipients))
        return self._make_route_by(flow, recipients)

    def _make_route_by(self, flow: FlowSender, recipients: list[Recipient], redelivers: bool = False) -> Route:
        route = Route(self._next_route, flow, self.gathers[flow.number], recipients, redelivers)
        self._next_route += 1
        return route

    def give_own_route(self, recipient: Recipient) -> None:
        """Serve it apart from the plain recipients."""
        recipient.route = self._make_route([recipient])

    def leave_own_routes(self, stream: SenderStream, recipient: Recipient) -> None:
        """End the routes of its own: a recipient is served with the others again, or not at all."""
        self._leave(stream, recipient.route)
        self._leave(stream, recipient.redelivery_route)
        recipient.route = recipient.redelivery_route = None

    def _leave(self, stream: SenderStream, route: Route | None) -> None:
        if route is not None:
            route.flow.streams -= 1
            route.gather.forget_route(route.number)
            self.cutovers.route_left(stream, route)

    def _flow_to(self, destinations: frozenset[tuple[int, int]]) -> FlowSender:
        flow = self.flow_to.get(destinations)
        if (
            flow is None
            or flow.number not in self.flows
            or len(flow.destinations) != len(destinations)
            or self.gathers[flow.number].was_left
        ):
            flow = FlowSender(self._next_flow, sorted(destinations), self.out)
            flow.out = self.neighbours.get(flow.sole_destination(self.node) or 0, self.out)
            self._next_flow += 1
            self.flow_to[destinations] = flow
            self.flows[flow.number] = flow
            self.gathers[flow.number] = Gather()
            self.new_flows.append(flow)
        return flow

    def end_run(self, stream: SenderStream) -> None:
        """Make the stream's numbers its own, and true; the gathered events keep their old route."""
        if stream.mixture is not None:
            stream.mixture.release(stream)
        if stream.gather is not None:
            stream.gather.end_run()

    def mixture_for(self, stream: SenderStream, kind: int) -> Mixture | None:
        """The mixture that a stream may join with events of this kind, if it has a way."""
        route = stream.route
        if route is None:
            return None
        gather = route.gather
        key = wire_kind(kind), stream.packing
        mixture = gather.mixtures.get(key)
        if mixture is None or mixture.is_retired:
            from echannel_ray.core.mixtures import Mixture

            mixture = Mixture(self._next_mixture, key[0], route.flow, gather, stream.policy_on(gather))
            gather.mixtures[key] = mixture
            self._next_mixture += 1
        return mixture

    def ended_flows(self, awaited: Collection[int] = ()) -> list[FlowSender]:
        """Flows that no stream uses and of which all is acknowledged: they end now. Those that relays know.

        A flow to an `awaited` endpoint stays: without it, nobody would tell us that this one died.
        """
        ended = [flow for flow in self.flows.values() if self._has_ended(flow, awaited)]
        for flow in ended:
            del self.flows[flow.number], self.gathers[flow.number]
            for destinations, other in [*self.flow_to.items()]:
                if other is flow:
                    del self.flow_to[destinations]
            for stream in flow.carries:
                stream.flows.discard(flow)
        # To declare one that has ended would have relays keep it for good.
        unknown = [flow for flow in ended if flow in self.new_flows]
        self.new_flows = [flow for flow in self.new_flows if flow not in unknown]
        return [flow for flow in ended if flow not in unknown]

    def _has_ended(self, flow: FlowSender, awaited: Collection[int]) -> bool:
        if flow.streams or flow.kept or self.gathers[flow.number] or self.is_last_flow_used(flow):
            return False
        return not any(endpoint in awaited for _, endpoint in flow.destinations) if awaited else True

    def is_last_flow_used(self, flow: FlowSender) -> bool:
        """Whether a stream has used no other flow since.

        Were this one forgotten, its recipients would not hear of our death.
        """
        for stream in flow.carries:
            routes = (stream.route, *(r.route for r in stream.recipients.values()))
            if any(route is not None and not route.declared for route in routes):
                return True
        return False

    # ---- events outside the hot path ----

    def send_to_all(self, stream: SenderStream, kind: int, event: Any, size_bytes: int) -> tuple[int, bool]:
        """Publish to every recipient that is in another process; its sequence number, and whether a policy dropped it
        for one.

        The shell has made sure that there is room, or that the policy drops.
        """
        self.end_run(stream)
        sequence = stream.next_sequence
        dropped = False
        drops = not holds_up(stream.overflow)
        if drops:
            for recipient in full_recipients(stream, size_bytes):
                self.laggards.begin(stream, recipient)
        stream.next_sequence += 1
        stream.published_bytes += size_bytes
        mark = stream.published_bytes
        if stream.route is not None:
            stream.route.declare(stream)
            stream.route.gather.add(stream.route.number, sequence, mark, kind, event, size_bytes)
        for recipient in stream.laggards:
            unhandled = Unhandled(mark, size_bytes, sequence, kind, event, False)
            dropped |= not self.laggards.offer(stream, recipient, unhandled)
        for name in stream.groups:
            if drops and not group_has_room(stream, name, size_bytes):
                stream.drop(FOR_GROUP)
                self._note_group_gap(stream, name, sequence, sequence, mark)
                dropped = True
            elif any(not member.is_leaving for member in stream.groups[name]):
                self.tell_group_gap(stream, name)
                self._to_group(stream, name, Unhandled(mark, size_bytes, sequence, kind, event, False))
        stream.refresh_limit()
        return sequence, dropped

    def skip(self, stream: SenderStream, count: int = 1) -> int:
        """Publish so many to nobody in another process; the first one's sequence number."""
        self.end_run(stream)
        first = stream.next_sequence
        stream.next_sequence += count
        stream.skipped += count
        return first

    def drop_for_all(self, stream: SenderStream, count: int = 1, reason: str = NEWEST) -> int:
        """A policy has dropped so many for every recipient in another process; the first one's sequence number.

        Each recipient is told of the gap, of a group one member. As for an event, there must be no chunks of this
        stream that wait.
        """
        first = self.skip(stream, count)
        stream.skipped -= count
        stream.drop(reason, count)
        last, mark = first + count - 1, stream.published_bytes
        if stream.route is not None and not stream.route.gather.widen_gap(stream.route.number, first, last):
            stream.route.declare(stream)
            stream.route.gather.add(stream.route.number, first, mark, GAP, last)
        for recipient in stream.laggards:
            self.laggards.offer(stream, recipient, Unhandled(mark, 0, first, GAP, last, False))
        for name in stream.groups:
            if any(not member.is_leaving for member in stream.groups[name]):
                self._note_group_gap(stream, name, first, last, mark)
            # Where nothing is under way no credit will come, with which a group is told of its gaps.
            if any(member.outstanding_bytes <= stream.window_bytes // 2 for member in stream.groups[name]):
                self.tell_group_gap(stream, name)
        stream.refresh_limit()
        return first

    # ---- groups ----

    def _to_group(self, stream: SenderStream, name: str, unhandled: Unhandled) -> bool:
        members = [m for m in stream.groups.get(name, ()) if not m.is_leaving]
        if not members:
            stream.undelivered.setdefault(name, deque()).append(unhandled)
            return False
        # Of those with room, the one with the least to do: a slow member gets less, and an idle one is never passed
        # over.
        roomy = [m for m in members if has_room(m, unhandled.size_bytes, stream.window_bytes)]
        member = min(roomy or members, key=lambda m: (len(m.sent), m.outstanding_bytes))
        if not has_room(member, unhandled.size_bytes, stream.window_bytes) and unhandled.redelivered:
            return False
        self.give(stream, member, unhandled)
        return True

    def give(self, stream: SenderStream, member: Recipient, unhandled: Unhandled) -> None:
        """Send an event to a member of a group, and note that it has it."""
        route = member.route
        assert route is not None
        if unhandled.redelivered:
            if member.redelivery_route is None:
                # By the same flow: a member handles, and reports, in the order in which it was given.
                member.redelivery_route = self._make_route_by(route.flow, [member], redelivers=True)
            route = member.redelivery_route
        member.sent.append(unhandled)
        member.sent_bytes += unhandled.size_bytes
        member.last_sent = max(member.last_sent, unhandled.event if unhandled.kind == GAP else unhandled.sequence)
        route.declare(stream)
        # Alone: a member that leaves in good order reports exactly what it has handled, and the others get the rest.
        route.gather.add(
            route.number,
            unhandled.sequence,
            unhandled.mark,
            unhandled.kind,
            unhandled.event,
            unhandled.size_bytes,
            True,
        )

    def _note_group_gap(self, stream: SenderStream, name: str, first: int, last: int, mark: int) -> None:
        before = stream.group_gaps.get(name)
        first = before.sequence if before is not None else first
        stream.group_gaps[name] = Unhandled(mark, 0, first, GAP, last, False)

    def tell_group_gap(self, stream: SenderStream, name: str) -> None:
        """Tell one of the members what the group missed; it may be given to another like an event."""
        gap = stream.group_gaps.pop(name, None)
        if gap is not None:
            self._to_group(stream, name, gap)

    def redistribute(self, stream: SenderStream, name: str) -> None:
        """Give what a member had not handled to others, as far as they have room."""
        waiting = stream.undelivered.get(name)
        while waiting and any(not m.is_leaving for m in stream.groups.get(name, ())):
            if not self._to_group(stream, name, waiting[0]):
                return
            waiting.popleft()
        if not waiting or name not in stream.groups:
            stream.undelivered.pop(name, None)

    # ---- credit ----

    def credited(self, stream: SenderStream, endpoint: int, subscription: int, mark: int, final: bool = False) -> None:
        """Note that a recipient has handled everything up to `mark`."""
        recipient = stream.recipients.get((endpoint, subscription))
        if recipient is None:
            return
        if final and recipient.consumer.group is None:
            # Its process knows of no such subscription: it was closed, or given up early. It must hold up nobody.
            self.end_run(stream)
            self.drop(stream, recipient)
            self.reroute(stream)
            return
        credit.report(recipient, mark)
        if recipient.route is None:
            stream.refresh_limit()
            return
        if recipient.is_lagging:
            self.laggards.pump(stream, recipient)
        group = recipient.consumer.group
        if group is not None:
            if final or (recipient.is_leaving and not recipient.sent):
                self.drop(stream, recipient)
                stream.refresh_limit()
            self.redistribute(stream, group)
            # Not at the first room that comes: one gap is to stand for many events.
            if any(m.outstanding_bytes <= stream.window_bytes // 2 for m in stream.groups.get(group, ())):
                self.tell_group_gap(stream, group)

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for flow in self.flows.values():
            flow.validate()
        for gather in self.gathers.values():
            for mixture in gather.mixtures.values():
                mixture.validate()
        for stream in self.streams.values():
            for recipient in stream.recipients.values():
                assert recipient.sent_bytes == sum(u.size_bytes for u in recipient.sent)
                assert recipient.backlog_bytes == sum(u.size_bytes for u in recipient.backlog)
                assert recipient.handled_mark <= stream.published_bytes
                assert (recipient in stream.laggards) == recipient.is_lagging
                assert (recipient.route is not None) == (recipient.is_lagging or recipient.consumer.group is not None)
                assert recipient.cutover_point is None or recipient.cutover_point[1] > 0
            assert all(members for members in stream.groups.values())
            if stream.limit_bytes != NEVER:
                assert stream.route is not None
                assert not stream.laggards
                assert not stream.groups
