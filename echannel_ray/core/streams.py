"""A stream, its recipients and their routes, as the endpoint that sends sees them. Its rules are in `sender`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from echannel_ray.core.flows import FlowSender
from echannel_ray.core.gather import Gather, PackColumns
from echannel_ray.core.kinds import as_wire
from echannel_ray.core.lifetimes import Lifetime
from echannel_ray.core.messages import Consumer
from echannel_ray.core.packing import Packing, Policy, policy_of
from echannel_ray.core.states import next_state
from echannel_ray.core.windows import CONSUMER, DROP_LONGEST_WAITING, ON_FULL

if TYPE_CHECKING:
    from echannel_ray.core.mixtures import Mixture

NEVER = -1

# (stream number, sequence): a cut-over point: the last that was sent of a stream to a subscription
CutoverPoint = tuple[int, int]
RecipientKey = tuple[int, int]  # (endpoint, subscription)

# Why events are dropped, as statistics name it. By a policy: the event itself, or the one that had waited longest.
NEWEST, OLDEST = "newest", "oldest"
# By a policy too: no member of a group had room, so its other members can't have had it either.
FOR_GROUP = "group"
# By a policy, before a modulator that does not keep up; and what one emitted by its timer, when there was no room.
BY_MODULATOR, BY_TIMER = "modulator", "timer"
# The bounds of a retained channel were past them before they were read.
RETENTION = "retention"


# The life of a recipient. One that shares the stream's route is plain; the others have a route of their own.
PLAIN, LAGGING, MEMBER, LEAVING, GONE = "plain", "lagging", "a member", "leaving", "gone"
RECIPIENT_TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    (PLAIN, "window full"): LAGGING,  # where the policy drops
    (LAGGING, "caught up"): PLAIN,
    (MEMBER, "not listed"): LEAVING,  # until it has reported what it has handled, or is gone
    (LEAVING, "not listed"): LEAVING,
    (LEAVING, "listed"): MEMBER,  # a manager that was restarted may have listed it late
    (MEMBER, "listed"): MEMBER,
    **{(state, "dropped"): GONE for state in (PLAIN, LAGGING, MEMBER, LEAVING)},
}


@dataclass(slots=True, eq=False)
class Unhandled:
    """An event that left for a single recipient and was not reported handled; kept itself for groups only."""

    mark: int
    size_bytes: int
    sequence: int
    kind: int
    event: Any
    redelivered: bool


class Route:
    """A wire number for what a stream sends to some recipients by one flow."""

    __slots__ = ("declared", "flow", "gather", "number", "recipients", "redelivers")

    def __init__(
        self, number: int, flow: FlowSender, gather: Gather, recipients: list[Recipient], redelivers: bool
    ) -> None:
        self.number = number
        self.flow = flow
        self.gather = gather
        self.recipients = recipients
        self.redelivers = redelivers
        self.declared = False
        flow.streams += 1

    def declare(self, stream: SenderStream) -> None:
        """Put the declaration into the pack that is being gathered, if this is the first one that uses the route."""
        if self.declared:
            return
        self.declared = True
        stream.uses([self.flow])
        self.gather.stream_of_route[self.number] = stream
        grouped = self.recipients[0].consumer.group is not None
        who = [
            [r.endpoint, r.subscription, r.first_sequence, r.first_mark, r.consumer.handler_version, r.cutover_point]
            for r in self.recipients
        ]
        self.gather.control.append(
            ["route", self.number, stream.number, stream.producer, stream.window_bytes, self.redelivers, grouped, who]
        )


class Recipient:
    """One subscription in another process, as one stream sees it."""

    __slots__ = (
        "backlog",
        "backlog_bytes",
        "consumer",
        "cutover_point",
        "dropped",
        "endpoint",
        "first_mark",
        "first_sequence",
        "gap",
        "handled_mark",
        "last_sent",
        "left_mark",
        "node",
        "redelivery_route",
        "route",
        "sent",
        "sent_bytes",
        "state",
        "subscription",
    )  # fmt: skip

    def __init__(
        self, consumer: Consumer, first_sequence: int, mark: int, cutover_point: CutoverPoint | None = None
    ) -> None:
        self.consumer = consumer
        # what it has to have of its former handler version's stream, before it gets anything of this one
        self.cutover_point = cutover_point
        self.node = consumer.node
        self.endpoint = consumer.endpoint
        self.subscription = consumer.subscription
        self.first_sequence = first_sequence
        # What is given to a member a second time may have the mark at which it joined: it must not seem handled
        # already.
        self.first_mark = 0 if consumer.group is not None else mark
        self.handled_mark = mark
        # What follows is for members of groups and laggards: the recipients with a route of their own.
        self.route: Route | None = None
        self.redelivery_route: Route | None = None
        self.sent: deque[Unhandled] = deque()
        self.sent_bytes = 0
        # the highest sequence that this member of a group was given, with its present handler version
        self.last_sent = 0
        self.state = PLAIN if consumer.group is None else MEMBER
        self.left_mark = mark  # what was sent by the plain route, when it began to lag
        self.backlog: deque[Unhandled] = deque()
        self.backlog_bytes = 0
        self.gap: tuple[int, int, int] | None = None  # first, last, mark: dropped, and not yet told
        self.dropped = 0

    def become(self, event: str) -> None:
        """Change the state by an event, as `RECIPIENT_TRANSITIONS` has it."""
        what = f"recipient {self.endpoint:016x}.{self.subscription}"
        self.state = next_state(RECIPIENT_TRANSITIONS, what, self.state, event)

    @property
    def is_lagging(self) -> bool:
        """Whether it is served apart from the others until it has caught up."""
        return self.state == LAGGING

    @property
    def is_leaving(self) -> bool:
        """Whether a group's member gets nothing more, and its last word is awaited."""
        return self.state == LEAVING

    @property
    def outstanding_bytes(self) -> int:
        """The bytes that were sent to it and that it has not reported as handled."""
        return max(0, self.left_mark - self.handled_mark) + self.sent_bytes

    def was_last_sent(self, sequence: int) -> bool:
        """Whether this event was the last that a recipient with a route of its own was sent."""
        return bool(self.sent) and self.sent[-1].sequence == sequence


class SenderStream:
    """What one producer puts on a channel or derived channel; its many attributes are all that `Sender` decides by."""

    def __init__(
        self,
        number: int,
        channel: str,
        overflow: str,
        window_bytes: int,
        packing: Packing = Packing(),  # noqa: B008 (it is frozen)
        clock_offset_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.number = number
        self.channel = channel
        self.producer = number  # of a derived channel's: the number of the one that its events come from
        self.overflow = overflow
        self.window_bytes = window_bytes
        self.packing = packing
        self.waited_seconds = 0.0  # that an event has waited elsewhere, at most, before it is published here
        self._clock_offset_seconds = clock_offset_seconds
        self.policy = policy_of(packing)  # when its packs leave, as the link that it has now would have it
        self._policies: WeakKeyDictionary[Lifetime, Policy] = WeakKeyDictionary()  # of all links that it has
        self.mixture: Mixture | None = None  # that has its numbers now
        self.lane = 0  # there
        # Its numbers, while it is in no mixture: see `next_sequence`, `published_bytes`.
        self.own_next = 1
        self.own_mark = 0
        self.limit_bytes = NEVER  # while it is in a mixture too
        self.route: Route | None = None
        self.gather: Gather | None = None
        self.recipients: dict[RecipientKey, Recipient] = {}  # all kinds
        self.groups: dict[str, list[Recipient]] = {}
        self.undelivered: dict[str, deque[Unhandled]] = {}  # of groups whose members have no room, or died
        self.group_gaps: dict[str, Unhandled] = {}  # what was dropped for a group, and is not told yet
        self.laggards: list[Recipient] = []
        self.version = (-1, -1)
        self.closed = False
        self.ending = False  # nothing more is published; what was is still on its way
        self.deleted = False
        self.has_local_consumers = False
        self.chunks = 0  # of a large event of this stream that have not left: what is published next waits for them
        self.drops: dict[str, int] = {}  # events that a policy dropped for a consumer, by reasons
        self.packs = 0  # that carried events of this stream
        self.bytes_between_nodes = 0  # its share of those, once for each other node that they went to
        self.skipped = 0  # events that left for no other process
        self.blocks = self.records_in_blocks = 0
        self.in_segments = 0  # events that lay in segments
        self.not_in_segments: dict[str, int] = {}  # that were large enough for that, and went otherwise, by reasons
        self.flows: set[FlowSender] = set()  # that carry events of this stream, some perhaps not acknowledged

    # ---- the hot path: small events for all plain recipients, which have room ----

    def append(self, kind: int, payload: Any, size_bytes: int) -> Gather:
        """Append an event to the pack that is being gathered."""
        gather = self.gather
        assert gather is not None
        if gather.stream is not self or gather.kind != kind:
            gather.begin_run(self, kind)
        self.own_mark += size_bytes
        gather.events.append(payload)
        gather.gathered_bytes += size_bytes
        return gather

    def alone(self, kind: int, payload: Any, size_bytes: int, delivery: int) -> PackColumns:
        """One more event as a pack of its own; nothing may be gathered."""
        route = self.route
        assert route is not None
        self.own_mark += size_bytes
        number = self.own_next
        self.own_next += 1
        kinds, tokens = as_wire([kind], [1])
        return PackColumns([], [route.number], [number], [1], [self.own_mark], kinds, delivery, [payload], 0.0, tokens)

    def append_lent(self, kind: int, lent: Any, size_bytes: int) -> Gather:
        """Do as `append` for an event of this size that lies in a segment."""
        gather = self.append(kind, lent, size_bytes)
        gather.gathered_bytes += len(lent) - size_bytes
        gather.segment_bytes += size_bytes
        return gather

    # ---- its numbers ----

    @property
    def next_sequence(self) -> int:
        """The number that its next event gets; true when no run of it is open."""
        return self.own_next if self.mixture is None else self.mixture.next_sequence(self.lane)

    @next_sequence.setter
    def next_sequence(self, number: int) -> None:
        assert self.mixture is None, "a stream publishes by itself while it is in a mixture"
        self.own_next = number

    @property
    def published_bytes(self) -> int:
        """What it has published, in bytes: the mark of its last event."""
        return self.own_mark if self.mixture is None else self.mixture.published_bytes(self.lane)

    @published_bytes.setter
    def published_bytes(self, mark: int) -> None:
        assert self.mixture is None, "a stream publishes by itself while it is in a mixture"
        self.own_mark = mark

    def uses(self, flows: Iterable[FlowSender]) -> None:
        """Note flows that its events go by, or have gone by."""
        for flow in flows:
            self.flows.add(flow)
            flow.carries.add(self)

    # ---- which way it goes, and when its packs leave ----

    def go_by(self, route: Route | None) -> None:
        """Send what all plain recipients get by this route from now on."""
        self.route = route
        self.gather = None if route is None else route.gather
        if route is not None:
            self.policy = self.policy_on(route.gather)

    def policy_on(self, gather: Gather) -> Policy:
        """The packing policy of this stream on one of its links."""
        found = self._policies.get(gather.lifetime)
        if found is None:
            found = self._policies[gather.lifetime] = gather.policy(self.packing, self._clock_offset_seconds())
        return found

    def links(self) -> Iterator[tuple[Route, Policy]]:
        """The routes that something has gone by, and when packs leave there."""
        for route in self.routes():
            if route.declared:
                yield route, self.policy_on(route.gather)

    # ---- what was dropped ----

    @property
    def dropped(self) -> int:
        """How many events a policy has dropped, each as often as it was dropped for somebody."""
        return sum(self.drops.values())

    def drop(self, reason: str, count: int = 1) -> None:
        """Count events that somebody will not get."""
        self.drops[reason] = self.drops.get(reason, 0) + count

    def drop_by_policy(self, count: int = 1) -> None:
        """Count events that somebody will not get, where the overflow policy has decided which."""
        self.drop(OLDEST if ON_FULL[self.overflow][CONSUMER] == DROP_LONGEST_WAITING else NEWEST, count)

    def refuse_segment(self, reason: str) -> None:
        """Count a large event, or a loan, that no segment was to be had for."""
        self.not_in_segments[reason] = self.not_in_segments.get(reason, 0) + 1

    def segment_destinations(self, node: int) -> frozenset[int] | None:
        """Who gets its events, where all of them do so on this node and in this process's good time: only then may an
        event lie in a segment. What a group has, a member may get that comes later.
        """
        route = self.route
        if route is None or self.groups:
            return None
        members = route.flow.members
        here = members.get(node)
        return frozenset(here) if here and len(members) == 1 else None

    @property
    def plain_recipients(self) -> list[Recipient]:
        """The recipients that share the stream's route."""
        return self.route.recipients if self.route else []

    def routes(self) -> list[Route]:
        """All routes that the events of the stream take now."""
        own = [route for r in self.recipients.values() for route in (r.route, r.redelivery_route) if route is not None]
        return own if self.route is None else [self.route, *own]

    def slowest_mark(self) -> int:
        """How far the slowest plain recipient has come."""
        return min((r.handled_mark for r in self.plain_recipients), default=self.published_bytes)

    def refresh_limit(self) -> None:
        """Work out again how far the hot path may go."""
        special = self.groups or self.laggards or self.has_local_consumers or self.chunks
        if self.route is None or self.closed or self.deleted or self.ending or special:
            if self.mixture is not None:
                self.mixture.release(self)
            self.limit_bytes = NEVER
        elif self.mixture is not None:
            self.mixture.limit_is(self, self.slowest_mark() + self.window_bytes)
        else:
            self.limit_bytes = self.slowest_mark() + self.window_bytes
