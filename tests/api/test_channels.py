"""Opening, pickling, describing and deleting channels; their types and their statistics."""

from __future__ import annotations

import dataclasses
import pickle

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, ask, publish_all


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float


class Model(pydantic.BaseModel):
    symbol: str
    price: float


class Record(msgspec.Struct):
    symbol: str
    price: float


DTYPE = np.dtype([("symbol", "S8"), ("price", "f8")])
SCHEMA = pa.schema([("symbol", pa.string()), ("price", pa.float64())])


def test_created_on_first_use_and_opened_afterwards(near, name):
    assert name not in ec.status().channels
    first = ec.channel(name)
    assert name in ec.status().channels
    second = ec.channel(name)
    assert (first.name, first.event_type, first.schema()) == (name, None, None) == (second.name, None, None)
    assert ask(near, lambda party: ec.channel(name).name) == name


@pytest.mark.parametrize("event_type", [Trade, Model, Record, DTYPE, SCHEMA])
def test_types(near, name, event_type):
    channel = ec.channel(name, event_type)
    assert channel.event_type is event_type
    schema = channel.schema()
    assert schema is not None
    assert [*schema] == ["symbol", "price"]
    # Without having the class.
    reflected = ask(near, lambda party: (ec.channel(name).event_type, ec.channel(name).schema()))
    assert reflected == (None, channel.schema())
    assert ec.channel(name, event_type).schema() == channel.schema()
    if event_type is not DTYPE:  # whose texts have a fixed length
        assert ec.channel(name, Model).schema() == channel.schema()


def test_type_mismatch_says_which_field(name):
    ec.channel(name, Trade)

    def other(price):
        return dataclasses.make_dataclass("Trade", [("symbol", str), ("price", price)])

    with pytest.raises(ec.TypeMismatch, match="'price' is float, not int") as caught:
        ec.channel(name, other(int))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.channel, error.field, error.expected, error.got) == (name, "price", "float", "int")
    # Neither a producer, which needs the price, nor a consumer, which would miss the volume.
    with pytest.raises(ec.TypeMismatch, match="price"):
        ec.channel(name, dataclasses.make_dataclass("Trade", [("symbol", str), ("volume", int)]))


def test_an_untyped_channel_stays_untyped(name):
    ec.channel(name)
    with pytest.raises(ec.TypeMismatch, match="untyped"):
        ec.channel(name, Trade)


def test_events_of_a_typed_channel(near, name):
    channel = ec.channel(name, Trade)
    ray.get(near.consume.remote(channel))
    publish_all(None, channel, [Trade("X", 1.5)])
    assert ray.get(near.received.remote(1)) == [Trade("X", 1.5)]


def test_pickled_into_actors_and_tasks(near, far, channel):
    @ray.remote(num_cpus=0)
    def task(channel):
        return publish_all(None, channel, ["from a task"]), channel

    inbox = Inbox()
    with channel.subscribe(inbox):
        _, again = ray.get(task.remote(channel))
        ask(far, publish_all, {"in": [channel]}["in"][0], ["from an actor"])
        publish_all(None, pickle.loads(pickle.dumps(again)), ["from here"])
        assert inbox.wait(3) == ["from a task", "from an actor", "from here"]


def test_producers_and_subscriptions_say_what_to_do_instead(near, channel):
    with channel.producer() as producer, channel.subscribe() as subscription:
        for dump in (pickle.dumps, ray.cloudpickle.dumps, ray.put):
            with pytest.raises(TypeError, match=r"call channel.producer\(\)"):
                dump(producer)
            with pytest.raises(TypeError, match=r"call channel.subscribe\(\)"):
                dump(subscription)
            with pytest.raises(TypeError, match=r"what its result\(\) returns"):
                dump(producer.deliver("event"))
        with pytest.raises(TypeError, match="pass the channel"):
            near.run.remote(print, producer)
        with pytest.raises(TypeError, match="connect"):
            pickle.dumps(ec.connect())


def test_delete_twice(name):
    channel = ec.channel(name)
    channel.delete()
    with pytest.raises(ec.ChannelDeleted, match="makes a new one"):
        channel.stats()
    channel.delete()
    assert name not in ec.status().channels


def test_stats(parties, channel):
    near, far = parties["near"], parties["far"]

    def fail(event):
        raise ValueError(event)

    ray.get([near.consume.remote(channel), far.consume.remote(channel)])
    events = [bytes(100)] * 50 + [bytes(3 << 20)]
    with channel.subscribe(fail) as failing, channel.subscribe(Inbox()), channel.producer() as producer:
        for event in events:
            producer.publish(event)
        producer.deliver(bytes(100)).done()
        producer.drain(timeout=20)
        failing.drain(timeout=20)
        ask(far, lambda party: party.kept["subscription"].drain(20))
        ask(near, lambda party: party.kept["subscription"].drain(20))
        ask(near, publish_all, channel, [bytes(100)] * 10)
        failing.drain(timeout=20)
        ask(far, lambda party: party.kept["subscription"].drain(20))
        ask(near, lambda party: party.kept["subscription"].drain(20))
        stats = channel.stats()
        assert (stats.channel, stats.producers, stats.consumers) == (channel.name, 1, 4)
        assert stats.events_published == 62
        assert stats.events_failed == 62
        assert stats.events_delivered == 3 * 62
        assert stats.events_dropped == 0
        assert stats.bytes_published == 61 * 100 + (3 << 20)
        assert stats.derived == {}
    # Who left in order is counted still.
    ray.get([near.leave.remote(), far.leave.remote()])
    after = channel.stats()
    assert (after.producers, after.consumers) == (0, 0)
    assert (after.events_published, after.events_delivered, after.events_failed) == (62, 186, 62)


def test_a_process_that_disconnects_leaves_its_counts(new_party, channel):
    party = new_party()
    ask(party, lambda p: p.kept.update(producer=channel.producer(), subscription=channel.subscribe(Inbox())))
    ask(party, lambda p: [p.kept["producer"].publish(number) for number in range(10)])
    ask(party, lambda p: p.kept["subscription"].drain(10))
    ask(party, lambda p: ec.disconnect())
    stats = channel.stats()
    assert (stats.producers, stats.consumers) == (0, 0)
    assert (stats.events_published, stats.events_delivered) == (10, 10)


def test_options(name):
    channel = ec.channel(name, packing=ec.Packing(degree=1))
    assert channel.stats().producers == 0
    with pytest.raises(TypeError, match="Packing"):
        ec.channel(name, packing=64)  # type: ignore[arg-type]
