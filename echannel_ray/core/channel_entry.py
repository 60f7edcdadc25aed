"""One channel, as its manager keeps it: who produces, who consumes, and what is derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from echannel_ray.core.counters import add_up, node_key
from echannel_ray.core.derivations import Derivations
from echannel_ray.core.messages import Consumer, Definition, LogAddress, Membership, OpenedLog, Subscribe
from echannel_ray.errors import ModulatorRefused
from echannel_ray.ids import check_group_name

Address = tuple[int, int]  # (node, endpoint)


@dataclass(frozen=True)
class Subscribed:
    """A consumer, and what is not told to producers: its handler version, and the derived channel that it was made
    on.
    """

    consumer: Consumer
    handler_fingerprint: str
    parent: str


@dataclass
class ChannelEntry:
    """One channel in its manager's books."""

    definition: Definition
    version: int
    derivations: Derivations
    changes: int = 0  # how many versions it has had
    producers: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)  # (endpoint, stream): node, derived
    consumers: dict[tuple[int, int], Subscribed] = field(default_factory=dict)  # (endpoint, subscription)
    logs: dict[tuple[int, int], OpenedLog] = field(default_factory=dict)  # of the producers that keep one
    totals: dict[str, Any] = field(default_factory=dict)  # of what was closed

    def producer_addresses(self) -> set[Address]:
        """The endpoints that have producers."""
        return {(node, endpoint) for (endpoint, _), (node, _) in self.producers.items()}

    def addresses(self) -> set[Address]:
        """The endpoints that produce or consume."""
        consumers = (subscribed.consumer for subscribed in self.consumers.values())
        return self.producer_addresses() | {(consumer.node, consumer.endpoint) for consumer in consumers}

    def membership(self, epoch: int, with_all_code: bool = False) -> Membership:
        """The membership, as producers are told it."""
        return Membership(
            self.definition.channel,
            epoch,
            self.version,
            tuple(self.consumers[place].consumer for place in sorted(self.consumers)),
            incarnation=self.definition.incarnation,
            derived=self.derivations.listed(self.changes, with_all_code),
            logs=tuple(
                LogAddress(self.producers[place][0], place[0], opened_log.log, opened_log.since)
                for place, opened_log in sorted(self.logs.items())
            ),
        )

    def concerned(self) -> set[Address]:
        """The endpoints that have to hear of changes: of a retained channel its readers too."""
        return self.addresses() if "retain" in self.definition.options else self.producer_addresses()

    def drop_producer(self, place: tuple[int, int]) -> bool:
        """A producer has left; whether its log, which consumers read, has left with it."""
        del self.producers[place]
        self.derivations.producer_gone(*place)
        return self.logs.pop(place, None) is not None

    def collect(self) -> bool:
        """End the derived channels that nothing uses; whether there were any."""
        if not self.derivations:
            return False
        ended = self.derivations.collect(self._used())
        for key in ended:
            self.totals.get("derived", {}).pop(key, None)
        if not self.derivations:
            self.totals.pop("derived", None)
        return bool(ended)

    def _used(self) -> set[str]:
        used = {subscribed.consumer.derived for subscribed in self.consumers.values()}
        used.update(derived for _, derived in self.producers.values())
        return used

    # ---- counters --------------------------------------------------------------------------------------------------

    def add_totals(self, totals: Mapping[str, Any]) -> None:
        """The final counters of a producer or consumer. Those of derived channels that have ended are of no use."""
        derived = {key: each for key, each in totals.get("derived", {}).items() if key in self.derivations}
        add_up(self.totals, {**totals, "derived": derived} if derived else _without_derived(totals))

    def counts(self) -> dict[str, Any]:
        """The sums of what was closed, and how many producers and consumers there are now; also of what is derived."""
        producers = [at for place, at in self.producers.items() if place not in self.logs]  # (node, derived) of each
        consumers = [(each.consumer.node, each.consumer.derived) for each in self.consumers.values()]
        counts = _heads("", producers, consumers)
        name = self.definition.channel
        for each in self.derivations.listed(self.changes):
            counts.setdefault("derived", {})[each.key] = {
                "channel": f"{name}~{each.key[:12]}",
                "parent": f"{name}~{each.parent[:12]}" if each.parent else name,
                "modulator": each.shipment.name,
                **_heads(each.key, producers, consumers),
            }
        add_up(counts, self.totals)
        return counts

    def groups_of_logs(self) -> set[str]:
        """The groups that read the channel's logs."""
        consumers = (each.consumer for each in self.consumers.values())
        return {each.group for each in consumers if self.logs and not each.derived and each.group is not None}

    # ---- groups ----------------------------------------------------------------------------------------------------

    def check_group(self, endpoint: int, request: Subscribe, key: str) -> None:
        """Members of a group have equal handler versions; a group belongs to the channel, derived or not, that it was
        made on.

        `key` is the derived channel that the request is for. Members with other handler versions would take its events
        from each other, also where they came to it in another way.
        """
        group = request.group
        if group is None:
            return
        check_group_name(group)
        own = (endpoint, request.subscription)
        for place, parent, derived, handler_fingerprint in self._members(group):
            is_same_group = parent == request.parent or derived == key
            if (
                place != own
                and is_same_group
                and (handler_fingerprint != request.handler_fingerprint or own in self.consumers)
            ):
                raise ModulatorRefused(
                    f"group {group!r} of channel {request.channel!r} has members with another modulator or "
                    "demodulator: members of a group have equal ones, so use another group name or the same pair",
                    reason="members of a group have equal pairs",
                    channel=request.channel,
                    group=group,
                )

    def _members(self, group: str) -> list[tuple[tuple[int, int], str, str, str]]:
        """The members of a group, those that wait for an installation too."""
        members = [
            (place, each.parent, each.consumer.derived, each.handler_fingerprint)
            for place, each in self.consumers.items()
            if each.consumer.group == group
        ]
        for asker, claim in self.derivations.claims.items():
            if claim.group == group and asker.subscription is not None:
                members.append(
                    ((asker.endpoint, asker.subscription), claim.parent, claim.key, claim.handler_fingerprint)
                )
        return members

    def validate(self) -> None:
        """Raise AssertionError where what must hold doesn't."""
        name = self.definition.channel
        self.derivations.validate()
        assert not self.collect(), f"something is derived from {name!r} that nothing uses"
        handler_fingerprints: dict[tuple[str, str], str] = {}
        for (endpoint, subscription), each in self.consumers.items():
            consumer = each.consumer
            assert (consumer.endpoint, consumer.subscription) == (endpoint, subscription), name
            if consumer.group is not None:
                handler_fingerprint = handler_fingerprints.setdefault(
                    (each.parent, consumer.group), each.handler_fingerprint
                )
                assert handler_fingerprint == each.handler_fingerprint, f"unequal pairs in {consumer.group!r}"
        assert all(not key or key in self.derivations for key in self._used()), name
        assert self.logs.keys() <= self.producers.keys(), name


def _heads(derived: str, producers: list[tuple[int, str]], consumers: list[tuple[int, str]]) -> dict[str, Any]:
    """How many producers and consumers there are, in all and by nodes; each is given as (node, derived)."""
    counts: dict[str, Any] = {"producers": 0, "consumers": 0}
    for what, who in (("producers", producers), ("consumers", consumers)):
        for node, each in who:
            if each == derived:
                add_up(counts, {what: 1, "nodes": {node_key(node): {what: 1}}})
    return counts


def _without_derived(totals: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in totals.items() if name != "derived"}
