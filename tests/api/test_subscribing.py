"""No slow joiner: once subscribe has returned, everything that is published afterwards, anywhere, arrives."""

from __future__ import annotations

import dataclasses
import itertools
import threading

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, ask


@dataclasses.dataclass
class Trade:
    price: float


def keep_producer(party, channel):
    party.kept["producer"] = channel.producer()


def publish(party, first, count):
    for number in range(first, first + count):
        party.kept["producer"].publish(number)


@pytest.mark.parametrize("source", ["near", "far"])
def test_fifty_times(parties, channel, source):
    party = parties[source]
    ask(party, keep_producer, channel)
    for turn in range(50):
        with channel.subscribe() as subscription:
            party.run.remote(publish, 10 * turn, 10)
            assert [subscription.get(timeout=10) for _ in range(10)] == [*range(10 * turn, 10 * turn + 10)]


def test_fifty_times_the_other_way_round(parties, channel):
    with channel.producer() as producer:
        for turn in range(25):
            for name in ("near", "far"):
                ray.get(parties[name].consume.remote(channel))
                for number in range(5):
                    producer.publish((turn, number))
                assert ray.get(parties[name].received.remote(5))[:5] == [(turn, number) for number in range(5)]
                ray.get(parties[name].leave.remote())


def test_in_the_midst_of_publishing_it_gets_an_unbroken_last_part(parties, channel):
    near = parties["near"]
    ask(near, keep_producer, channel)
    ray.get(parties["far"].consume.remote(channel))
    answer = near.run.remote(publish, 0, 20_000)
    inbox = Inbox()
    subscriptions = [channel.subscribe(inbox) for _ in range(1)]
    ray.get(answer)
    near.run.remote(publish, 20_000, 1)
    everything = ray.get(parties["far"].received.remote(20_001))
    assert everything == [*range(20_001)]
    with pytest.raises(TimeoutError):
        inbox.wait(20_002, timeout=0.5)
    assert inbox.items == everything[-len(inbox.items) :]
    assert inbox.items[-1] == 20_000
    for each in subscriptions:
        each.close()


def test_a_producer_has_the_subscriptions_at_once(parties, channel):
    for name in ("near", "far"):
        ray.get(parties[name].consume.remote(channel))
    for turn in range(20):
        with channel.producer() as producer:
            assert producer.deliver(turn).result(timeout=10).consumers == 2


def test_a_failed_subscribe_leaves_nothing_installed(near, channel):
    before = channel.stats().consumers
    with pytest.raises(TypeError):
        channel.subscribe(print, on_error=3)
    with pytest.raises(ec.InvalidName):
        channel.subscribe(print, group="")
    with pytest.raises(ec.TypeMismatch):
        channel.subscribe(print, event_type=Trade)
    with pytest.raises(TypeError, match="Modulator"):
        channel.subscribe(print, modulator=object())
    assert channel.stats().consumers == before == 0


def test_a_subscription_of_many(near, channel):
    inboxes = [Inbox() for _ in range(20)]
    subscriptions = [channel.subscribe(inbox) for inbox in inboxes]
    ask(near, keep_producer, channel)
    ask(near, publish, 0, 100)
    for inbox in inboxes:
        assert inbox.wait(100) == [*range(100)]
    for subscription in subscriptions:
        subscription.close()


def test_many_come_and_go_while_somebody_publishes(parties, channel):
    """Each gets an unbroken part, and nobody is held up by those who left."""

    def come_and_go(party):
        for _ in range(40):
            inbox = Inbox()
            with channel.subscribe(inbox):
                inbox.wait(20)
            items = [*inbox.items]  # one more may be on its way: the one that is being handled
            assert items == [*range(items[0], items[0] + len(items))]

    stop = threading.Event()
    producer = channel.producer()

    def publish():
        for number in itertools.count():
            producer.publish(number)
            if stop.is_set():
                return

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        ray.get([parties[name].run.remote(come_and_go) for name in ("near", "far", "threaded")], timeout=60)
    finally:
        stop.set()
        thread.join(10)
    producer.close(timeout=10)
