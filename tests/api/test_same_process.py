"""Consumers in the producer's own process: the object itself, by a bounded queue of their own, never inside publish."""

from __future__ import annotations

import threading

import pytest
import ray

import echannel_ray as ec
from echannel_ray.consumers.inbox import WINDOW_EVENTS
from tests.api.parties import Inbox, Valve


class Anything:
    def __init__(self) -> None:
        self.lock = threading.Lock()  # can't be pickled


def test_gets_the_object_itself(channel):
    pushed, event = Inbox(), Anything()
    with channel.subscribe(pushed), channel.subscribe() as pulled, channel.producer() as producer:
        assert producer.publish(event) is True
        assert pushed.wait(1) == [event]
        assert pushed.items[0] is event
        assert pulled.get(timeout=5) is event


def test_beside_consumers_elsewhere(near, channel):
    pushed, event = Inbox(), {"number": 1}
    ray.get(near.consume.remote(channel))
    with channel.subscribe(pushed), channel.producer() as producer:
        assert producer.deliver(event).result(timeout=10) == ec.Receipt(consumers=2)
        producer.publish(event)
        assert all(each is event for each in pushed.wait(2))


def test_never_inside_publish(channel):
    threads = []
    valve = Valve()

    def handle(event):
        threads.append(threading.get_ident())
        valve(event)

    with channel.subscribe(handle), channel.producer() as producer:
        producer.publish(1)
        producer.publish(2)
        assert valve.entered.wait(5)
        valve.opened.set()
        assert valve.inbox.wait(2) == [1, 2]
    assert threading.get_ident() not in threads


@pytest.fixture
def full(channel):
    """A channel with a consumer of this process whose queue is full."""
    valve = Valve()
    subscription = channel.subscribe(valve, on_error=valve.inbox)
    producer = channel.producer(overflow="block")
    producer.publish("first")
    assert valve.entered.wait(5)
    for number in range(WINDOW_EVENTS - 1):
        producer.publish(number, timeout=1)
    yield valve, producer
    valve.opened.set()
    producer.close()
    subscription.close()


def test_block(full):
    valve, producer = full
    with pytest.raises(TimeoutError, match="this process"):
        producer.publish("late", timeout=0.1)
    valve.opened.set()
    assert producer.publish("last", timeout=10) is True
    assert valve.inbox.wait(WINDOW_EVENTS + 1)[-1] == "last"


def test_raise(full, channel):
    valve, _ = full
    with channel.producer(overflow="raise") as other, pytest.raises(ec.Overloaded, match="this process"):
        other.publish("late")
    valve.opened.set()


def test_drop_newest(full, channel):
    valve, _ = full
    with channel.producer(overflow="drop_newest") as other:
        assert [other.publish(number) for number in range(3)] == [False] * 3
        valve.opened.set()
        received = valve.inbox.wait(WINDOW_EVENTS + 1)
        assert received[-1] == ec.Gap(other.name, 1, 3)


def test_drop_oldest(channel):
    valve = Valve()
    with channel.subscribe(valve, on_error=valve.inbox), channel.producer(overflow="drop_oldest") as producer:
        producer.publish("first")
        assert valve.entered.wait(5)
        for number in range(WINDOW_EVENTS + 9):
            producer.publish(number)
        valve.opened.set()
        received = valve.inbox.wait(WINDOW_EVENTS + 1)
        assert received[0] == "first"
        gap = received[1]
        assert isinstance(gap, ec.Gap)
        assert gap.first == 2
        assert received[2] == gap.last - 1
        assert received[2:] == [*range(gap.last - 1, WINDOW_EVENTS + 9)]


def test_a_handler_may_publish_into_its_own_channel(channel):
    seen = Inbox()
    with channel.producer() as producer:

        def handle(event):
            if event == 0:
                for number in range(1, WINDOW_EVENTS + 100):  # more than its own queue has room for
                    producer.publish(number)
            seen(event)

        with channel.subscribe(handle):
            producer.publish(0)
            assert seen.wait(WINDOW_EVENTS + 100) == [*range(WINDOW_EVENTS + 100)]


def test_a_consumer_of_this_process_joins_a_busy_producer(near, channel):
    """Which until then took the short way, that consumers of this process can't be served by."""
    ray.get(near.consume.remote(channel))
    count = 0
    with channel.producer() as producer:
        for _ in range(20):
            for _ in range(2000):
                producer.publish(b"%d" % count)
                count += 1
            inbox, first = Inbox(), count
            with channel.subscribe(inbox):
                for _ in range(100):
                    producer.publish(b"%d" % count)
                    count += 1
                assert inbox.wait(100) == [b"%d" % number for number in range(first, count)]
    assert ray.get(near.received.remote(count)) == [b"%d" % number for number in range(count)]
