"""What the endpoints of a node have open: a manager that was restarted asks its concentrator for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from echannel_ray.core import messages
from echannel_ray.core.messages import Derived, Registrations
from echannel_ray.core.name_book import slot_of


class Registry:
    """What a node's endpoints have open, as its concentrator has seen it, or as they said when they attached."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._held: dict[int, dict[str, Registrations]] = {}  # endpoint -> channel -> what it has open
        self._definitions: dict[str, messages.Definition] = {}
        # channel -> key -> what endpoints of this node use of what is derived from it, with its code; and its parents
        self._derived: dict[str, dict[str, Derived]] = {}

    def __contains__(self, endpoint: int) -> bool:
        return endpoint in self._held

    def attached(self, endpoint: int) -> None:
        """Note that an endpoint has linked up."""
        self._held.setdefault(endpoint, {})

    def gone(self, endpoint: int) -> None:
        """Forget what an endpoint had open: it is gone."""
        for channel in self._held.pop(endpoint, {}):
            self._forget_unused(channel)

    def of_slot(self, slot: int, managers: int, endpoint: int | None = None) -> list[Registrations]:
        """What is open on the channels of one manager, of one endpoint or of all."""
        return [each for each in self._open(endpoint) if slot_of(each.channel, managers) == slot]

    def _open(self, endpoint: int | None) -> Iterator[Registrations]:
        for owner, held in self._held.items():
            if endpoint is None or owner == endpoint:
                for each in held.values():
                    if each.streams or each.consumers or each.handles:
                        newest = self._definitions.get(each.channel)
                        is_same = newest is not None and newest.incarnation == each.definition.incarnation
                        # Formats may have been added since.
                        yield replace(each, definition=newest) if newest is not None and is_same else each

    def reported(self, endpoint: int, registrations: tuple[Registrations, ...]) -> None:
        """Take in what an endpoint has open, which it says after it attached again."""
        held = self._held.setdefault(endpoint, {})
        for each in registrations:
            held[each.channel] = each
            for derived in each.derived:
                self._learn(each.channel, derived)
            self._forget_unused(each.channel)
            known = self._definitions.get(each.channel)
            # An endpoint may have an old one, of a channel that was deleted meanwhile.
            newest = each.definition
            if known is None or (known.incarnation, known.revision) <= (newest.incarnation, newest.revision):
                self._definitions[each.channel] = each.definition

    def answered(self, endpoint: int, message: Any, answer: Any) -> None:
        """Note what a manager has done for an endpoint that asked for it."""
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
        streams = dict(known.streams)
        consumers = {consumer[0]: consumer for consumer in known.consumers}
        handles = dict(known.handles)
        logs = dict(known.logs)
        if isinstance(message, messages.RegisterProducer):
            streams[message.stream] = message.derived
            if message.log:
                logs[message.stream] = message.log
        elif isinstance(message, messages.UnregisterProducer):
            streams.pop(message.stream, None)
            logs.pop(message.stream, None)
        elif isinstance(message, messages.Subscribe):
            key = self._learn_answer(endpoint, message, answer)
            consumers[message.subscription] = (
                message.subscription,
                message.group,
                message.handler_fingerprint,
                key,
                message.handler_version,
            )
        elif isinstance(message, messages.Unsubscribe):
            consumers.pop(message.subscription, None)
        elif isinstance(message, messages.Derive):
            self._learn(channel, answer)
            handles[message.handle] = answer.key
        elif isinstance(message, messages.Release):
            handles.pop(message.handle, None)
        else:
            return
        kept = replace(
            known,
            definition=definition,
            streams=tuple(sorted(streams.items())),
            consumers=tuple(consumers.values()),
            handles=tuple(handles.items()),
            logs=tuple(logs.items()),
        )
        held[channel] = replace(kept, derived=self._used(kept))
        self._forget_unused(channel)

    # ---- what is derived -------------------------------------------------------------------------------------------

    def _learn(self, channel: str, derived: Derived) -> None:
        known = self._derived.setdefault(channel, {}).get(derived.key)
        if known is not None and not derived.shipment.code:
            derived = replace(derived, shipment=known.shipment)
        self._derived[channel][derived.key] = derived

    def _learn_answer(self, endpoint: int, message: messages.Subscribe, answer: messages.Membership) -> str:
        """Note the key of what a subscription consumes, from a manager's answer."""
        own = (
            each for each in answer.consumers if (each.endpoint, each.subscription) == (endpoint, message.subscription)
        )
        key = next((each.derived for each in own), "")
        derived = next((each for each in answer.derived if each.key == key), None)
        if derived is not None:
            code = message.shipment.code if message.shipment is not None else b""
            if not derived.shipment.code and code:
                derived = replace(derived, shipment=replace(derived.shipment, code=code))
            self._learn(message.channel, derived)
        return key

    def _used(self, registrations: Registrations) -> tuple[Derived, ...]:
        """The derived channels that one endpoint uses, and their parents; parents first."""
        known = self._derived.get(registrations.channel, {})
        used: dict[str, Derived] = {}

        def add(key: str) -> None:
            if key in known and key not in used:
                add(known[key].parent)
                used[key] = known[key]

        for key in (
            *(key for _, key in registrations.streams),
            *(consumer[3] for consumer in registrations.consumers),
            *(key for _, key in registrations.handles),
        ):
            add(key)
        return tuple(used.values())

    def _forget_unused(self, channel: str) -> None:
        if channel in self._derived:
            used = {each.key for held in self._held.values() if channel in held for each in held[channel].derived}
            kept = {key: derived for key, derived in self._derived[channel].items() if key in used}
            if kept:
                self._derived[channel] = kept
            else:
                del self._derived[channel]
