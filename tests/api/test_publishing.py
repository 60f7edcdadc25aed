"""publish, publish_many, drain and close, from every kind of process to every kind of process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, ask, publish_all

EVENTS = [("trade", number) for number in range(500)]


@ray.remote(num_cpus=0)
def publish_in_task(channel, events):
    return publish_all(None, channel, events)


@ray.remote(num_cpus=0)
def consume_in_task(channel, ready, count):
    with channel.subscribe() as subscription:
        ray.get(ready.run.remote(lambda party: party.kept.update(ready=True)))
        return [subscription.get(timeout=20) for _ in range(count)]


@pytest.mark.parametrize("consumer", ["near", "far", "threaded"])
def test_from_the_driver_to_an_actor(parties, channel, consumer):
    ray.get(parties[consumer].consume.remote(channel))
    publish_all(None, channel, EVENTS)
    assert ray.get(parties[consumer].received.remote(len(EVENTS))) == EVENTS


@pytest.mark.parametrize("producer", ["near", "far", "threaded", "asynchronous"])
def test_from_an_actor_to_the_driver(parties, channel, producer):
    inbox = Inbox()
    with channel.subscribe(inbox):
        ask(parties[producer], publish_all, channel, EVENTS)
        assert inbox.wait(len(EVENTS)) == EVENTS


def test_from_a_task_to_the_driver(nodes, channel):
    inbox = Inbox()
    with channel.subscribe(inbox):
        ray.get(publish_in_task.remote(channel, EVENTS))
        assert inbox.wait(len(EVENTS)) == EVENTS


def test_from_the_driver_to_a_task(near, channel):
    answer = consume_in_task.remote(channel, near, len(EVENTS))
    with channel.producer() as producer:
        # The task subscribes when it has a process: what was published before is not for it.
        while not ask(near, lambda party: party.kept.pop("ready", False)):
            pass
        for event in EVENTS:
            producer.publish(event)
        producer.drain(timeout=20)
        assert ray.get(answer, timeout=30) == EVENTS


def test_each_producer_in_its_order_to_all_consumers(parties, channel):
    consumers = [parties["near"], parties["far"], parties["threaded"]]
    ray.get([consumer.consume.remote(channel) for consumer in consumers])
    producers = [parties["near"], parties["far"], parties["asynchronous"]]
    events = [[(number, i) for i in range(300)] for number in range(3)]
    ray.get([p.run.remote(publish_all, channel, mine) for p, mine in zip(producers, events, strict=True)])
    for received in ray.get([consumer.received.remote(900) for consumer in consumers]):
        assert len(received) == 900
        for number, mine in enumerate(events):
            assert [event for event in received if event[0] == number] == mine


def test_publish_returns_true_also_where_nobody_listens(channel):
    with channel.producer() as producer:
        assert producer.publish("unheard") is True
        producer.drain(timeout=5)


def test_publish_many_takes_lists_and_arrays(near, channel):
    ray.get(near.consume.remote(channel))
    rows = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    batch = pa.RecordBatch.from_pylist([{"a": 5, "b": 6.0}])
    with channel.producer() as producer:
        assert producer.publish_many([1, "two", None]) is True
        assert producer.publish_many(rows) is True
        assert producer.publish_many(batch) is True
        assert producer.publish_many(iter([7, 8])) is True
    received = ray.get(near.received.remote(8))
    assert received[:3] == [1, "two", None]
    assert [row.item() for row in received[3:5]] == [(1, 2.0), (3, 4.0)]
    assert received[5:] == [{"a": 5, "b": 6.0}, 7, 8]


def test_drain_means_received(near, channel):
    ray.get(near.consume.remote(channel))
    producer = channel.producer()
    for number in range(1000):
        producer.publish(number)
    producer.drain(timeout=20)
    received = ask(near, lambda party: party.kept["subscription"].stats().received)
    assert received == 1000
    producer.close()


def test_close_drains(near, channel):
    ray.get(near.consume.remote(channel))
    producer = channel.producer()
    producer.publish_many(range(1000))
    producer.close()
    assert ask(near, lambda party: party.kept["subscription"].stats().received) == 1000


def test_a_closed_producer(near, channel):
    with channel.producer() as producer:
        producer.publish(1)
    producer.close()
    producer.close(timeout=1)
    for call in (
        lambda: producer.publish(2),
        lambda: producer.publish(b"2"),
        lambda: producer.publish_many([2]),
        lambda: producer.deliver(2),
        producer.drain,
    ):
        with pytest.raises(ec.Closed, match="producer"):
            call()


def test_an_event_is_as_it_was_at_the_call(near, channel):
    ray.get(near.consume.remote(channel))
    event: Any = {"list": [1], "array": np.zeros(100_000)}
    with channel.producer() as producer:
        producer.publish(event)
        event["list"].append(2)
        event["array"][:] = 1
        event["new"] = True
    (received,) = ray.get(near.received.remote(1))
    assert received["list"] == [1]
    assert received["array"].sum() == 0
    assert set(received) == {"list", "array"}


def test_producers_are_many(near, channel):
    inbox = Inbox()
    with channel.subscribe(inbox):
        names = ask(near, lambda party: [publish_all(party, channel, [number]) for number in range(20)])
        assert inbox.wait(20) == [*range(20)]
    assert len(set(names)) == 20


def test_threads_may_share_a_producer(near, channel):
    ray.get(near.consume.remote(channel))
    producer = channel.producer()

    def publish(thread):
        for number in range(5000):
            producer.publish(b"%d %d" % (thread, number) if thread % 2 else (thread, number))

    threads = [threading.Thread(target=publish, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.close()
    received = [
        event if isinstance(event, tuple) else tuple(map(int, event.split()))
        for event in ray.get(near.received.remote(20_000))
    ]
    for mine in range(4):
        assert [event for event in received if event[0] == mine] == [(mine, number) for number in range(5000)]
