from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from echannel_ray.core.membership import ChannelBook, PushMembership, RecordDefinition
from echannel_ray.core.messages import (
    Consumer,
    Definition,
    DeleteChannel,
    GetChannelStats,
    LogAddress,
    OpenChannel,
    OpenedLog,
    RegisterProducer,
    Registrations,
    Shipment,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, Disconnected, InvalidName, ModulatorRefused, TypeMismatch

NODE, OTHER_NODE = 1, 2
PRODUCER, CONSUMER = 10, 20
SCHEMA = {"fields": {"price": "float"}}


def open_schema(channel: str, defined: Any, asked: Any) -> Any:
    if defined != asked:
        raise TypeMismatch(f"{channel}: {defined} is not {asked}", channel=channel, field="price")
    return defined


def identify(shipment: Shipment) -> str:
    if shipment.code == b"senseless":
        raise ModulatorRefused("no modulator", reason="test")
    return shipment.code.hex()


@pytest.fixture
def book() -> Iterator[ChannelBook]:
    made = ChannelBook(100, open_schema, identify)
    yield made
    made.validate()


def open_channel(book: ChannelBook, name: str = "c", schema: Any = None) -> Definition:
    definition: Definition = book.requested(NODE, PRODUCER, OpenChannel(name, schema, {}))[0]
    return definition


def produce(book: ChannelBook, stream: int = 1, endpoint: int = PRODUCER, node: int = NODE, **more: Any) -> Any:
    return book.requested(node, endpoint, RegisterProducer("c", stream, **more))


def subscribe(
    book: ChannelBook, group: str | None = None, handler_fingerprint: str = "", endpoint: int = CONSUMER, **more: Any
) -> Any:
    return book.requested(OTHER_NODE, endpoint, Subscribe("c", 7, group, handler_fingerprint, **more))


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


def test_what_a_subscription_has_counted_after_it_was_closed_is_added(book):
    open_channel(book)
    subscribe(book)
    book.requested(OTHER_NODE, CONSUMER, Unsubscribe("c", 7, {"events_delivered": 3}))
    book.requested(OTHER_NODE, CONSUMER, Unsubscribe("c", 7, {"events_delivered": 1}, is_late=True))
    stats, _ = book.requested(NODE, PRODUCER, GetChannelStats("c"))
    assert stats["events_delivered"] == 4


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
    first = ChannelBook(100, open_schema, identify)
    old = open_channel(first)
    second = ChannelBook(101, open_schema, identify)
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
    late = Registrations(OTHER_NODE, CONSUMER, "c", book.definitions()[0], (), ((7, None, "", "", 0),))
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
    book.registrations_reported(Registrations(OTHER_NODE, CONSUMER, "c", definition, (), ((7, None, "", "", 0),)))
    assert (OTHER_NODE, CONSUMER) in book.addresses("c")
    book.node_gone(OTHER_NODE)
    book.nodes_present([OTHER_NODE])
    subscribe(book)


def test_reports_rebuild_a_book(book):
    definition = open_channel(book, schema=SCHEMA)
    produce(book)
    subscribe(book, "g", "p")
    rebuilt = ChannelBook(200, open_schema, identify)
    reports = [
        Registrations(NODE, PRODUCER, "c", definition, ((1, ""),), ()),
        Registrations(OTHER_NODE, CONSUMER, "c", definition, (), ((7, "g", "p", "", 0),)),
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
    report = Registrations(NODE, PRODUCER, "c", old, ((1, ""),), ())
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


LOG = OpenedLog("0123", 7)


def open_retained(book: ChannelBook) -> Definition:
    definition: Definition = book.requested(NODE, PRODUCER, OpenChannel("c", None, {"retain": {}}, {}))[0]
    return definition


def test_who_keeps_a_log_is_told_to_readers_and_producers(book):
    open_retained(book)
    subscribe(book)
    membership, instructions = produce(book, log=LOG)
    assert membership.logs == (LogAddress(NODE, PRODUCER, "0123", 7),)
    everybody = ((NODE, PRODUCER), (OTHER_NODE, CONSUMER))
    assert instructions == [PushMembership("c", membership.version, everybody)]
    assert produce(book, log=LOG) == (membership, [])  # repeated
    assert book.counts("c")["producers"] == 0  # it publishes nothing of its own
    replaced, instructions = produce(book, log=OpenedLog("4567", 0))
    assert replaced.logs == (LogAddress(NODE, PRODUCER, "4567", 0),)
    assert instructions == [PushMembership("c", replaced.version, everybody)]


def test_readers_hear_of_other_consumers_only_where_there_is_retention(book):
    open_channel(book)
    produce(book)
    _, [push] = subscribe(book)
    assert push.to == ((NODE, PRODUCER),)


@pytest.mark.parametrize("how", ["endpoint", "node", "unregistered"])
def test_readers_hear_of_the_end_of_the_last_log(book, how):
    open_retained(book)
    subscribe(book)
    produce(book, log=LOG)
    if how == "endpoint":
        instructions = book.endpoint_gone(PRODUCER)
    elif how == "node":
        instructions = book.node_gone(NODE)
    else:
        instructions = book.requested(NODE, PRODUCER, UnregisterProducer("c", 1, {}))[1]
    assert book.membership("c").logs == ()
    assert instructions == [PushMembership("c", book.membership("c").version, ((OTHER_NODE, CONSUMER),))]


def test_reports_rebuild_logs(book):
    definition = open_retained(book)
    produce(book, log=LOG)
    rebuilt = ChannelBook(200, open_schema, identify)
    rebuilt.registrations_reported(
        Registrations(OTHER_NODE, CONSUMER, "c", definition, (), ((7, None, "", "", 0),)),
    )
    report = Registrations(NODE, PRODUCER, "c", definition, ((1, ""),), (), logs=((1, LOG),))
    [push] = [each for each in rebuilt.registrations_reported(report) if isinstance(each, PushMembership)]
    assert push.to == ((NODE, PRODUCER), (OTHER_NODE, CONSUMER))
    assert rebuilt.membership("c").logs == book.membership("c").logs
    # A second time nothing changes, and a log without its producer is none.
    version = rebuilt.membership("c").version
    rebuilt.registrations_reported(report)
    assert rebuilt.membership("c").version == version
    stray = Registrations(NODE, 30, "c", definition, (), (), logs=((1, OpenedLog("89ab", 0)),))
    rebuilt.registrations_reported(stray)
    assert len(rebuilt.membership("c").logs) == 1
    rebuilt.validate()
