"""What a retained channel holds, as a Ray Dataset."""

from __future__ import annotations

import dataclasses
import datetime

import pyarrow as pa
import pytest

import echannel_ray as ec
from echannel_ray.dataset import LogRange, split
from echannel_ray.gateway.client import GatewayClient
from tests.api.parties import ask

SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])


def batch(first, count):
    numbers = range(first, first + count)
    return pa.record_batch([pa.array(numbers), pa.array([str(each) for each in numbers])], schema=SCHEMA)


def test_rows_of_a_typed_channel_from_the_logs_of_two_nodes(nodes, far, name):
    channel = ec.channel(name, SCHEMA, retain=ec.Retention())

    def publish(party):
        with ec.channel(name, SCHEMA).producer() as producer:
            producer.publish_many([{"number": number, "word": str(number)} for number in range(3000, 3500)])

    ask(far, publish)
    with channel.producer() as producer:
        producer.publish_many(batch(0, 3000))
    dataset = ec.read_dataset(name)
    assert dataset.count() == 3500
    rows = sorted((row["number"], row["word"]) for row in dataset.take_all())
    assert rows == [(number, str(number)) for number in range(3500)]


def test_events_of_an_untyped_channel_between_two_positions(nodes, name):
    channel = ec.channel(name, retain=ec.Retention())
    with channel.producer() as producer:
        producer.publish_many([{"number": 1}, {"number": 2}, {"number": 3}, {"number": 4}])
        producer.drain()
    with channel.subscribe(start="earliest") as subscription:
        messages = subscription.messages()
        first, _, third = (next(messages) for _ in range(3))
    dataset = ec.read_dataset(name, start=first.position, stop=third.position)
    assert [row["number"] for row in dataset.take_all()] == [2, 3]


def test_events_that_are_no_dicts_are_items(nodes, name):
    with ec.channel(name, retain=ec.Retention()).producer() as producer:
        producer.publish_many(["a", "b"])
    assert ec.read_dataset(name, parallelism=1).take_all() == [{"item": "a"}, {"item": "b"}]


def test_what_is_forgotten(nodes, name):
    channel = ec.channel(name, retain=ec.Retention(max_bytes=500_000))
    subscription = channel.subscribe(start="earliest")
    with channel.producer() as producer:
        producer.publish(b"first")
        start = next(subscription.messages()).position
        subscription.close()
        producer.publish_many([bytes(1000) for _ in range(2000)])
        producer.drain()
    with pytest.raises(ec.EventsMissing, match='read from "earliest" on'):
        ec.read_dataset(name, start=start)
    assert 0 < ec.read_dataset(name).count() < 2001
    with pytest.raises(ec.EventsMissing, match="events 0 to"):  # this log came after that position
        ec.read_dataset(name, start=ec.Position.parse("{}"))


def test_channels_that_can_not_be_read(nodes, name):
    with pytest.raises(LookupError, match="create it first"):
        ec.read_dataset(name)
    ec.channel(name)
    with pytest.raises(ValueError, match="keeps nothing: create it with retain="):
        ec.read_dataset(name)
    with pytest.raises(ValueError, match='start is "earliest" or a Position'):
        ec.read_dataset(name, start="new")


def test_parts_are_of_equal_size():
    parts = split([LogRange("a", 0, 100_000), LogRange("b", 5, 50_005)], 4)
    assert [(part.log, part.start, part.stop) for part in parts] == [
        ("a", 0, 37_500), ("a", 37_500, 75_000), ("a", 75_000, 100_000), ("b", 5, 37_505), ("b", 37_505, 50_005),
    ]  # fmt: skip
    assert split([LogRange("a", 0, 10)], 100) == [LogRange("a", 0, 10)]


@dataclasses.dataclass
class Seen:
    number: int
    at: datetime.datetime


def test_columns_on_an_untyped_channel_and_events_beside_them(nodes, name):
    with (
        GatewayClient(str(ec.connect().gateway())) as client,
        ec.channel(name, retain=ec.Retention()).producer() as producer,
    ):
        client.publish(name, [batch(0, 3)])
        producer.publish({"number": 3, "word": "3"})
        producer.drain()
    rows = sorted(ec.read_dataset(name).take_all(), key=lambda row: row["number"])
    assert rows == [{"number": number, "word": str(number)} for number in range(4)]


def test_times_and_types_that_have_grown(nodes, name):
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    with ec.channel(name, Seen, retain=ec.Retention()).producer() as producer:
        producer.publish(Seen(1, at))
        grown = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("extra", pa.int32())])
        producer.publish_many(pa.record_batch([pa.array([2]), pa.array([at]), pa.array([7], pa.int32())], schema=grown))
    rows = sorted(ec.read_dataset(name).take_all(), key=lambda row: row["number"])
    assert [(row["number"], row["at"]) for row in rows] == [(1, at), (2, at)]
