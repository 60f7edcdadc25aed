"""Clients of a gateway's port for events, and what they share with processes of the cluster."""

from __future__ import annotations

import dataclasses
import os
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import echannel_ray as ec
from echannel_ray.gateway.event_client import EventClient, EventMessage, EventSubscription, Opaque
from tests.api.parties import SOON, Inbox, Party, ask
from tests.clusters import wait_until


@dataclasses.dataclass
class Trade:
    price: float
    symbol: str


@dataclasses.dataclass
class Everything:
    number: int
    at: datetime
    amount: Decimal
    tags: list[str]
    nested: Trade
    maybe: int | None = None


class NotForOthers:
    """An event that only Python has a form for."""

    def __init__(self) -> None:
        self.value = 3


@pytest.fixture(scope="module")
def client(nodes) -> Iterator[EventClient]:
    session = ec.connect()
    with EventClient(str(session.gateway(derive=("*",))), patience_seconds=10) as made:
        yield made


def take(subscription: EventSubscription, count: int) -> list[Any]:
    return [message.event for message in messages(subscription, count)]


def messages(subscription: EventSubscription, count: int) -> list[EventMessage]:
    taken = []
    for _ in range(count):
        message = subscription.get(SOON)
        assert isinstance(message, EventMessage)
        taken.append(message)
    return taken


def test_an_actor_gets_what_a_client_publishes_as_what_it_was(client, name, far):
    events = [1, 2.5, "text", b"bytes", None, True, [1, [2]], {"a": {"b": [None]}}, {1: 2}]

    def consume(party: Party) -> None:
        party.kept["inbox"] = Inbox()
        party.kept["subscription"] = ec.channel(name).subscribe(party.kept["inbox"])

    assert client.open(name, {}) == {"channel": name, "fields": None, "is_retained": False}
    ask(far, consume)
    assert client.publish(name, events) == len(events)

    def handled(party: Party) -> Any:
        return party.kept["inbox"].wait(len(events))

    got = ask(far, handled)
    assert got == events
    assert [type(each) for each in got] == [type(each) for each in events]


def test_a_client_gets_what_an_actor_publishes(client, name, far):
    client.open(name, {})

    def publish(party: Party) -> str:
        producer = ec.channel(name).producer()
        producer.publish_many([1, 2.5, "text", b"bytes", None, False, {"a": [1, (2, {3})], "b": {"c": None}}])
        producer.drain()
        return producer.name

    with client.subscribe(name) as subscription:
        producer = ask(far, publish)
        got = messages(subscription, 7)
    plain = {"a": [1, [2, [3]]], "b": {"c": None}}
    assert [each.event for each in got] == [1, 2.5, "text", b"bytes", None, False, plain]
    assert [each.sequence for each in got] == [1, 2, 3, 4, 5, 6, 7]
    assert {each.producer for each in got} == {producer}
    assert all(abs(each.published_at - datetime.now().timestamp()) < 60 for each in got)


def test_what_is_only_python_s_is_opaque(client, name):
    with client.subscribe(client.open(name, {})["channel"]) as subscription, ec.channel(name).producer() as producer:
        producer.publish_many([1, NotForOthers(), np.zeros(10_000), 2])
        got = take(subscription, 4)
    assert (got[0], got[3]) == (1, 2)
    assert got[1].type_name.endswith("NotForOthers")
    assert isinstance(got[2], Opaque)
    assert got[2].size_bytes >= 80_000


class Trap:
    """Whoever unpickles it makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("retain", [None, ec.Retention()], ids=["live", "retained"])
def test_nobody_unpickles_for_a_client(client, name, tmp_path, retain):
    channel = ec.channel(name, retain=retain)
    with client.subscribe(name) as subscription, channel.producer() as producer:
        producer.publish_many([Trap(tmp_path / "sprung"), {"trap": Trap(tmp_path / "sprung")}, 3])
        got = take(subscription, 3)
    assert [type(each) for each in got] == [Opaque, Opaque, int]
    assert got[0].type_name == "posix.mkdir"
    assert not (tmp_path / "sprung").exists()
    if retain is not None:  # so it is one
        with channel.subscribe(start="earliest") as subscription:
            subscription.get(SOON)
        assert (tmp_path / "sprung").exists()


def test_records_are_maps_by_field_name(client, name):
    channel = ec.channel(name, Everything)
    event = Everything(3, datetime(2024, 2, 29, 12, tzinfo=timezone.utc), Decimal("1.50"), ["a"], Trade(1.5, "RAY"))
    with client.subscribe(name) as subscription, channel.producer() as producer, channel.subscribe() as typed:
        producer.publish(event)
        (got,) = take(subscription, 1)
        assert got == {
            "number": 3, "at": event.at, "amount": "1.50", "tags": ["a"],
            "nested": {"price": 1.5, "symbol": "RAY"}, "maybe": None,
        }  # fmt: skip
        assert typed.get(SOON) == event
        client.publish(name, [got])  # as it came
        assert typed.get(SOON) == event
    assert client.open(name)["fields"]["nested"] == "{price: float, symbol: str}"


@pytest.mark.parametrize(
    "event",
    [{"price": "much", "symbol": "RAY"}, {"price": 1.0}, {"symbol": "RAY"}, [1.0, "RAY"], "RAY", None,
     {"price": 1.0, "symbol": 3}],
)  # fmt: skip
def test_what_is_no_record_of_a_typed_channel_is_refused_and_nothing_of_its_frame_published(client, name, event):
    channel = ec.channel(name, Trade)
    with channel.subscribe() as subscription:
        with pytest.raises((ec.NotSerialisable, ec.TypeMismatch)):
            client.publish(name, [{"price": 1.0, "symbol": "before"}, event])
        client.publish(name, [{"price": 2, "symbol": "after"}])
        assert subscription.get(SOON) == Trade(2.0, "after")


def test_a_channel_is_made_by_the_names_of_types(client, name):
    fields = {"price": "float", "symbol": "str", "sizes": "list[int32]", "note": "str | None", "id": "uuid"}
    assert client.open(name, fields)["fields"] == fields
    with ec.channel(name).subscribe() as subscription:
        record = {"price": 1.5, "symbol": "RAY", "sizes": [1, 2], "note": None, "id": str(uuid.UUID(int=5))}
        client.publish(name, [record])
        assert subscription.get(SOON) == {**record, "id": uuid.UUID(int=5)}
    with pytest.raises(ec.TypeMismatch):
        client.open(name, {"price": "str"})
    with pytest.raises(ValueError, match="is no type"):
        client.open(f"{name}-other", {"price": "money"})
    with pytest.raises(LookupError, match="no channel"):
        client.open(f"{name}-other")
    with pytest.raises(ec.InvalidName):
        client.open("/", {})


def test_a_filter_runs_at_the_producers(client, name, far):
    ec.channel(name, Trade)

    def publish(party: Party) -> None:
        with ec.channel(name, Trade).producer() as producer:
            producer.publish_many([Trade(float(i), "RAY") for i in range(100)])

    with client.subscribe(
        name, where="price >= param.low and price < param.high", params={"low": 50.0, "high": 53.0}
    ) as s:
        ask(far, publish)
        assert [each["price"] for each in take(s, 3)] == [50.0, 51.0, 52.0]
        client.publish(name, [{"price": float(i), "symbol": "gateway"} for i in (49, 50, 53)])
        assert take(s, 1) == [{"price": 50.0, "symbol": "gateway"}]
    stats = ec.channel(name).stats()
    assert stats.events_published == 103


def test_a_program_makes_other_events(client, name):
    ec.channel(name, Trade)
    derived = client.derive(name, "output.twice = input.price * 2\nreturn True", output={"twice": "float"})
    with client.subscribe(derived) as subscription:
        client.publish(name, [{"price": 2.0, "symbol": "RAY"}])
        assert take(subscription, 1) == [{"twice": 4.0}]


def test_programs_that_are_none_are_refused(client, name):
    ec.channel(name, Trade)
    with pytest.raises(ec.ModulatorRefused, match="nothing"):
        client.derive(name, "nothing > 3")
    with pytest.raises(ec.ModulatorRefused):
        client.derive(name, "__import__('os')")
    client.open(f"{name}-untyped", {})
    with pytest.raises(ec.ModulatorRefused, match="untyped"):
        client.derive(f"{name}-untyped", "price > 3")


def test_members_of_a_group_share_the_events(client, name):
    client.open(name, {})
    with client.subscribe(name, group="workers") as one, client.subscribe(name, group="workers") as other:
        inbox = Inbox()

        def collect(subscription: EventSubscription) -> None:
            for message in subscription:
                inbox(message.event)

        for subscription in (one, other):
            threading.Thread(target=collect, args=[subscription], daemon=True).start()
        client.publish(name, range(100))
        assert sorted(inbox.wait(100)) == [*range(100)]


@pytest.mark.parametrize("ends", ["subscription", "client"])
@pytest.mark.parametrize("retain", [None, ec.Retention()], ids=["passing", "retained"])
def test_what_a_member_that_leaves_has_not_handled_goes_to_another(client, name, retain, ends):
    channel = ec.channel(name, retain=retain)
    with EventClient(client.endpoint) as leaving, channel.producer() as producer:
        subscription = leaving.subscribe(name, group="workers")
        producer.publish_many(range(3000))
        handled = take(subscription, 500)
        with channel.subscribe(group="workers") as other:
            {"subscription": subscription, "client": leaving}[ends].close()
            rest = [other.get(SOON) for _ in range(2500)]
        assert sorted([*handled, *rest]) == [*range(3000)]
        producer.drain(SOON)


@pytest.mark.parametrize("retain", [None, ec.Retention()], ids=["passing", "retained"])
def test_what_a_member_has_handled_is_acknowledged_before_it_asks_for_more(client, name, retain):
    channel = ec.channel(name, retain=retain)
    with client.subscribe(name, group="workers") as subscription, channel.producer() as producer:
        delivery = producer.deliver("one")
        assert take(subscription, 1) == ["one"]
        assert delivery.result(SOON).consumers == 1


def test_a_retained_channel_is_read_from_its_beginning_and_from_a_position(client, name):
    ec.channel(name, retain=ec.Retention())
    with ec.channel(name).producer() as producer:
        producer.publish_many([{"n": 0}, 1])
        producer.drain()
    client.publish(name, [2, {"n": 3}])
    with client.subscribe(name, start="earliest") as subscription:
        got = messages(subscription, 4)
        assert [each.event for each in got] == [{"n": 0}, 1, 2, {"n": 3}]
        client.publish(name, [4])
        last = messages(subscription, 1)[0]
    client.publish(name, [5])
    with client.subscribe(name, start=last.position) as subscription:
        assert take(subscription, 1) == [5]
    with ec.channel(name).subscribe(start="earliest") as here:
        assert [here.get(SOON) for _ in range(6)] == [{"n": 0}, 1, 2, {"n": 3}, 4, 5]


def test_a_filter_sees_what_is_retained_from_the_beginning_and_from_a_position(client, name):
    ec.channel(name, Trade, retain=ec.Retention())
    client.publish(name, [{"price": float(i), "symbol": "RAY"} for i in range(10)])
    with client.subscribe(name, start="earliest") as subscription:
        behind = messages(subscription, 10)[-1].position
    client.publish(name, [{"price": float(i), "symbol": "RAY"} for i in range(10, 20)])
    keywords = {"where": "price > param.low", "params": {"low": 7.5}}
    with (
        client.subscribe(name, start="earliest", **keywords) as all_of_it,
        client.subscribe(name, start=behind, **keywords) as rest,
        client.subscribe(name, **keywords) as new,
    ):
        client.publish(name, [{"price": 20.0, "symbol": "RAY"}])
        assert [each["price"] for each in take(all_of_it, 13)] == [float(i) for i in range(8, 21)]
        assert [each["price"] for each in take(rest, 11)] == [float(i) for i in range(10, 21)]
        assert [each["price"] for each in take(new, 1)] == [20.0]
    # The replays, and what was behind them, are gone with their subscriptions; the client's three programs are not.
    wait_until(lambda: len(ec.channel(name).stats().derived) == 3)
    assert "replay" not in {each.modulator for each in ec.channel(name).stats().derived.values()}


def test_where_nothing_is_retained_there_is_no_beginning(client, name):
    ec.channel(name, Trade)
    for keywords in ({}, {"where": "price > 1"}):
        with pytest.raises(ValueError, match="it retains nothing"):
            client.subscribe(name, start="earliest", **keywords)
    ec.channel(f"{name}-kept", Trade, retain=ec.Retention())
    with pytest.raises(ValueError, match="position"):
        client.subscribe(f"{name}-kept", where="price > 1", start="no position")


def test_records_are_retained_too(client, name):
    channel = ec.channel(name, Trade, retain=ec.Retention())
    client.publish(name, [{"price": float(i), "symbol": "RAY"} for i in range(3)])
    with client.subscribe(name, start="earliest") as subscription, channel.subscribe(start="earliest") as here:
        assert [each["price"] for each in take(subscription, 3)] == [0.0, 1.0, 2.0]
        assert [here.get(SOON) for _ in range(3)] == [Trade(float(i), "RAY") for i in range(3)]


def test_a_deleted_channel_ends_its_subscriptions(client, name):
    channel = ec.channel(name)
    with client.subscribe(name) as subscription:
        channel.delete()
        with pytest.raises(ec.ChannelDeleted):
            subscription.get(SOON)
        with pytest.raises(ec.Closed):
            subscription.get(SOON)


def test_gaps_come_in_their_places(client, name):
    client.open(name, {})
    with client.subscribe(name) as subscription, ec.channel(name).producer(overflow="drop_newest") as producer:
        large = b"x" * 100_000
        kept = sum(producer.publish(large) for _ in range(400))  # more than the windows of both sides
        assert kept < 400
        seen, last = 0, 0
        while last < 400:
            item = subscription.get(SOON)
            if isinstance(item, EventMessage):
                assert item.sequence == last + 1
                seen, last = seen + 1, item.sequence
            else:
                assert item.first == last + 1
                last = item.last
        assert seen == kept
