"""Mixed packs at the endpoint that receives: events of many streams, each for a subscription of its own.

Rules:

* A lane is *seated* while its reception's numbers stand in the mixture's columns. It takes a seat when an event comes
  by it that is the reception's next, and the shell has a target for its subscription: something that takes such events
  one by one. It gives the seat up as soon as anybody asks for the reception's numbers (`Reception.expected`), that is,
  before anything else is done with it.
* The events of seated lanes are one arrival. The others become runs, and are received like any pack's; where these are
  refused, all are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from echannel_ray.core.arrivals import Arrival
from echannel_ray.core.credit import Reception
from echannel_ray.core.kinds import typed, wire_kind
from echannel_ray.core.mixtures import MAX_LANES, Column, Mixed, as_runs, groups_of

if TYPE_CHECKING:
    from echannel_ray.core.flows import FlowReceiver
    from echannel_ray.core.receiver import Delivered, Receiver

_NO_SEAT: Final = -1
_LEAST_ROOM: Final = 16

# Of a subscription, a handler version and a kind: what takes its events one by one; None where they have to be runs.
TargetOf = Callable[[int, int, int], Any]


class Seat:
    """The place of one reception in a mixture."""

    __slots__ = ("lane", "mixture")

    def __init__(self, mixture: ReceivedMixture, lane: int) -> None:
        self.mixture = mixture
        self.lane = lane

    def give_up(self, reception: Reception) -> None:
        """Give the reception its numbers back: what comes next for it comes another way."""
        mixture, lane = self.mixture, self.lane
        reception.seat = None
        reception.expected = int(mixture.expected[lane])
        reception.handled_mark = int(mixture.handled[lane])
        mixture.expected[lane] = _NO_SEAT


class ReceivedMixture:
    """What the lanes of a mixture stand for at an endpoint that receives, and how far each has come."""

    __slots__ = ("credit_at", "expected", "flow", "handled", "receptions", "routes", "subscriptions", "targets",
                 "tokens", "versions")  # fmt: skip

    def __init__(self, flow: int) -> None:
        self.flow = flow
        self.routes: list[int] = []
        self.tokens: list[int] = []
        self.receptions: list[Reception | None] = []
        self.targets: list[Any] = []
        self.versions: list[int] = []  # of the handlers
        self.expected: Column = np.full(_LEAST_ROOM, _NO_SEAT, np.int64)
        self.handled: Column = np.zeros(_LEAST_ROOM, np.int64)
        self.credit_at: Column = np.zeros(_LEAST_ROOM, np.int64)  # the mark at which a report is due
        self.subscriptions: Column = np.zeros(_LEAST_ROOM, np.int64)

    def declare(self, lane: int, route: int, token: int) -> None:
        """Note what a lane stands for; again where its pack was refused before."""
        if lane < len(self.routes):
            return
        if lane != len(self.routes) or lane >= MAX_LANES:
            raise ValueError(f"lane {lane} was declared behind {len(self.routes)} others")
        self.routes.append(route)
        self.tokens.append(token)
        self.receptions.append(None)
        self.targets.append(None)
        self.versions.append(0)
        if len(self.routes) > len(self.expected):
            self.expected = np.concatenate((self.expected, np.full(len(self.expected), _NO_SEAT, np.int64)))
            self.handled = np.concatenate((self.handled, np.zeros_like(self.handled)))
            self.credit_at = np.concatenate((self.credit_at, np.zeros_like(self.credit_at)))
            self.subscriptions = np.concatenate((self.subscriptions, np.zeros_like(self.subscriptions)))

    def seat(self, lane: int, reception: Reception, target: Any, version: int) -> None:
        """Let a reception's numbers stand here."""
        self.expected[lane] = reception.expected
        self.handled[lane] = reception.handled_mark
        due = reception.credited_mark + reception.stream.credit_bytes
        self.credit_at[lane] = due if reception.wanted_mark is None else min(due, reception.wanted_mark)
        self.receptions[lane], self.targets[lane], self.versions[lane] = reception, target, version
        self.subscriptions[lane] = reception.subscription
        reception.seat = Seat(self, lane)


class MixedArrival:
    """Events of one mixed pack, in order, each for the target of its lane."""

    __slots__ = ("events", "kind", "lanes", "marks", "mixture", "sequences", "stamp")

    def __init__(self, mixture: ReceivedMixture, mixed: Mixed, keep: Any = None) -> None:
        self.mixture = mixture
        self.kind = mixed.kind
        self.stamp = mixed.stamp
        if keep is None:
            self.lanes, self.sequences, self.marks, self.events = (
                mixed.lanes, mixed.sequences, mixed.marks, mixed.events
            )  # fmt: skip
        else:
            self.lanes, self.sequences, self.marks = mixed.lanes[keep], mixed.sequences[keep], mixed.marks[keep]
            self.events = [*compress(mixed.events, keep)]

    def targets(self) -> list[Any]:
        """Who takes the events, one for each."""
        return [*map(self.mixture.targets.__getitem__, self.lanes.tolist())]

    def subscription(self, place: int) -> int:
        """Whose event this is."""
        return int(self.mixture.subscriptions[self.lanes[place]])

    def count_into(self, counts: Column | None, count: int) -> Column:
        """Counters by subscriptions, in which the first so many events are counted."""
        subscriptions = self.mixture.subscriptions[self.lanes[:count]]
        most = int(subscriptions.max()) + 1
        if counts is None or len(counts) < most:
            before, counts = counts, np.zeros(2 * most, np.int64)
            if before is not None:
                counts[: len(before)] = before
        np.add.at(counts, subscriptions, 1)
        return counts

    def concerns(self, subscription: int, start: int, stop: int) -> bool:
        """Whether one of these events is for a subscription."""
        return bool((self.mixture.subscriptions[self.lanes[start:stop]] == subscription).any())

    def sampled(self, count: int, mask: int) -> list[int]:
        """The places of those of the first so many events whose number has these bits as 1."""
        places: list[int] = np.flatnonzero(self.sequences[:count] & mask == 1).tolist()
        return places

    def run(self, place: int) -> Delivered:
        """One of the events, as a run of its own."""
        mixture, lane = self.mixture, int(self.lanes[place])
        reception = mixture.receptions[lane]
        assert reception is not None
        kind = typed(self.kind, mixture.tokens[lane])
        event = self.events[place]
        return Arrival(
            reception, int(self.sequences[place]), [event], int(self.marks[place]), 0, False, 0, 0, self.stamp,
            mixture.versions[lane], kind,
        )  # fmt: skip


class MixedReceiver:
    """The mixtures that one endpoint receives."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._mixtures: dict[tuple[int, int], ReceivedMixture] = {}  # by (endpoint, number)

    # ---- what they are ----

    def lane_declared(self, flow: FlowReceiver, number: int, lane: int, route: int, token: int) -> None:
        """A pack of a flow says what a lane stands for."""
        key = flow.endpoint, number
        mixture = self._mixtures.get(key)
        if mixture is None:
            mixture = self._mixtures[key] = ReceivedMixture(flow.flow)
        mixture.declare(lane, route, token)

    def mixture_ended(self, endpoint: int, number: int) -> None:
        """Nothing comes by a mixture any more."""
        mixture = self._mixtures.pop((endpoint, number), None)
        if mixture is not None:
            for reception in mixture.receptions:
                if reception is not None:
                    reception.stand_up()

    def flow_ended(self, endpoint: int, flow: int) -> None:
        """Nothing comes by a flow any more."""
        for owner, number in [key for key, each in self._mixtures.items() if key[0] == endpoint and each.flow == flow]:
            self.mixture_ended(owner, number)

    def endpoint_gone(self, endpoint: int) -> None:
        """A sender has died."""
        self._mixtures = {key: each for key, each in self._mixtures.items() if key[0] != endpoint}

    # ---- packs ----

    def received(
        self,
        flow: FlowReceiver,
        mixed: Mixed,
        number: int,
        control: list[Any],
        size_bytes: int,
        target_of: TargetOf | None,
    ) -> tuple[list[Delivered], MixedArrival | None]:
        """Take the next pack of a flow in: what is to be handed to which subscription, in runs, and what to the targets
        of lanes: nothing where there is no `target_of`. Nothing at all where it is refused.
        """
        receiver = self._receiver
        if control:
            receiver.routes_declared(flow, control)
        mixture = self._mixtures.get((flow.endpoint, number))
        if mixture is None:
            raise ValueError(f"a pack of a mixture ({number}) that was not declared")
        lanes, sequences = mixed.lanes, mixed.sequences
        index = lanes.astype(np.intp)
        if int(lanes.max()) >= len(mixture.routes):
            raise ValueError("a lane was not declared")
        before = flow.received
        delivered: list[Delivered] = []
        is_plain = target_of is not None and not receiver.has_to_look_twice
        if is_plain and bool((mixture.expected[index] == sequences).all()):
            receiver.accepted(flow, size_bytes)
            mixture.expected[index] = sequences + 1
            return delivered, MixedArrival(mixture, mixed)
        fits = None if target_of is None or not is_plain else self._fitting(flow.endpoint, mixture, mixed, target_of)
        others = np.arange(len(lanes)) if fits is None else np.flatnonzero(~fits)
        if len(others):
            pack = as_runs(mixed, others, [], mixture.routes, mixture.tokens)
            delivered = receiver.pack_received(flow, pack, size_bytes)
            if flow.received == before:
                return [], None
        else:
            receiver.accepted(flow, size_bytes)
        if fits is None or len(others) == len(lanes):
            return delivered, None
        arrival = MixedArrival(mixture, mixed, fits if len(others) else None)
        mixture.expected[arrival.lanes] = arrival.sequences + 1
        return delivered, arrival

    def _fitting(self, endpoint: int, mixture: ReceivedMixture, mixed: Mixed, target_of: TargetOf) -> Any:
        """Which events are of seated lanes, each the next of its reception."""
        order = np.argsort(mixed.lanes, kind="stable")
        by_lane, numbers = mixed.lanes[order], mixed.sequences[order]
        starts, groups = groups_of(by_lane)
        firsts = numbers[starts]
        for i in np.flatnonzero(mixture.expected[by_lane[starts]] != firsts).tolist():
            lane = int(by_lane[starts[i]])
            if mixture.expected[lane] == _NO_SEAT:
                self._seat(endpoint, mixture, lane, int(firsts[i]), mixed.kind, target_of)
        expected = np.empty_like(numbers)
        expected[1:] = numbers[:-1] + 1
        expected[starts] = mixture.expected[by_lane[starts]]
        fits = np.empty(len(order), np.bool_)
        fits[order] = np.logical_and.reduceat(expected == numbers, starts)[groups]
        return fits

    def _seat(
        self, endpoint: int, mixture: ReceivedMixture, lane: int, first: int, kind: int, target_of: TargetOf
    ) -> None:
        route = self._receiver.routes.get((endpoint, mixture.routes[lane]))
        if route is None or route.sole is None or route.redelivers:
            return
        reception, version = route.sole, route.handler_versions[0]
        if reception.expected != first or reception.ends_at is not None:
            return
        target = target_of(reception.subscription, version, typed(wire_kind(kind), mixture.tokens[lane]))
        if target is not None:
            mixture.seat(lane, reception, target, version)

    # ---- what was handled ----

    def handled(self, arrival: MixedArrival, count: int) -> Iterator[tuple[Reception, int]]:
        """The first so many events of an arrival were handled: whose are to be noted one by one, and their marks."""
        mixture = arrival.mixture
        lanes = arrival.lanes[:count].astype(np.intp)
        marks = arrival.marks[:count]
        mixture.handled[lanes] = marks
        is_noted = (mixture.expected[lanes] != _NO_SEAT) & (marks < mixture.credit_at[lanes])
        if not is_noted.all():
            for place in np.flatnonzero(~is_noted).tolist():
                reception = mixture.receptions[lanes[place]]
                assert reception is not None
                yield reception, int(marks[place])
