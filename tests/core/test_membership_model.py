"""Hypothesis drives the book against what the endpoints themselves know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echannel_ray.core.derivations import make_key
from echannel_ray.core.membership import CHANNEL_TRANSITIONS, ChannelBook, InstallDerived
from echannel_ray.core.messages import (
    Consumer,
    Definition,
    DeleteChannel,
    Derive,
    Derived,
    ModulatorGone,
    OpenChannel,
    RefusedModulator,
    RegisterProducer,
    Registrations,
    Release,
    Shipment,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, Disconnected, ModulatorRefused, TypeMismatch
from tests.core.test_membership import SCHEMA, identify, open_schema

NAMES = st.sampled_from(["a", "a", "b"])
ENDPOINTS = st.integers(1, 6)
NUMBERS = st.integers(1, 2)
HANDLER_VERSIONS = st.integers(0, 3)
GROUPS = st.sampled_from([None, None, "g"])
CODES = st.sampled_from([None, b"m", b"n"])
INDEXES = st.integers(0, 7)


def node_of(endpoint: int) -> int:
    return endpoint % 3


def ship(code: bytes | None) -> Shipment | None:
    return None if code is None else Shipment("Modulator", "isolated", code)


@dataclass(frozen=True)
class Subscribed:
    group: str | None
    handler_fingerprint: str
    parent: str
    key: str
    handler_version: int


@dataclass(frozen=True)
class Waiting:
    """A request that waits for an installation, and what it enters when that succeeds."""

    endpoint: int
    request: Subscribe | Derive
    install: InstallDerived
    key: str

    def waits_for(self, other: InstallDerived) -> bool:
        mine = self.install
        return (mine.channel, mine.number, mine.keys) == (other.channel, other.number, other.keys)


class BookAgainstModel(RuleBasedStateMachine):
    """A restart rebuilds the book from the model, in which requests that wait are lost."""

    @initialize()
    def start(self) -> None:
        self.book = ChannelBook(1, open_schema, identify)
        self.definitions: dict[str, Definition] = {}
        self.old_handles: list[Definition] = []
        self.producers: dict[tuple[str, int, int], str] = {}
        self.consumers: dict[tuple[str, int, int], Subscribed] = {}
        self.handles: dict[tuple[str, int, int], str] = {}
        self.derived: dict[tuple[str, str], Derived] = {}
        self.waiting: list[Waiting] = []
        self.gone: set[int] = set()
        self.seen: dict[str, tuple[int, int]] = {}
        self.open("a", 1, None)
        for endpoint in (1, 2):
            self.register("a", endpoint, 1, 0)

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def expect(self, endpoint: int, request: Any, *errors: type[Exception]) -> tuple[Any, ...]:
        """Send it twice. (Reply, instructions) where it was granted; it must raise just where an error is given."""
        if endpoint in self.gone:
            errors = (Disconnected,)
        before = self.book.state(request.channel)
        if errors:
            with pytest.raises(errors):
                self.book.requested(node_of(endpoint), endpoint, request)
            return ()
        answers = [self.book.requested(node_of(endpoint), endpoint, request) for _ in range(2)]
        assert answers[0][0] == answers[1][0]
        event = {OpenChannel: "opened", DeleteChannel: "deleted"}.get(type(request))
        if event is not None:
            assert self.book.state(request.channel) == CHANNEL_TRANSITIONS.get((before, event), before)
        return answers[0]

    def missing(self, channel: str) -> tuple[type[Exception], ...]:
        return () if channel in self.definitions else (ChannelDeleted,)

    def live(self, channel: str) -> set[str]:
        """The derived channels that something uses, and their parents."""
        keys = {key for (name, *_), key in (*self.producers.items(), *self.handles.items()) if name == channel}
        keys |= {each.key for (name, *_), each in self.consumers.items() if name == channel}
        keys |= {each.key for each in self.waiting if each.request.channel == channel}
        live: set[str] = set()
        for key in keys:
            while key:
                live.add(key)
                key = self.derived[channel, key].parent
        return live

    def contradicts(self, endpoint: int, request: Subscribe | Derive) -> bool:
        """Whether it is another request of the same subscription's handler version, or of the same handle: none ever
        is.
        """

        def asker(each: Subscribe | Derive) -> tuple[Any, ...]:
            own = (each.subscription, each.handler_version) if isinstance(each, Subscribe) else each.handle
            return type(each), each.channel, own

        mine = (endpoint, *asker(request))
        return any((w.endpoint, *asker(w.request)) == mine and w.request != request for w in self.waiting)

    def parent(self, channel: str, index: int) -> str:
        keys = ["", *sorted(self.live(channel))]
        return keys[index % len(keys)]

    def key_of(self, channel: str, endpoint: int, parent: str, shipment: Shipment | None) -> str:
        if shipment is None:
            return parent
        key = make_key(parent, identify(shipment), shipment.tier)
        if key not in self.live(channel):
            self.derived[channel, key] = Derived(key, parent, shipment, endpoint)
        return key

    def chain(self, channel: str, keys: set[str]) -> tuple[Derived, ...]:
        found: dict[str, Derived] = {}

        def add(key: str) -> None:
            if key and key not in found:
                add(self.derived[channel, key].parent)
                found[key] = self.derived[channel, key]

        for key in sorted(keys):
            add(key)
        return tuple(found.values())

    def enter(self, endpoint: int, request: Subscribe | Derive, key: str) -> None:
        if isinstance(request, Derive):
            self.handles.setdefault((request.channel, endpoint, request.handle), key)
            return
        place = (request.channel, endpoint, request.subscription)
        known = self.consumers.get(place)
        if known is None or known.handler_version < request.handler_version:
            self.consumers[place] = Subscribed(
                request.group, request.handler_fingerprint, request.parent, key, request.handler_version
            )

    def grant(self, endpoint: int, request: Subscribe | Derive, key: str, granted: tuple[Any, ...]) -> None:
        if not granted:
            return
        reply, instructions = granted
        if reply is not None:
            self.enter(endpoint, request, key)
            return
        (install,) = instructions
        assert isinstance(install, InstallDerived)
        assert install.keys
        assert set(install.keys) <= self.live(request.channel) | {key}
        self.forget_waiting(lambda each: (each.endpoint, each.request) == (endpoint, request))
        self.waiting.append(Waiting(endpoint, request, install, key))

    def forget_waiting(self, matches: Any) -> None:
        self.waiting = [each for each in self.waiting if not matches(each)]

    def forget(self, endpoints: set[int]) -> None:
        self.producers = {key: value for key, value in self.producers.items() if key[1] not in endpoints}
        self.consumers = {key: value for key, value in self.consumers.items() if key[1] not in endpoints}
        self.handles = {key: value for key, value in self.handles.items() if key[1] not in endpoints}
        self.forget_waiting(lambda each: each.endpoint in endpoints)

    # ---- channels ----------------------------------------------------------------------------------------------------

    @rule(channel=NAMES, endpoint=ENDPOINTS, schema=st.sampled_from([None, None, SCHEMA]))
    def open(self, channel, endpoint, schema):
        known = self.definitions.get(channel)
        mismatch = known is not None and schema is not None and known.type_schema != schema
        if self.expect(endpoint, OpenChannel(channel, schema, {}), *((TypeMismatch,) if mismatch else ())):
            found = {definition.channel: definition for definition in self.book.definitions()}[channel]
            assert known in (None, found)
            assert all(found.incarnation > old.incarnation for old in self.old_handles if old.channel == channel)
            self.definitions[channel] = found

    @rule(channel=NAMES, endpoint=ENDPOINTS)
    def delete(self, channel, endpoint):
        if self.expect(endpoint, DeleteChannel(channel)) and channel in self.definitions:
            self.old_handles.append(self.definitions.pop(channel))
            for held in (self.producers, self.consumers, self.handles):
                for key in [key for key in held if key[0] == channel]:
                    del held[key]
            self.forget_waiting(lambda each: each.request.channel == channel)

    # ---- producers and consumers -------------------------------------------------------------------------------------

    @rule(channel=NAMES, endpoint=ENDPOINTS, stream=NUMBERS, straight=INDEXES)
    def register(self, channel, endpoint, stream, straight):
        new = self.parent(channel, straight) if straight > 5 else ""
        key = self.producers.get((channel, endpoint, stream), new)  # a producer stays where it is
        granted = self.expect(endpoint, RegisterProducer(channel, stream, derived=key), *self.missing(channel))
        if granted:
            self.producers[channel, endpoint, stream] = key
            assert all(derived.shipment.code for derived in granted[0].derived)

    @rule(channel=NAMES, endpoint=ENDPOINTS, stream=NUMBERS)
    def unregister(self, channel, endpoint, stream):
        if self.expect(endpoint, UnregisterProducer(channel, stream, {})):
            self.producers.pop((channel, endpoint, stream), None)

    @rule(
        channel=NAMES,
        endpoint=ENDPOINTS,
        number=NUMBERS,
        group=GROUPS,
        code=CODES,
        parent=INDEXES,
        handler_version=HANDLER_VERSIONS,
    )
    def subscribe(self, channel, endpoint, number, group, code, parent, handler_version):
        place = (channel, endpoint, number)
        known = self.consumers.get(place)
        handler_fingerprint = "" if code is None else code.hex()
        request = Subscribe(
            channel,
            number,
            group,
            handler_fingerprint,
            parent=self.parent(channel, parent),
            shipment=ship(code),
            handler_version=handler_version,
        )
        if self.contradicts(endpoint, request):
            return
        key = self.key_of(channel, endpoint, request.parent, request.shipment)
        members = [
            (where, each.parent, each.key, each.handler_fingerprint)
            for where, each in self.consumers.items()
            if where[0] == channel and each.group == group
        ]
        for each in self.waiting:
            if isinstance(each.request, Subscribe) and (each.request.channel, each.request.group) == (channel, group):
                where = (channel, each.endpoint, each.request.subscription)
                members.append((where, each.request.parent, each.key, each.request.handler_fingerprint))
        refused = any(
            where != place
            and (its_parent == request.parent or its_key == key)
            and (its_fingerprint != handler_fingerprint or known is not None)
            for where, its_parent, its_key, its_fingerprint in members
        )
        is_repeated = known is not None and known.handler_version >= handler_version
        errors = self.missing(channel)
        if group is not None and refused and not is_repeated:
            errors = errors or (ModulatorRefused,)
        self.grant(endpoint, request, key, self.expect(endpoint, request, *errors))

    @rule(channel=NAMES, endpoint=ENDPOINTS, number=NUMBERS)
    def unsubscribe(self, channel, endpoint, number):
        if self.expect(endpoint, Unsubscribe(channel, number, {})):
            self.consumers.pop((channel, endpoint, number), None)
            self.forget_waiting(
                lambda each: (
                    isinstance(each.request, Subscribe)
                    and (each.request.channel, each.endpoint, each.request.subscription) == (channel, endpoint, number)
                )
            )

    # ---- what is derived ---------------------------------------------------------------------------------------------

    @rule(channel=NAMES, endpoint=ENDPOINTS, handle=NUMBERS, code=st.sampled_from([b"m", b"n"]), parent=INDEXES)
    def derive(self, channel, endpoint, handle, code, parent):
        request = Derive(channel, handle, self.parent(channel, parent), Shipment("Modulator", "isolated", code))
        if self.contradicts(endpoint, request):
            return
        key = self.key_of(channel, endpoint, request.parent, request.shipment)
        granted = self.expect(endpoint, request, *self.missing(channel))
        if granted and granted[0] is not None:
            known = self.handles.get((channel, endpoint, handle))
            assert granted[0].key == (known or key)
        self.grant(endpoint, request, key, granted)

    @rule(channel=NAMES, endpoint=ENDPOINTS, handle=NUMBERS)
    def release(self, channel, endpoint, handle):
        if self.expect(endpoint, Release(channel, handle)):
            self.handles.pop((channel, endpoint, handle), None)
            self.forget_waiting(
                lambda each: (
                    isinstance(each.request, Derive)
                    and (each.request.channel, each.endpoint, each.request.handle) == (channel, endpoint, handle)
                )
            )

    @precondition(lambda self: self.producers)
    @rule(index=INDEXES, which=INDEXES)
    def lose_a_modulator(self, index, which):
        channel, endpoint, stream = [*self.producers][index % len(self.producers)]
        membership = self.book.membership(channel)
        assert membership is not None
        if membership.derived:
            derived = membership.derived[which % len(membership.derived)]
            self.book.requested(
                node_of(endpoint), endpoint, ModulatorGone(channel, derived.key, derived.generation, stream)
            )

    @precondition(lambda self: self.waiting)
    @rule(index=INDEXES, who=INDEXES, refuses=st.booleans())
    def end_an_installation(self, index, who, refuses):
        install = self.waiting[index % len(self.waiting)].install
        membership = self.book.membership(install.channel)
        assert membership is not None
        assert set(install.keys) <= {derived.key for derived in membership.derived}
        refused = []
        if refuses:
            key = install.keys[who % len(install.keys)]
            refused = [(install.to[who % len(install.to)][1], RefusedModulator(key, 1, b""))]
        self.book.install_ended(install, refused)
        concerned = [each for each in self.waiting if each.waits_for(install)]
        self.forget_waiting(lambda each: each.waits_for(install))
        for each in concerned if not refuses else ():
            for _ in range(2):
                reply, _ = self.book.resumed(node_of(each.endpoint), each.endpoint, each.request)
                assert reply is not None
            self.enter(each.endpoint, each.request, each.key)

    # ---- who is gone -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.old_handles)
    @rule(data=st.data(), endpoint=ENDPOINTS)
    def use_an_old_handle(self, data, endpoint):
        old = data.draw(st.sampled_from(self.old_handles))
        self.expect(endpoint, RegisterProducer(old.channel, 1, old.incarnation), ChannelDeleted)
        if endpoint not in self.gone:
            reported = Registrations(node_of(endpoint), endpoint, old.channel, old, ((1, ""),), ())
            self.book.registrations_reported(reported)
            # A manager that was restarted since has forgotten the deletion: everybody had confirmed it before.
            if old.channel not in self.definitions:
                self.book.requested(node_of(endpoint), endpoint, DeleteChannel(old.channel))

    @rule(endpoint=ENDPOINTS)
    def die(self, endpoint):
        self.gone.add(endpoint)
        self.book.endpoint_gone(endpoint)
        self.forget({endpoint})

    @rule(node=st.integers(0, 2))
    def lose_node(self, node):
        lost = {endpoint for endpoint in range(1, 7) if node_of(endpoint) == node}
        self.book.node_gone(node)
        for endpoint in lost - self.gone:
            with pytest.raises(Disconnected):
                self.book.requested(node, endpoint, OpenChannel("a", None, {}))
        self.forget(lost)
        self.book.nodes_present([node])

    @rule(recovered=st.booleans())
    def restart(self, recovered):
        """Without the name server's copy, idle channels are lost: then its restart has come at the same time."""
        self.waiting.clear()
        self.book = ChannelBook(self.book.epoch + 1, open_schema, identify)
        if recovered:
            self.book.definitions_recovered(self.definitions.values())
        else:
            used = {key[0] for key in (*self.producers, *self.consumers, *self.handles)}
            self.old_handles += [self.definitions.pop(name) for name in self.definitions.keys() - used]
        for endpoint in self.gone:
            self.book.endpoint_gone(endpoint)
        for reported in self.reports():
            self.book.registrations_reported(reported)
            self.book.registrations_reported(reported)

    def reports(self) -> list[Registrations]:
        reports = []
        for channel, endpoint in {key[:2] for key in (*self.producers, *self.consumers, *self.handles)}:
            mine = (channel, endpoint)
            streams = {key[2]: derived for key, derived in self.producers.items() if key[:2] == mine}
            consumers = {key[2]: each for key, each in self.consumers.items() if key[:2] == mine}
            handles = {key[2]: derived for key, derived in self.handles.items() if key[:2] == mine}
            keys = {*streams.values(), *handles.values(), *(each.key for each in consumers.values())}
            reports.append(
                Registrations(
                    node_of(endpoint),
                    endpoint,
                    channel,
                    self.definitions[channel],
                    tuple(streams.items()),
                    tuple(
                        (number, c.group, c.handler_fingerprint, c.key, c.handler_version)
                        for number, c in consumers.items()
                    ),
                    self.chain(channel, keys),
                    tuple(handles.items()),
                )
            )
        return reports

    @invariant()
    def the_book_agrees(self) -> None:
        self.book.validate()
        assert self.book.channels() == sorted(self.definitions)
        for channel in self.definitions:
            membership = self.book.membership(channel)
            assert membership is not None
            expected = {
                Consumer(node_of(endpoint), endpoint, number, each.group, each.key, each.handler_version)
                for (name, endpoint, number), each in self.consumers.items()
                if name == channel
            }
            assert set(membership.consumers) == expected
            assert {derived.key for derived in membership.derived} == self.live(channel)
            mine = {(node_of(key[1]), key[1]) for key in (*self.producers, *self.consumers) if key[0] == channel}
            assert self.book.addresses(channel) == mine
            assert (membership.epoch, membership.version) >= self.seen.get(channel, (0, 0))
            self.seen[channel] = (membership.epoch, membership.version)


TestBookAgainstModel = BookAgainstModel.TestCase
TestBookAgainstModel.settings = settings(max_examples=150, stateful_step_count=40)
