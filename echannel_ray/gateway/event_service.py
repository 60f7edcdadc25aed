"""What one connection's requests do in the backend: who may, and within which bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from echannel_ray import errors
from echannel_ray.gateway import event_frames as frames
from echannel_ray.gateway.event_subscription import OutgoingEvents
from echannel_ray.gateway.tokens import Token

if TYPE_CHECKING:
    from echannel_ray.gateway.backend import GatewayBackend
    from echannel_ray.gateway.feeds import DerivedChannel, Feed

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 64
# A client that filters anew with each subscription would else fill the producers with programs that nobody uses.
MAX_UNUSED: Final = 4


class EventService:
    """What one connection asks for, done by the thread that works; others look at `subscriptions` too."""

    def __init__(self, backend: GatewayBackend, token: Token, wake: Callable[[], None]) -> None:
        self.subscriptions: dict[int, OutgoingEvents] = {}
        self._backend = backend
        self._token = token
        self._wake = wake
        self._derived: dict[str, DerivedChannel] = {}  # the one that was used last comes last
        self._uses: dict[int, str] = {}  # which of these a subscription is of

    def perform(self, message: frames.RequestFrame) -> Any:
        """What is to be answered; a subscription, which is to be entered before that."""
        backend, token = self._backend, self._token
        token.check()
        match message:
            case frames.OpenFrame():
                rights = token.rights
                if message.fields is None:
                    rights.check(message.channel, "publish", "subscribe", "derive")
                else:
                    rights.check(message.channel, "publish")
                return backend.open(message.channel, message.fields)
            case frames.PublishFrame():
                return self._publish(message)
            case frames.DrainFrame():
                token.rights.check(message.channel, "publish")
                backend.drain(message.channel)
                return None
            case frames.DeriveFrame():
                return self._derive(message)
            case frames.SubscribeFrame():
                return self._subscribe(message)
            case frames.UnsubscribeFrame():
                outgoing = self.subscriptions.pop(message.subscription, None)
                if outgoing is None:
                    raise LookupError(f"this connection has no subscription {message.subscription}")
                outgoing.is_over = True
                outgoing.feed.close()
                return None
        raise ValueError(f"{type(message).__name__.removesuffix('Frame')} is no request")

    def _publish(self, message: frames.PublishFrame) -> int:
        token = self._token
        token.rights.check(message.channel, "publish")
        if len(message.events) > frames.MAX_EVENTS:
            raise ValueError(f"{len(message.events)} events came in a frame, which has at most {frames.MAX_EVENTS}")
        for raw in message.events:
            token.rights.check_size(len(memoryview(raw)), "an event")
        events = [frames.event_of(raw) for raw in message.events]
        self._backend.publish_events(message.channel, events)
        return len(events)

    def _derive(self, message: frames.DeriveFrame) -> dict[str, Any]:
        token = self._token
        token.rights.check(message.channel, "derive")
        derived = self._backend.derive(message.channel, message.source, message.params or {}, message.output)
        former = self._derived.pop(derived.name, None)
        self._derived[derived.name] = derived
        if former is not None:  # the same program: one hold of it is enough
            former.close()
        self._release_unused()
        return {"channel": derived.name, "fields": derived.fields}

    def _release_unused(self) -> None:
        self._uses = {number: name for number, name in self._uses.items() if number in self.subscriptions}
        unused = [name for name in self._derived if name not in self._uses.values()]
        release([self._derived.pop(name) for name in unused[:-MAX_UNUSED]])

    def _subscribe(self, message: frames.SubscribeFrame) -> OutgoingEvents:
        token = self._token
        derived = self._derived.get(message.channel)
        channel = message.channel if derived is None else derived.parent
        token.rights.check(channel, "subscribe")
        if message.id in self.subscriptions:
            raise ValueError(f"there is a subscription {message.id}: give each request a number of its own")
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise ValueError(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions: use another one for more")
        feed = self._backend.subscribe(channel, derived, message.group, message.start, self._wake)
        if derived is not None:
            self._derived[message.channel] = self._derived.pop(message.channel)
            self._uses[message.id] = message.channel
        return OutgoingEvents(message.id, feed, message.credit)

    def close(self) -> None:
        """Let go of all that the connection had open."""
        release([each.feed for each in self.subscriptions.values()])
        release(self._derived.values())


def release(held: Iterable[Feed | DerivedChannel]) -> None:
    """Close what a client had, as far as that goes now."""
    for each in held:
        try:
            each.close()
        except (errors.EChannelError, TimeoutError, LookupError) as error:
            logger.debug("what a client of the gateway had was not closed in order: %s", error)
