from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echannel_ray.errors import ChannelDeleted, Disconnected, InvalidName, ModulatorRefused, TypeMismatch
from echannel_ray.protocol.membership import CHANNEL_TRANSITIONS, ChannelBook, PushMembership, RecordDefinition
from echannel_ray.protocol.messages import (
    Consumer,
    Definition,
    DeleteChannel,
    GetChannelStats,
    OpenChannel,
    RegisterProducer,
    Registrations,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)

NODE, OTHER_NODE = 1, 2
PRODUCER, CONSUMER = 10, 20
SCHEMA = {"fields": {"price": "float"}}


def compare(channel: str, defined: Any, asked: Any) -> None:
    if defined != asked:
        raise TypeMismatch(f"{channel}: {defined} is not {asked}", channel=channel, field="price")


@pytest.fixture
def book() -> Iterator[ChannelBook]:
    made = ChannelBook(100, compare)
    yield made
    made.validate()


def open_channel(book: ChannelBook, name: str = "c", schema: Any = None) -> Definition:
    definition: Definition = book.requested(NODE, PRODUCER, OpenChannel(name, schema, {}))[0]
    return definition


def produce(book: ChannelBook, stream: int = 1, endpoint: int = PRODUCER, node: int = NODE, **more: Any) -> Any:
    return book.requested(node, endpoint, RegisterProducer("c", stream, **more))


def subscribe(
    book: ChannelBook, group: str | None = None, pair: str = "", endpoint: int = CONSUMER, **more: Any
) -> Any:
    return book.requested(OTHER_NODE, endpoint, Subscribe("c", 7, group, pair, **more))


def test_the_first_opening_defines_and_the_others_compare(book):
    definition, instructions = book.requested(NODE, PRODUCER, OpenChannel("c", SCHEMA, {"packing": 1}))
    assert instructions == [RecordDefinition(definition)]
    assert (definition.type_schema, definition.options) == (SCHEMA, {"packing": 1})
    assert book.requested(NODE, CONSUMER, OpenChannel("c", SCHEMA, {})) == (definition, [])
    assert book.requested(NODE, CONSUMER, OpenChannel("c", None, {})) == (definition, [])
    with pytest.raises(TypeMismatch):
        book.requested(NODE, CONSUMER, OpenChannel("c", {"fields": {}}, {}))
    assert book.channels() == ["c"]


@pytest.mark.parametrize("name", ["", "a//b", "/a", "x" * 256, "a\n"])
def test_names_are_checked(book, name):
    with pytest.raises(InvalidName):
        open_channel(book, name)
    open_channel(book)
    with pytest.raises(InvalidName):
        subscribe(book, group=name)


def test_subscribe_tells_each_producers_endpoint_once(book):
    open_channel(book)
    first, _ = produce(book, 1)
    produce(book, 2)
    produce(book, 1, endpoint=11, node=OTHER_NODE)
    membership, instructions = subscribe(book)
    assert membership.consumers == (Consumer(OTHER_NODE, CONSUMER, 7, None),)
    assert (membership.epoch, membership.version) > (first.epoch, first.version)
    assert instructions == [PushMembership("c", membership.version, ((NODE, PRODUCER), (OTHER_NODE, 11)))]
    assert produce(book, 3)[0] == membership


def test_repeated_requests_change_nothing_and_are_answered_alike(book):
    open_channel(book)
    assert produce(book) == produce(book)
    assert subscribe(book) == subscribe(book), "also the second has to wait for all producers"
    close = UnregisterProducer("c", 1, {"events_published": 5})
    assert book.requested(NODE, PRODUCER, close) == book.requested(NODE, PRODUCER, close) == (None, [])
    leave = Unsubscribe("c", 7, {"events_delivered": 3})
    assert book.requested(OTHER_NODE, CONSUMER, leave) == book.requested(OTHER_NODE, CONSUMER, leave)
    stats, _ = book.requested(NODE, PRODUCER, GetChannelStats("c"))
    assert stats == {"events_published": 5, "events_delivered": 3, "producers": 0, "consumers": 0}


def test_members_of_a_group_have_equal_pairs(book):
    open_channel(book)
    subscribe(book, "g", "pair")
    with pytest.raises(ModulatorRefused) as caught:
        subscribe(book, "g", "another", endpoint=21)
    assert caught.value.facts["group"] == "g"
    subscribe(book, "g", "pair", endpoint=21)
    subscribe(book, "h", "another", endpoint=22)
    subscribe(book, None, "another", endpoint=23)


def test_a_deleted_channel_is_gone_for_its_handles_and_free_for_a_new_one(book):
    old = open_channel(book, schema=SCHEMA)
    produce(book)
    subscribe(book)
    none, instructions = book.requested(NODE, PRODUCER, DeleteChannel("c", old.incarnation))
    assert none is None
    last = book.membership("c")
    assert last.deleted
    assert instructions[0] == PushMembership("c", last.version, ((NODE, PRODUCER), (OTHER_NODE, CONSUMER)))
    assert instructions[1] == RecordDefinition(old, deleted=True)
    assert book.requested(NODE, PRODUCER, DeleteChannel("c", old.incarnation)) == (None, instructions[:1])
    with pytest.raises(ChannelDeleted):
        produce(book)
    new = open_channel(book)
    assert new.incarnation > old.incarnation
    with pytest.raises(ChannelDeleted):
        subscribe(book, incarnation=old.incarnation)
    with pytest.raises(ChannelDeleted):
        book.requested(NODE, PRODUCER, DeleteChannel("c", old.incarnation))
    membership, _ = subscribe(book, incarnation=new.incarnation)
    assert membership.version > last.version
    assert membership.incarnation == new.incarnation


def test_incarnations_rise_across_restarts():
    first = ChannelBook(100, compare)
    old = open_channel(first)
    second = ChannelBook(101, compare)
    assert open_channel(second).incarnation > old.incarnation


def test_who_is_gone_takes_part_in_nothing_and_is_refused(book):
    open_channel(book)
    produce(book)
    subscribe(book)
    instructions = book.endpoint_gone(CONSUMER)
    assert book.membership("c").consumers == ()
    assert instructions == [PushMembership("c", book.membership("c").version, ((NODE, PRODUCER),))]
    with pytest.raises(Disconnected):
        subscribe(book)  # it asked before it died
    late = Registrations(OTHER_NODE, CONSUMER, "c", book.definitions()[0], (), ((7, None, ""),))
    assert book.registrations_reported(late) == []
    assert book.endpoint_gone(CONSUMER) == []


def test_a_node_that_reports_is_back(book):
    definition = open_channel(book)
    produce(book)
    subscribe(book)
    assert len(book.node_gone(OTHER_NODE)) == 1
    assert book.addresses("c") == {(NODE, PRODUCER)}
    with pytest.raises(Disconnected):
        subscribe(book)
    book.registrations_reported(Registrations(OTHER_NODE, CONSUMER, "c", definition, (), ((7, None, ""),)))
    assert (OTHER_NODE, CONSUMER) in book.addresses("c")
    book.node_gone(OTHER_NODE)
    book.nodes_present([OTHER_NODE])
    subscribe(book)


def test_reports_rebuild_a_book(book):
    definition = open_channel(book, schema=SCHEMA)
    produce(book)
    subscribe(book, "g", "p")
    rebuilt = ChannelBook(200, compare)
    reports = [
        Registrations(NODE, PRODUCER, "c", definition, (1,), ()),
        Registrations(OTHER_NODE, CONSUMER, "c", definition, (), ((7, "g", "p"),)),
    ]
    assert rebuilt.registrations_reported(reports[0])[0] == RecordDefinition(definition)
    pushes = rebuilt.registrations_reported(reports[1])
    assert pushes == [PushMembership("c", rebuilt.membership("c").version, ((NODE, PRODUCER),))]
    assert rebuilt.membership("c").consumers == book.membership("c").consumers
    version = rebuilt.membership("c").version
    # A second time nothing changes, but who reports a producer gets the membership: it may have missed one.
    assert rebuilt.registrations_reported(reports[0]) == [PushMembership("c", version, ((NODE, PRODUCER),))]
    assert rebuilt.registrations_reported(reports[1]) == []
    assert len(rebuilt.all_memberships()) == 1
    rebuilt.validate()


def test_who_missed_a_deletion_is_told_again(book):
    old = open_channel(book)
    produce(book)
    book.requested(NODE, PRODUCER, DeleteChannel("c"))
    report = Registrations(NODE, PRODUCER, "c", old, (1,), ())
    deleted = book.membership("c")
    assert book.registrations_reported(report) == [PushMembership("c", deleted.version, ((NODE, PRODUCER),))]
    new = open_channel(book)
    assert book.registrations_reported(report) == [
        PushMembership("c", book.membership("c").version, ((NODE, PRODUCER),))
    ]
    assert book.definitions() == [new]
    assert book.addresses("c") == set()


def test_a_recovered_definition_does_not_bring_back_what_was_deleted(book):
    old = open_channel(book)
    book.requested(NODE, PRODUCER, DeleteChannel("c"))
    book.definitions_recovered([old])
    assert book.state("c") == "deleted"


NAMES = st.sampled_from(["a", "b"])
ENDPOINTS = st.integers(1, 6)
NUMBERS = st.integers(1, 2)
GROUPS = st.sampled_from([None, "g"])
PAIRS = st.sampled_from(["", "p"])


def node_of(endpoint: int) -> int:
    return endpoint % 3


class BookAgainstModel(RuleBasedStateMachine):
    """The model is what the endpoints themselves know; a restart rebuilds the book from that."""

    @initialize()
    def start(self) -> None:
        self.book = ChannelBook(1, compare)
        self.definitions: dict[str, Definition] = {}
        self.old_handles: list[Definition] = []
        self.producers: set[tuple[str, int, int]] = set()
        self.consumers: dict[tuple[str, int, int], tuple[str | None, str]] = {}
        self.gone: set[int] = set()
        self.seen: dict[str, tuple[int, int]] = {}

    def expect(self, endpoint: int, request: Any, *errors: type[Exception]) -> bool:
        """Send it, twice at times; whether it was granted. It must raise if and only if one of the errors is given."""
        if endpoint in self.gone:
            errors = (Disconnected,)
        before = self.book.state(request.channel)
        if errors:
            with pytest.raises(errors):
                self.book.requested(node_of(endpoint), endpoint, request)
            return False
        answers = [self.book.requested(node_of(endpoint), endpoint, request) for _ in range(2)]
        assert answers[0][0] == answers[1][0]
        event = {OpenChannel: "opened", DeleteChannel: "deleted"}.get(type(request))
        if event is not None:
            assert self.book.state(request.channel) == CHANNEL_TRANSITIONS.get((before, event), before)
        return True

    def missing(self, channel: str) -> tuple[type[Exception], ...]:
        return () if channel in self.definitions else (ChannelDeleted,)

    @rule(channel=NAMES, endpoint=ENDPOINTS, schema=st.sampled_from([None, SCHEMA]))
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
            self.producers = {key for key in self.producers if key[0] != channel}
            self.consumers = {key: value for key, value in self.consumers.items() if key[0] != channel}

    @rule(channel=NAMES, endpoint=ENDPOINTS, stream=NUMBERS)
    def register(self, channel, endpoint, stream):
        if self.expect(endpoint, RegisterProducer(channel, stream), *self.missing(channel)):
            self.producers.add((channel, endpoint, stream))

    @rule(channel=NAMES, endpoint=ENDPOINTS, stream=NUMBERS)
    def unregister(self, channel, endpoint, stream):
        if self.expect(endpoint, UnregisterProducer(channel, stream, {})):
            self.producers.discard((channel, endpoint, stream))

    @rule(channel=NAMES, endpoint=ENDPOINTS, number=NUMBERS, group=GROUPS, pair=PAIRS)
    def subscribe(self, channel, endpoint, number, group, pair):
        key = (channel, endpoint, number)
        others = [v for k, v in self.consumers.items() if k != key and k[0] == channel and v[0] == group]
        refused = group is not None and any(other_pair != pair for _, other_pair in others)
        errors = self.missing(channel) or ((ModulatorRefused,) if refused else ())
        if self.expect(endpoint, Subscribe(channel, number, group, pair), *errors):
            self.consumers[key] = (group, pair)

    @rule(channel=NAMES, endpoint=ENDPOINTS, number=NUMBERS)
    def unsubscribe(self, channel, endpoint, number):
        if self.expect(endpoint, Unsubscribe(channel, number, {})):
            self.consumers.pop((channel, endpoint, number), None)

    @precondition(lambda self: self.old_handles)
    @rule(data=st.data(), endpoint=ENDPOINTS)
    def use_an_old_handle(self, data, endpoint):
        old = data.draw(st.sampled_from(self.old_handles))
        self.expect(endpoint, RegisterProducer(old.channel, 1, old.incarnation), ChannelDeleted)
        if endpoint not in self.gone:
            before = self.book.state(old.channel)
            self.book.registrations_reported(Registrations(node_of(endpoint), endpoint, old.channel, old, (1,), ()))
            # A manager that was restarted since has forgotten the deletion: everybody had confirmed it before.
            if before == "absent":
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

    def forget(self, endpoints: set[int]) -> None:
        self.producers = {key for key in self.producers if key[1] not in endpoints}
        self.consumers = {key: value for key, value in self.consumers.items() if key[1] not in endpoints}

    @rule(recovered=st.booleans())
    def restart(self, recovered):
        """Without the name server's copy, idle channels are lost: then its restart has come at the same time."""
        self.book = ChannelBook(self.book.epoch + 1, compare)
        if recovered:
            self.book.definitions_recovered(self.definitions.values())
        else:
            used = {key[0] for key in (*self.producers, *self.consumers)}
            self.old_handles += [self.definitions.pop(name) for name in self.definitions.keys() - used]
        for endpoint in self.gone:
            self.book.endpoint_gone(endpoint)
        for reported in self.reports():
            self.book.registrations_reported(reported)
            self.book.registrations_reported(reported)

    def reports(self) -> list[Registrations]:
        return [
            Registrations(
                node_of(endpoint),
                endpoint,
                channel,
                self.definitions[channel],
                tuple(key[2] for key in self.producers if key[:2] == (channel, endpoint)),
                tuple((key[2], *value) for key, value in self.consumers.items() if key[:2] == (channel, endpoint)),
            )
            for channel, endpoint in {key[:2] for key in (*self.producers, *self.consumers)}
        ]

    @invariant()
    def the_book_agrees(self) -> None:
        self.book.validate()
        assert self.book.channels() == sorted(self.definitions)
        for channel in self.definitions:
            membership = self.book.membership(channel)
            assert membership is not None
            expected = {
                Consumer(node_of(endpoint), endpoint, number, group)
                for (name, endpoint, number), (group, _) in self.consumers.items()
                if name == channel
            }
            assert set(membership.consumers) == expected
            mine = {(node_of(key[1]), key[1]) for key in (*self.producers, *self.consumers) if key[0] == channel}
            assert self.book.addresses(channel) == mine
            assert (membership.epoch, membership.version) >= self.seen.get(channel, (0, 0))
            self.seen[channel] = (membership.epoch, membership.version)


TestBookAgainstModel = BookAgainstModel.TestCase
TestBookAgainstModel.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
