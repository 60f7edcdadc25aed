"""A subscription goes over to another handler version: what its producers and its own endpoint do about it.

Rules:

* It goes over at one cut of each producer: from then on another of the producer's streams serves it, or the same one
  with a higher handler version.
* At the cut, what was kept for it leaves (a laggard's backlog, what waits for a group without other members), and its
  routes are left before any of that cut is joined: so no two packs ever wait for each other.
* What it gets from then on names the last that it was sent before (its cut-over point). Its endpoint uses no route that
  says so before it has that: the route is `waiting`, and a pack that needs it is refused like one that leaves a gap.
  Then the former stream is forgotten at this subscription.
* A stream that closes without having sent it anything says that it has `left` the former one, which nothing else would
  tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echannel_ray.core.streams import CutoverPoint, Recipient, Route, SenderStream

if TYPE_CHECKING:
    from echannel_ray.core.credit import Reception
    from echannel_ray.core.messages import Consumer
    from echannel_ray.core.receiver import DeclaredRoute, Receiver
    from echannel_ray.core.sender import Sender


class SenderCutovers:
    """How the streams of one endpoint hand over their recipients."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def cutover_point_of(self, stream: SenderStream, endpoint: int, subscription: int) -> CutoverPoint | None:
        """A subscription goes over to another stream: the last that it was sent of this one, which is to be given to
        `membership_changed` of that one. None where it was sent nothing.

        For all that go over at a cut, before any stream is told of it: what was kept for them is sent now.
        """
        recipient = stream.recipients.get((endpoint, subscription))
        if recipient is None:
            return None
        self._sender.end_run(stream)
        self._send_what_is_kept(stream, recipient)
        for route in (recipient.route, recipient.redelivery_route) if recipient.route else (stream.route,):
            self.route_left(stream, route)
        return _cutover_point(stream, recipient)

    def _send_what_is_kept(self, stream: SenderStream, recipient: Recipient) -> None:
        group = recipient.consumer.group
        if recipient.is_lagging:
            self._sender.laggards.send_all(stream, recipient)
        elif group is not None and stream.groups[group] == [recipient] and not recipient.is_leaving:
            for unhandled in stream.undelivered.pop(group, ()):
                self._sender.give(stream, recipient, unhandled)
            self._sender.tell_group_gap(stream, group)

    def replace_handler_version(
        self, stream: SenderStream, known: Recipient, consumer: Consumer, cutover_point: CutoverPoint | None
    ) -> None:
        """A subscription has another handler version on this stream: what it was given before stays the old one's."""
        self._send_what_is_kept(stream, known)
        cutover_point = cutover_point or _cutover_point(stream, known)
        if consumer.group is None:
            self._sender.drop(stream, known)
            self._sender.take_up(stream, consumer, cutover_point)
        else:  # what it has not handled yet stays in its account, or others would get it too
            self._sender.leave_own_routes(stream, known)
            known.consumer = consumer
            known.cutover_point = cutover_point
            known.last_sent = 0
            known.become("listed")
            self._sender.give_own_route(known)

    def route_left(self, stream: SenderStream, route: Route | None) -> None:
        """Of two packs, each with what the other waits for, neither would ever be taken in. That can't happen where no
        stream joins a pack that another has left before it was sent.
        """
        if route is None:
            return
        gather = route.gather
        if gather:
            gather.was_left = True
        if gather.has_large or stream.chunks:
            # Chunks leave one by one, and what is sent meanwhile overtakes them: what has to follow them would be ahead
            # of them in their own flow. So nobody joins this flow any more.
            for destinations, flow in [*self._sender.flow_to.items()]:
                if flow is route.flow:
                    del self._sender.flow_to[destinations]

    def stream_closed(self, stream: SenderStream, route: Route) -> None:
        """Tell recipients that this stream has sent nothing to that they have had all of the former one."""
        for recipient in route.recipients:
            if recipient.cutover_point is not None and not was_sent_to(stream, recipient):
                route.gather.say(["left", *recipient.cutover_point, recipient.endpoint, recipient.subscription])


def was_sent_to(stream: SenderStream, recipient: Recipient) -> bool:
    """Whether it was given anything of this stream, with its present handler version."""
    if recipient.consumer.group is not None:
        return recipient.last_sent > 0
    return recipient.first_sequence < stream.next_sequence


def _cutover_point(stream: SenderStream, recipient: Recipient) -> CutoverPoint | None:
    if not was_sent_to(stream, recipient):
        return recipient.cutover_point  # it has not begun with this stream: what it has to have first is still the same
    grouped = recipient.consumer.group is not None
    return stream.number, recipient.last_sent if grouped else stream.next_sequence - 1


class ReceiverCutovers:
    """The routes at one endpoint that wait for the last of former streams."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.waiting: dict[tuple[int, int], DeclaredRoute] = {}  # by (endpoint, wire number)
        # (endpoint, stream, subscription): what has not begun to arrive, and ends before this sequence number.
        self._left: dict[tuple[int, int, int], int] = {}

    def endpoint_gone(self, endpoint: int) -> None:
        """Wait for nothing of a process any more: it has died."""
        self.waiting = {key: each for key, each in self.waiting.items() if key[0] != endpoint}
        self._left = {key: end for key, end in self._left.items() if key[0] != endpoint}

    def subscription_closed(self, subscription: int) -> None:
        """Forget what is kept for a subscription: it is closed."""
        open_ones = self._receiver.subscriptions
        self.waiting = {k: each for k, each in self.waiting.items() if any(who[0] in open_ones for who in each.who)}
        self._left = {key: end for key, end in self._left.items() if key[2] != subscription}

    def awaited(self, declared: DeclaredRoute, each: list[Any]) -> CutoverPoint | None:
        """The (stream, sequence) that a subscription has to have before it gets anything by this route."""
        subscription, _, _, handler_version, cutover_point = each
        if cutover_point is None:
            return None
        reception = self._receiver.reception(declared.endpoint, declared.number, subscription)
        # Where it has begun with this version already, it has waited then.
        if reception is not None and reception.handler_version >= handler_version:
            return None
        return cutover_point[0], cutover_point[1]

    def is_due(self, declared: DeclaredRoute, ends: dict[tuple[int, int], int]) -> bool:
        """Whether its subscriptions have what they wait for; `ends` is what a pack brings ahead of it."""
        for each in declared.who:
            subscription = each[0]
            awaited = self.awaited(declared, each) if subscription in self._receiver.subscriptions else None
            if awaited is not None:
                number, last = awaited
                reception = self._receiver.reception(declared.endpoint, number, subscription)
                end = ends.get((number, subscription), reception.expected if reception is not None else 0)
                if end <= last:
                    return False
        return True

    def waiting_to_end(self, endpoint: int, control: list[Any]) -> list[DeclaredRoute]:
        """Routes of streams that end with this pack, and which it may not use yet."""
        ended = {entry[1] for entry in control if entry[0] == "ended"}
        return [each for each in self.waiting.values() if each.endpoint == endpoint and each.number in ended]

    def receptions_left(self, declared: DeclaredRoute, who: list[list[Any]]) -> list[tuple[Reception, int]]:
        """What a route's subscriptions leave when it is used: their former streams, and the last event of each."""
        found = []
        for each in who:
            awaited = self.awaited(declared, each)
            if awaited is not None:
                reception = self._receiver.reception(declared.endpoint, awaited[0], each[0])
                if reception is not None:
                    found.append((reception, awaited[1]))
        return found

    def stream_left(self, endpoint: int, number: int, last: int, consumer: int, subscription: int) -> None:
        """A subscription gets nothing of a stream behind this sequence number, and nothing of a later one either."""
        receiver = self._receiver
        if consumer != receiver.endpoint or subscription not in receiver.subscriptions:
            return
        reception = receiver.reception(endpoint, number, subscription)
        if reception is None:
            self._left[endpoint, number, subscription] = last + 1
        else:
            receiver.ends(reception, last + 1)

    def end_of(self, endpoint: int, number: int, subscription: int) -> int | None:
        """Before which number a stream ends that has just begun to arrive, where that was said already."""
        return self._left.pop((endpoint, number, subscription), None)
