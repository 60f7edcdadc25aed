"""What one channel manager knows, and its rules: pure, so that they are tested without a process.

The rules:

* Every change of the consumers of any channel takes the next number of one counter of the book. So of two memberships
  of a channel the higher (epoch, version) counts, also where the channel was deleted and created again between them.
* Every request may come twice: its sender repeats it when a manager died before it answered. The second time changes
  nothing and is answered alike.
* An endpoint that is gone never comes back (a process that does is another endpoint), so what it asked before it died
  and what arrives late is refused. A node that is gone may have been silent only: when it reports, it is back.
* A channel that was created again is another one, with a higher incarnation. A handle of the old one gets
  `ChannelDeleted`. Incarnations rise across restarts since they begin at the epoch, so no tombstone is kept for good.
* Registrations carry their channel's definition, so the reports of endpoints alone rebuild every channel in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from echannel_ray.errors import ChannelDeleted, Disconnected, ModulatorRefused
from echannel_ray.ids import check_channel_name, check_group_name
from echannel_ray.protocol.messages import (
    Consumer,
    Definition,
    DeleteChannel,
    GetChannelStats,
    ManagerRequest,
    Membership,
    OpenChannel,
    RegisterProducer,
    Registrations,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)

# Raises TypeMismatch when a channel of the first schema can't be opened with the second: `formats.types.compare`.
CompareSchemas = Callable[[str, dict[str, Any] | None, dict[str, Any]], None]

# The life of a channel's name: all its changes. An input that is none of them (a repeated one, mostly) leaves the state
# as it is. What was deleted long ago is absent again.
CHANNEL_TRANSITIONS: dict[tuple[str, str], str] = {
    ("absent", "opened"): "open",
    ("absent", "reported"): "open",
    ("absent", "recovered"): "open",
    ("open", "reported"): "open",  # with a higher incarnation: it is another channel
    ("open", "deleted"): "deleted",
    ("deleted", "opened"): "open",  # with a higher incarnation
    ("deleted", "reported"): "open",  # with a higher incarnation; who missed the deletion is told it again
}

# A deletion is remembered to tell late reporters, all of whom come soon if ever.
MAX_REMEMBERED_DELETIONS = 10_000
# An endpoint's late requests come within the time that a restart of its manager takes.
MAX_REMEMBERED_ENDPOINTS = 10_000
# Leaves 2**20 channels per manager's life before incarnations run ahead of the milliseconds that epochs count.
_INCARNATIONS_PER_EPOCH = 1 << 20

Address = tuple[int, int]  # (node, endpoint)


@dataclass(frozen=True)
class PushMembership:
    """Tell these endpoints the channel's consumers, in the newest version that there is by then."""

    channel: str
    version: int  # at least
    to: tuple[Address, ...]


@dataclass(frozen=True)
class RecordDefinition:
    """Have a second part keep (or, where it was deleted, forget) a definition."""

    definition: Definition
    deleted: bool = False


Instruction = PushMembership | RecordDefinition


@dataclass
class _Channel:
    definition: Definition
    version: int
    producers: dict[tuple[int, int], int] = field(default_factory=dict)  # (endpoint, stream): node
    consumers: dict[tuple[int, int], tuple[Consumer, str]] = field(default_factory=dict)  # (endpoint, subscription)
    totals: dict[str, int] = field(default_factory=dict)  # of what was closed

    def producer_addresses(self) -> set[Address]:
        return {(node, endpoint) for (endpoint, _), node in self.producers.items()}

    def addresses(self) -> set[Address]:
        return self.producer_addresses() | {(c.node, c.endpoint) for c, _ in self.consumers.values()}


@dataclass(frozen=True)
class _Deleted:
    last: Membership
    to: tuple[Address, ...]  # who took part


class ChannelBook:
    """The state of one channel manager: its share of the channels, and who takes part in each."""

    def __init__(self, epoch: int, compare: CompareSchemas) -> None:
        self.epoch = epoch
        self._compare = compare
        self._version = 0
        self._next_incarnation = epoch * _INCARNATIONS_PER_EPOCH + 1
        self._channels: dict[str, _Channel] = {}
        self._deleted: dict[str, _Deleted] = {}  # in the order of deletion
        self._gone_endpoints: dict[int, None] = {}
        self._gone_nodes: set[int] = set()

    # ---- what there is ---------------------------------------------------------------------------------------------

    def channels(self) -> list[str]:
        """The names of the channels, sorted."""
        return sorted(self._channels)

    def definitions(self) -> list[Definition]:
        """The definitions of all channels, idle ones too."""
        return [channel.definition for channel in self._channels.values()]

    def state(self, channel: str) -> str:
        """`absent`, `open` or `deleted`."""
        return "open" if channel in self._channels else "deleted" if channel in self._deleted else "absent"

    def membership(self, channel: str) -> Membership | None:
        """The channel's consumers now; of a deleted one its last word; None where it was never heard of."""
        found = self._channels.get(channel)
        if found is not None:
            return self._membership(found)
        deleted = self._deleted.get(channel)
        return deleted.last if deleted is not None else None

    def addresses(self, channel: str) -> set[Address]:
        """The endpoints that produce or consume."""
        found = self._channels.get(channel)
        return found.addresses() if found is not None else set()

    def endpoints(self) -> int:
        """How many endpoints take part in any channel."""
        return len(set[Address]().union(*(channel.addresses() for channel in self._channels.values())))

    def is_gone(self, node: int, endpoint: int) -> bool:
        """Whether nothing can be told to this endpoint any more."""
        return node in self._gone_nodes or endpoint in self._gone_endpoints

    def counts(self, channel: str) -> dict[str, int]:
        """The sums of what was closed, and how many producers and consumers there are now."""
        found = self._channels[channel]
        return {**found.totals, "producers": len(found.producers), "consumers": len(found.consumers)}

    # ---- requests --------------------------------------------------------------------------------------------------

    def requested(self, node: int, endpoint: int, request: ManagerRequest) -> tuple[Any, list[Instruction]]:
        """The reply to an endpoint's request, and what is to be done before it is sent."""
        check_channel_name(request.channel)
        if self.is_gone(node, endpoint):
            raise Disconnected(
                f"endpoint {endpoint:016x} of node {node:016x} was declared dead: its process has to join again",
                node=node,
                endpoint=endpoint,
            )
        if isinstance(request, OpenChannel):
            return self._open(request)
        if isinstance(request, DeleteChannel):
            return self._delete(request)
        if isinstance(request, UnregisterProducer):
            return self._unregister(endpoint, request)
        if isinstance(request, Unsubscribe):
            return self._unsubscribe(endpoint, request)
        if isinstance(request, RegisterProducer):
            channel = self._opened(request.channel, request.incarnation)
            channel.producers[endpoint, request.stream] = node
            return self._membership(channel), []
        if isinstance(request, Subscribe):
            return self._subscribe(node, endpoint, request)
        assert isinstance(request, GetChannelStats), request
        self._opened(request.channel, request.incarnation)
        return self.counts(request.channel), []

    def _open(self, request: OpenChannel) -> tuple[Definition, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if channel is not None:
            if request.type_schema is not None:
                self._compare(request.channel, channel.definition.type_schema, request.type_schema)
            return channel.definition, []
        definition = Definition(request.channel, request.type_schema, request.options, self._next_incarnation)
        self._add(definition, "opened")
        return definition, [RecordDefinition(definition)]

    def _delete(self, request: DeleteChannel) -> tuple[None, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if channel is None:
            # Repeated by who does not know that it was done: all may not have confirmed yet.
            deleted = self._deleted.get(request.channel)
            return None, [PushMembership(request.channel, deleted.last.version, deleted.to)] if deleted else []
        self._opened(request.channel, request.incarnation)
        last = Membership(request.channel, self.epoch, self._next_version(), (), True, channel.definition.incarnation)
        deleted = _Deleted(last, tuple(sorted(channel.addresses())))
        self._enter(request.channel, "deleted", deleted)
        return None, [
            PushMembership(request.channel, last.version, deleted.to),
            RecordDefinition(channel.definition, deleted=True),
        ]

    def _unregister(self, endpoint: int, request: UnregisterProducer) -> tuple[None, list[Instruction]]:
        channel = self._channels.get(request.channel)
        # Totals count once: only with the registration that they end.
        if channel is not None and channel.producers.pop((endpoint, request.stream), None) is not None:
            _add_up(channel.totals, request.totals)
        return None, []

    def _subscribe(self, node: int, endpoint: int, request: Subscribe) -> tuple[Membership, list[Instruction]]:
        channel = self._opened(request.channel, request.incarnation)
        key = (endpoint, request.subscription)
        if request.group is not None:
            check_group_name(request.group)
            for other, (consumer, pair) in channel.consumers.items():
                if other != key and consumer.group == request.group and pair != request.pair:
                    raise ModulatorRefused(
                        f"group {request.group!r} of channel {request.channel!r} has members with another modulator or "
                        "demodulator: members of a group have equal ones, so use another group name or the same pair",
                        reason="members of a group have equal pairs",
                        channel=request.channel,
                        group=request.group,
                    )
        new = (Consumer(node, endpoint, request.subscription, request.group), request.pair)
        if channel.consumers.get(key) != new:
            channel.consumers[key] = new
            channel.version = self._next_version()
        # Also when nothing changed: the first time may have ended before all had confirmed.
        return self._membership(channel), self._push(channel)

    def _unsubscribe(self, endpoint: int, request: Unsubscribe) -> tuple[None, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if channel is None:
            return None, []
        if channel.consumers.pop((endpoint, request.subscription), None) is not None:
            _add_up(channel.totals, request.totals)
            channel.version = self._next_version()
        return None, self._push(channel)

    # ---- who is there and who is not -------------------------------------------------------------------------------

    def endpoint_gone(self, endpoint: int) -> list[Instruction]:
        """A process ended: it has left every channel."""
        _remember(self._gone_endpoints, endpoint, None, MAX_REMEMBERED_ENDPOINTS)
        return self._removed(lambda _, other: other == endpoint)

    def node_gone(self, node: int) -> list[Instruction]:
        """A node died, and with it each endpoint there."""
        self._gone_nodes.add(node)
        return self._removed(lambda other, _: other == node)

    def nodes_present(self, nodes: Iterable[int]) -> None:
        """These have a concentrator (again); their endpoints have to report."""
        self._gone_nodes.difference_update(nodes)

    def registrations_reported(self, reported: Registrations) -> list[Instruction]:
        """An endpoint attached again, or this manager asked: what it has open, which may be known already."""
        node, endpoint = reported.node, reported.endpoint
        check_channel_name(reported.channel)
        if endpoint in self._gone_endpoints:
            return []
        self._gone_nodes.discard(node)
        channel = self._channels.get(reported.channel)
        known = self.membership(reported.channel)
        incarnation = reported.definition.incarnation
        if known is not None and (
            incarnation < known.incarnation or (known.deleted and incarnation == known.incarnation)
        ):
            return [PushMembership(reported.channel, known.version, ((node, endpoint),))]  # it missed the deletion
        instructions: list[Instruction] = []
        # Where ours is older, it came from a copy that missed a deletion.
        if channel is None or channel.definition.incarnation < incarnation:
            channel = self._add(reported.definition, "reported")
            instructions.append(RecordDefinition(reported.definition))
        for stream in reported.streams:
            channel.producers[endpoint, stream] = node
        changed = False
        for subscription, group, pair in reported.consumers:
            entry = (Consumer(node, endpoint, subscription, group), pair)
            changed |= channel.consumers.get((endpoint, subscription)) != entry
            channel.consumers[endpoint, subscription] = entry
        if changed:
            channel.version = self._next_version()
            instructions += self._push(channel)
        elif reported.streams:
            instructions.append(PushMembership(reported.channel, channel.version, ((node, endpoint),)))
        return instructions

    def definitions_recovered(self, definitions: Iterable[Definition]) -> None:
        """A second copy of the definitions, from before a restart."""
        for definition in definitions:
            known = self._channels.get(definition.channel)
            if known is None and definition.channel not in self._deleted:
                self._add(definition, "recovered")

    def all_memberships(self) -> list[Instruction]:
        """After a restart: each producer gets the memberships of the new epoch."""
        return [push for channel in self._channels.values() for push in self._push(channel)]

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _opened(self, name: str, incarnation: int) -> _Channel:
        channel = self._channels.get(name)
        if channel is None or (incarnation and channel.definition.incarnation != incarnation):
            raise ChannelDeleted(
                f"channel {name!r} was deleted: `channel({name!r})` makes a new one",
                channel=name,
                incarnation=incarnation,
            )
        return channel

    def _add(self, definition: Definition, event: str) -> _Channel:
        check_channel_name(definition.channel)
        self._next_incarnation = max(self._next_incarnation, definition.incarnation + 1)
        channel = _Channel(definition, self._next_version())
        self._enter(definition.channel, event, channel)
        return channel

    def _enter(self, name: str, event: str, entry: _Channel | _Deleted) -> None:
        """Put a name's entry where the table says that the event takes it."""
        state = CHANNEL_TRANSITIONS[self.state(name), event]
        self._channels.pop(name, None)
        self._deleted.pop(name, None)
        if state == "open":
            assert isinstance(entry, _Channel), entry
            self._channels[name] = entry
        else:
            assert isinstance(entry, _Deleted), entry
            _remember(self._deleted, name, entry, MAX_REMEMBERED_DELETIONS)

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _membership(self, channel: _Channel) -> Membership:
        consumers = tuple(consumer for _, (consumer, _) in sorted(channel.consumers.items()))
        definition = channel.definition
        return Membership(
            definition.channel, self.epoch, channel.version, consumers, incarnation=definition.incarnation
        )

    def _push(self, channel: _Channel) -> list[Instruction]:
        to = tuple(sorted(channel.producer_addresses()))
        return [PushMembership(channel.definition.channel, channel.version, to)] if to else []

    def _removed(self, matches: Callable[[int, int], bool]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for channel in self._channels.values():
            for key in [key for key, node in channel.producers.items() if matches(node, key[0])]:
                del channel.producers[key]
            lost = [key for key, (consumer, _) in channel.consumers.items() if matches(consumer.node, key[0])]
            for key in lost:
                del channel.consumers[key]
            if lost:
                channel.version = self._next_version()
                instructions += self._push(channel)
        return instructions

    def validate(self) -> None:
        """Raise AssertionError where what must hold doesn't."""
        assert not self._channels.keys() & self._deleted.keys(), "a channel is open and deleted"
        versions = [channel.version for channel in self._channels.values()]
        versions += [deleted.last.version for deleted in self._deleted.values()]
        assert len(set(versions)) == len(versions), "two channels have one version"
        assert max(versions, default=0) <= self._version, "a version was not taken from the counter"
        for name, channel in self._channels.items():
            assert channel.definition.channel == name, name
            assert channel.definition.incarnation < self._next_incarnation, name
            pairs: dict[str, str] = {}
            for (endpoint, subscription), (consumer, pair) in channel.consumers.items():
                assert (consumer.endpoint, consumer.subscription) == (endpoint, subscription), name
                if consumer.group is not None:
                    assert pairs.setdefault(consumer.group, pair) == pair, f"unequal pairs in {consumer.group!r}"
            for node, endpoint in channel.addresses():
                assert not self.is_gone(node, endpoint), f"{endpoint:016x} is gone and takes part in {name!r}"
        assert len(self._deleted) <= MAX_REMEMBERED_DELETIONS
        assert len(self._gone_endpoints) <= MAX_REMEMBERED_ENDPOINTS


def _add_up(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


def _remember(entries: dict[Any, Any], key: object, value: object, limit: int) -> None:
    """Add an entry as the newest, and forget the oldest beyond the limit."""
    entries.pop(key, None)
    entries[key] = value
    while len(entries) > limit:
        del entries[next(iter(entries))]
