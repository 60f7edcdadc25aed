"""What the endpoints of a node have open: a manager that was restarted asks its concentrator for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from echannel_ray.protocol import messages
from echannel_ray.protocol.messages import Registrations
from echannel_ray.protocol.naming import slot_of


class Registry:
    """One per concentrator: what passed through it, and what endpoints said when they attached."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._held: dict[int, dict[str, Registrations]] = {}  # endpoint -> channel -> what it has open
        self._definitions: dict[str, messages.Definition] = {}

    def __contains__(self, endpoint: int) -> bool:
        return endpoint in self._held

    def attached(self, endpoint: int) -> None:
        """An endpoint is there."""
        self._held.setdefault(endpoint, {})

    def gone(self, endpoint: int) -> None:
        """An endpoint is not there any more."""
        self._held.pop(endpoint, None)

    def of_slot(self, slot: int, managers: int, endpoint: int | None = None) -> list[Registrations]:
        """What is open on the channels of one manager, of one endpoint or of all."""
        return [each for each in self._open(endpoint) if slot_of(each.channel, managers) == slot]

    def _open(self, endpoint: int | None) -> Iterator[Registrations]:
        for owner, held in self._held.items():
            if endpoint is None or owner == endpoint:
                yield from (each for each in held.values() if each.streams or each.consumers)

    def reported(self, endpoint: int, registrations: tuple[Registrations, ...]) -> None:
        """An endpoint says what it has open, after it attached again."""
        held = self._held.setdefault(endpoint, {})
        for each in registrations:
            held[each.channel] = each
            known = self._definitions.get(each.channel)
            # An endpoint may have an old one, of a channel that was deleted meanwhile.
            if known is None or known.incarnation <= each.definition.incarnation:
                self._definitions[each.channel] = each.definition

    def answered(self, endpoint: int, message: Any, answer: Any) -> None:
        """A manager has done what an endpoint asked for."""
        channel = message.channel
        if isinstance(message, messages.OpenChannel):
            self._definitions[channel] = answer
            return
        held = self._held.get(endpoint)
        definition = self._definitions.get(channel)
        if held is None or definition is None:
            return
        if isinstance(message, messages.DeleteChannel):
            self._definitions.pop(channel, None)
            held.pop(channel, None)
            return
        known = held.get(channel) or Registrations(self._node, endpoint, channel, definition, (), ())
        streams, consumers = set(known.streams), {consumer[0]: consumer for consumer in known.consumers}
        if isinstance(message, messages.RegisterProducer):
            streams.add(message.stream)
        elif isinstance(message, messages.UnregisterProducer):
            streams.discard(message.stream)
        elif isinstance(message, messages.Subscribe):
            consumers[message.subscription] = (message.subscription, message.group, message.pair)
        elif isinstance(message, messages.Unsubscribe):
            consumers.pop(message.subscription, None)
        held[channel] = Registrations(
            self._node, endpoint, channel, definition, tuple(sorted(streams)), tuple(consumers.values())
        )
