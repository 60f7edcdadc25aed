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
* What is derived from a channel is in its entry, and one membership has the consumers of all. So a `reset`, which takes
  a subscription from one to another, is one change.
* A request for a derived channel that is not installed everywhere has two phases. The first has it installed
  (`InstallDerived`), and its outcome is told by `install_ended`. Then the request goes on (`resumed`): it enters its
  consumer or handle. Where a producer refuses, nothing is entered, and what nobody else uses ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from echannel_ray.core.channel_entry import Address, ChannelEntry, Subscribed
from echannel_ray.core.derivations import Asker, Claim, Derivations, Identify
from echannel_ray.core.messages import (
    Consumer,
    Definition,
    DeleteChannel,
    Derive,
    Derived,
    GetChannelStats,
    GetMembership,
    GetModulator,
    LookUpChannel,
    ManagerRequest,
    Membership,
    ModulatorGone,
    OpenChannel,
    RefusedModulator,
    RegisterProducer,
    Registrations,
    Release,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, Closed, Disconnected, TypeMismatch
from echannel_ray.ids import check_channel_name

# What the channel of the first schema has from then on, opened with the second; raises TypeMismatch where it can't be:
# `schemas.types.opened`.
OpenSchema = Callable[[str, dict[str, Any] | None, dict[str, Any]], dict[str, Any] | None]
MAX_FORMATS = 256  # of one channel: they are kept for good, and all are told to whoever opens it

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


@dataclass(frozen=True)
class InstallDerived:
    """Push the membership, and say by `install_ended` what was answered; then the request resumes.

    Whoever gets the same number and keys waits for the same installation.
    """

    channel: str
    incarnation: int
    number: int
    keys: tuple[str, ...]  # of the derived channels that have to be installed: parents first
    version: int  # at least
    to: tuple[Address, ...]


Instruction = PushMembership | RecordDefinition | InstallDerived


@dataclass(frozen=True)
class _Deleted:
    last: Membership
    to: tuple[Address, ...]  # who took part


class ChannelBook:
    """The state of one channel manager: its share of the channels, and who takes part in each."""

    def __init__(self, epoch: int, open_schema: OpenSchema, identify: Identify) -> None:
        self.epoch = epoch
        self._open_schema = open_schema
        self._identify = identify
        self._version = 0
        self._installation = 0
        self._next_incarnation = epoch * _INCARNATIONS_PER_EPOCH + 1
        self._channels: dict[str, ChannelEntry] = {}
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
            return found.membership(self.epoch)
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

    def counts(self, channel: str) -> dict[str, Any]:
        """The sums of what was closed, and how many producers and consumers there are now; also of what is derived."""
        return self._channels[channel].counts()

    def groups_of_logs(self, channel: str) -> set[str]:
        """The groups that read the logs of a channel."""
        return self._channels[channel].groups_of_logs()

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
        if isinstance(request, LookUpChannel):
            found = self._channels.get(request.channel)
            return (found.definition if found is not None else None), []
        if isinstance(request, GetMembership):
            return self._opened(request.channel, request.incarnation).membership(self.epoch), []
        if isinstance(request, DeleteChannel):
            return self._delete(request)
        if isinstance(request, UnregisterProducer):
            return self._unregister(endpoint, request)
        if isinstance(request, Unsubscribe):
            return self._unsubscribe(endpoint, request)
        if isinstance(request, RegisterProducer):
            channel = self._opened(request.channel, request.incarnation)
            key = channel.derivations.key_of(request.derived, None, self._identify)
            channel.producers[endpoint, request.stream] = (node, key)
            instructions: list[Instruction] = []
            if request.log and channel.logs.get((endpoint, request.stream)) != request.log:
                channel.logs[endpoint, request.stream] = request.log
                self._changed(channel)
                instructions = self._push(channel)
            return channel.membership(self.epoch, with_all_code=True), instructions
        if isinstance(request, Subscribe):
            return self._subscribe(node, endpoint, request)
        if isinstance(request, Derive):
            return self._derive(node, endpoint, request)
        if isinstance(request, Release):
            return self._release(endpoint, request)
        if isinstance(request, GetModulator):
            return self._modulator(request), []
        if isinstance(request, ModulatorGone):
            self._modulator_gone(endpoint, request)
            return None, []
        assert isinstance(request, GetChannelStats), request
        self._opened(request.channel, request.incarnation)
        return self.counts(request.channel), []

    def _open(self, request: OpenChannel) -> tuple[Definition, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if request.incarnation:
            channel = self._opened(request.channel, request.incarnation)
        if channel is None:
            definition = Definition(
                request.channel, request.type_schema, request.options, self._next_incarnation, request.formats
            )
            self._add(definition, "opened")
            return definition, [RecordDefinition(definition)]
        schema = channel.definition.type_schema
        if request.type_schema is not None:
            schema = self._open_schema(request.channel, schema, request.type_schema)
        return channel.definition, self._revise(channel, schema, request.formats)

    def _revise(
        self, channel: ChannelEntry, schema: dict[str, Any] | None, formats: Mapping[int, bytes]
    ) -> list[Instruction]:
        """Add to a channel's definition."""
        known = channel.definition
        formats = {**known.formats, **formats}
        if schema == known.type_schema and len(formats) == len(known.formats):
            return []
        if len(formats) > MAX_FORMATS:
            raise TypeMismatch(
                f"channel {known.channel!r} has {MAX_FORMATS} formats, the most that one can have: publish in one of "
                "those, or delete it and create it anew",
                channel=known.channel,
                field=None,
            )
        channel.definition = replace(known, type_schema=schema, formats=formats, revision=known.revision + 1)
        return [RecordDefinition(channel.definition)]

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
        if channel is None or (endpoint, request.stream) not in channel.producers:
            return None, []
        channel.add_totals(request.totals)
        if channel.drop_producer((endpoint, request.stream)):
            self._changed(channel)
            return None, self._push(channel)
        return None, self._collected(channel)

    def _unsubscribe(self, endpoint: int, request: Unsubscribe) -> tuple[None, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if channel is None:
            return None, []
        claims = channel.derivations.claims
        for asker in [each for each in claims if each[:2] == (endpoint, request.subscription)]:
            del claims[asker]
        left = channel.consumers.pop((endpoint, request.subscription), None)
        if left is not None or request.is_late:
            channel.add_totals(request.totals)
        if channel.collect() or left is not None:
            self._changed(channel)
        return None, self._push(channel)

    def _subscribe(self, node: int, endpoint: int, request: Subscribe) -> tuple[Membership | None, list[Instruction]]:
        channel = self._opened(request.channel, request.incarnation)
        known = channel.consumers.get((endpoint, request.subscription))
        if known is None or known.consumer.handler_version < request.handler_version:
            key = channel.derivations.key_of(request.parent, request.shipment, self._identify)
            channel.check_group(endpoint, request, key)
            install = self._install(channel, endpoint, key, request)
            if install is not None:
                claim = Claim(
                    node, key, install.number, install.keys, request.group, request.handler_fingerprint, request.parent
                )
                channel.derivations.claims[_asker(endpoint, request)] = claim
                return None, [install]
            self._enter_consumer(channel, node, endpoint, request, key)
        # Also when nothing changed: the first time may have ended before all had confirmed.
        return channel.membership(self.epoch), self._push(channel)

    def _enter_consumer(self, channel: ChannelEntry, node: int, endpoint: int, request: Subscribe, key: str) -> None:
        place = (endpoint, request.subscription)
        known = channel.consumers.get(place)
        if known is None or known.consumer.handler_version < request.handler_version:
            consumer = Consumer(node, endpoint, request.subscription, request.group, key, request.handler_version)
            channel.consumers[place] = Subscribed(consumer, request.handler_fingerprint, request.parent)
            channel.collect()  # what a reset has left, in the same version
            self._changed(channel)
        elif channel.collect():  # what an earlier reset waited for, which comes too late
            self._changed(channel)

    # ---- what is derived -------------------------------------------------------------------------------------------

    def resumed(
        self, node: int, endpoint: int, request: Subscribe | Derive
    ) -> tuple[Membership | Derived, list[Instruction]]:
        """What a request waited for is installed: the reply, and what is to be done before it is sent."""
        channel = self._opened(request.channel, request.incarnation)
        claim = channel.derivations.claims.pop(_asker(endpoint, request), None)
        if claim is None and not self._is_entered(channel, endpoint, request):
            raise Closed(f"{request.channel!r}: it was closed while its modulator was being installed", what="request")
        if isinstance(request, Derive):
            if claim is not None:
                channel.derivations.handles[endpoint, request.handle] = (node, claim.key)
            return self._derived(channel, endpoint, request), []
        if claim is not None:
            self._enter_consumer(channel, node, endpoint, request, claim.key)
        return channel.membership(self.epoch), self._push(channel)

    def _is_entered(self, channel: ChannelEntry, endpoint: int, request: Subscribe | Derive) -> bool:
        """Whether the same request came again meanwhile, and was done."""
        if isinstance(request, Derive):
            return (endpoint, request.handle) in channel.derivations.handles
        known = channel.consumers.get((endpoint, request.subscription))
        return known is not None and known.consumer.handler_version >= request.handler_version

    def install_ended(
        self, install: InstallDerived, refused: Iterable[tuple[int, RefusedModulator]]
    ) -> list[Instruction]:
        """Every producer's endpoint has answered, or is gone; of those that refuse, (endpoint, what)."""
        channel = self._channels.get(install.channel)
        if channel is None or channel.definition.incarnation != install.incarnation:
            return []
        refused = [(endpoint, each) for endpoint, each in refused if each.key in install.keys]
        present = [(e, each) for e, each in refused if (e, each.stream) in channel.producers]
        channel.derivations.installed(install.keys, present)
        if not refused:
            return []
        channel.derivations.drop_claims(install.number, install.keys)
        return self._collected(channel)

    def _derive(self, node: int, endpoint: int, request: Derive) -> tuple[Derived | None, list[Instruction]]:
        channel = self._opened(request.channel, request.incarnation)
        if not self._is_entered(channel, endpoint, request):
            key = channel.derivations.key_of(request.parent, request.shipment, self._identify)
            install = self._install(channel, endpoint, key, request)
            if install is not None:
                channel.derivations.claims[_asker(endpoint, request)] = Claim(node, key, install.number, install.keys)
                return None, [install]
            channel.derivations.handles[endpoint, request.handle] = (node, key)
        return self._derived(channel, endpoint, request), []

    def _install(
        self, channel: ChannelEntry, endpoint: int, key: str, request: Subscribe | Derive
    ) -> InstallDerived | None:
        """Have a derived channel among the others; what has to be done before it can be used, if anything."""
        if not key:
            return None
        derivations = channel.derivations
        if key not in derivations:
            assert request.shipment is not None
            derived = Derived(key, request.parent, request.shipment, endpoint)
            self._changed(channel)
            derivations.add(derived, channel.changes, self._next_installation())
        if derivations.lacks(key):
            self._changed(channel)
            derivations.renew(key, channel.changes, self._next_installation())
        number, keys = derivations.installing(key)
        to = tuple(sorted(channel.producer_addresses()))
        if not to:
            derivations.installed(keys, [])
            return None
        if not keys:
            return None
        definition = channel.definition
        return InstallDerived(definition.channel, definition.incarnation, number, keys, channel.version, to)

    def _next_installation(self) -> int:
        self._installation += 1
        return self._installation

    def _release(self, endpoint: int, request: Release) -> tuple[None, list[Instruction]]:
        channel = self._channels.get(request.channel)
        if channel is None:
            return None, []
        channel.derivations.claims.pop(Asker(endpoint, None, request.handle, 0), None)
        channel.derivations.handles.pop((endpoint, request.handle), None)
        return None, self._collected(channel)

    def _modulator(self, request: GetModulator) -> Derived | None:
        channel = self._channels.get(request.channel)
        found = channel.derivations.get(request.key) if channel is not None else None
        return found if found is not None and found.shipment.code else None  # nobody who reported it had its code

    def _modulator_gone(self, endpoint: int, request: ModulatorGone) -> None:
        channel = self._channels.get(request.channel)
        if channel is not None and (endpoint, request.stream) in channel.producers:
            channel.derivations.note_lack(endpoint, request.stream, request.key, request.generation)

    def _derived(self, channel: ChannelEntry, endpoint: int, request: Derive) -> Derived:
        derived = channel.derivations.get(channel.derivations.handles[endpoint, request.handle][1])
        assert derived is not None
        return derived

    def _collected(self, channel: ChannelEntry) -> list[Instruction]:
        """End what nothing uses any more; what that changes."""
        if not channel.collect():
            return []
        self._changed(channel)
        return self._push(channel)

    # ---- who is there and who is not -------------------------------------------------------------------------------

    def endpoint_gone(self, endpoint: int) -> list[Instruction]:
        """Take a process out of every channel: it has ended."""
        _remember(self._gone_endpoints, endpoint, None, MAX_REMEMBERED_ENDPOINTS)
        return self._removed(lambda _, other: other == endpoint)

    def node_gone(self, node: int) -> list[Instruction]:
        """Take each endpoint of a node out of every channel: the node has died."""
        self._gone_nodes.add(node)
        return self._removed(lambda other, _: other == node)

    def nodes_present(self, nodes: Iterable[int]) -> None:
        """Note that nodes have a concentrator (again); their endpoints have to report."""
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
        elif channel.definition.incarnation == incarnation:
            newer = max(channel.definition, reported.definition, key=lambda each: each.revision)
            instructions += self._revise(channel, newer.type_schema, reported.definition.formats)
        if self._take_in(channel, reported):
            self._changed(channel)
            instructions += self._push(channel)
        elif reported.streams:
            instructions.append(PushMembership(reported.channel, channel.version, ((node, endpoint),)))
        return instructions

    def _take_in(self, channel: ChannelEntry, reported: Registrations) -> bool:
        """Take in what an endpoint reports of a channel; whether its membership has changed."""
        node, endpoint = reported.node, reported.endpoint
        derivations = channel.derivations
        changed = False
        for each in reported.derived:
            changed |= derivations.reported(each, channel.changes, self._identify)
        for stream, key in reported.streams:
            if not key or key in derivations:
                channel.producers[endpoint, stream] = (node, key)
        for stream, log in reported.logs:
            if (endpoint, stream) in channel.producers and channel.logs.get((endpoint, stream)) != log:
                channel.logs[endpoint, stream] = log
                changed = True
        for handle, key in reported.handles:
            if key in derivations:
                derivations.handles[endpoint, handle] = (node, key)
        for subscription, group, handler_fingerprint, key, handler_version in reported.consumers:
            known = channel.consumers.get((endpoint, subscription))
            # A report may have been under way while a reset was entered.
            if (not key or key in derivations) and (known is None or known.consumer.handler_version <= handler_version):
                derived = derivations.get(key)
                # Where a handler version is what it has, it was made on the parent; it does not say so.
                parent = derived.parent if derived is not None and handler_fingerprint else key
                entry = Subscribed(
                    Consumer(node, endpoint, subscription, group, key, handler_version), handler_fingerprint, parent
                )
                if known is None or known.consumer != entry.consumer:
                    channel.consumers[endpoint, subscription] = entry
                    changed = True
        return channel.collect() or changed

    def definitions_recovered(self, definitions: Iterable[Definition]) -> None:
        """Take in the second copy of the definitions, from before a restart."""
        for definition in definitions:
            known = self._channels.get(definition.channel)
            if known is None and definition.channel not in self._deleted:
                self._add(definition, "recovered")

    def all_memberships(self) -> list[Instruction]:
        """After a restart: each producer gets the memberships of the new epoch."""
        return [push for channel in self._channels.values() for push in self._push(channel)]

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _opened(self, name: str, incarnation: int) -> ChannelEntry:
        channel = self._channels.get(name)
        if channel is None or (incarnation and channel.definition.incarnation != incarnation):
            raise ChannelDeleted(
                f"channel {name!r} was deleted: `channel({name!r})` makes a new one",
                channel=name,
                incarnation=incarnation,
            )
        return channel

    def _add(self, definition: Definition, event: str) -> ChannelEntry:
        check_channel_name(definition.channel)
        self._next_incarnation = max(self._next_incarnation, definition.incarnation + 1)
        channel = ChannelEntry(definition, self._next_version(), Derivations(definition.channel))
        self._enter(definition.channel, event, channel)
        return channel

    def _enter(self, name: str, event: str, entry: ChannelEntry | _Deleted) -> None:
        """Put a name's entry where the table says that the event takes it."""
        state = CHANNEL_TRANSITIONS[self.state(name), event]
        self._channels.pop(name, None)
        self._deleted.pop(name, None)
        if state == "open":
            assert isinstance(entry, ChannelEntry), entry
            self._channels[name] = entry
        else:
            assert isinstance(entry, _Deleted), entry
            _remember(self._deleted, name, entry, MAX_REMEMBERED_DELETIONS)

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _changed(self, channel: ChannelEntry) -> None:
        channel.version = self._next_version()
        channel.changes += 1

    def _push(self, channel: ChannelEntry) -> list[Instruction]:
        to = tuple(sorted(channel.concerned()))
        return [PushMembership(channel.definition.channel, channel.version, to)] if to else []

    def _removed(self, matches: Callable[[int, int], bool]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for channel in self._channels.values():
            gone = [key for key, (node, _) in channel.producers.items() if matches(node, key[0])]
            lost_logs = [channel.drop_producer(key) for key in gone]
            lost = [key for key, each in channel.consumers.items() if matches(each.consumer.node, key[0])]
            for key in lost:
                del channel.consumers[key]
            channel.derivations.forget_users(matches)
            if channel.collect() or lost or any(lost_logs):
                self._changed(channel)
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
            channel.validate()
            for node, endpoint in channel.addresses():
                assert not self.is_gone(node, endpoint), f"{endpoint:016x} is gone and takes part in {name!r}"
        assert len(self._deleted) <= MAX_REMEMBERED_DELETIONS
        assert len(self._gone_endpoints) <= MAX_REMEMBERED_ENDPOINTS


def _asker(endpoint: int, request: Subscribe | Derive) -> Asker:
    if isinstance(request, Subscribe):
        return Asker(endpoint, request.subscription, None, request.handler_version)
    return Asker(endpoint, None, request.handle, 0)


def _remember(entries: dict[Any, Any], key: object, value: object, limit: int) -> None:
    """Add an entry as the newest, and forget the oldest beyond the limit."""
    entries.pop(key, None)
    entries[key] = value
    while len(entries) > limit:
        del entries[next(iter(entries))]
