"""Packing on real links: what leaves together, when it leaves, and what the statistics say of it."""

from __future__ import annotations

import gc
import threading

import pytest

import echannel_ray as ec
from tests.api.parties import SOON, Party, ask
from tests.clusters import wait_until

# Nothing leaves by the clock while a test runs.
PATIENT = 60.0


def subscribe(party: Party, *channels: ec.EventChannel) -> None:
    party.kept["subscriptions"] = [channel.subscribe() for channel in channels]


def get(party: Party, count: int, which: int = 0) -> list[object]:
    return [party.kept["subscriptions"][which].get(SOON) for _ in range(count)]


def has_nothing(party: Party, which: int = 0) -> bool:
    with pytest.raises(TimeoutError):
        party.kept["subscriptions"][which].get(0.05)
    return True


def publish(party: Party, channel: ec.EventChannel, count: int) -> None:
    with channel.producer() as producer:
        for number in range(count):
            producer.publish(b"%d" % number)


def degrees(channel: ec.EventChannel) -> list[float]:
    return [*channel.stats().packing_degree.values()]


@pytest.mark.parametrize("retain", [None, ec.Retention(disk=False), ec.Retention(disk=True)], ids=str)
def test_a_pack_waits_for_its_degree(near, name, retain):
    channel = ec.channel(name, packing=ec.Packing(degree=10, interval_seconds=PATIENT), retain=retain)
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for number in range(9):
            producer.publish(number)
        assert ask(near, has_nothing)
        assert channel.stats().events_published == 9  # to look changes nothing
        producer.publish(9)
        assert ask(near, get, 10) == [*range(10)]
        assert channel.stats().packs_sent == 1


@pytest.mark.parametrize("degree", [2, 1000])
def test_a_pack_of_a_retained_channel_leaves_when_its_interval_has_passed(near, name, degree):
    channel = ec.channel(name, packing=ec.Packing(degree, interval_seconds=0.02), retain=ec.Retention(disk=False))
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for count in (1, 3, 1, 7):
            for number in range(count):
                producer.publish(number)
            assert ask(near, get, count) == [*range(count)]


@pytest.mark.parametrize("size", [100, 1000, 5000, 50_000])
def test_a_pack_that_has_enough_bytes_waits_for_nothing(near, name, size):
    channel = ec.channel(name, packing=ec.Packing(degree=65_536, interval_seconds=PATIENT))
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for _ in range((200 << 10) // size):
            producer.publish(bytes(size))
        first = (128 << 10) // (size + 100)
        assert ask(near, get, first) == [bytes(size)] * first
        assert channel.stats().packs_sent < 4


def test_the_interval_counts_for_each_channel_that_shares_a_link(near, name):
    slow = ec.channel(f"{name}-slow", packing=ec.Packing(degree=1000, interval_seconds=PATIENT))
    quick = ec.channel(f"{name}-quick", packing=ec.Packing(degree=1000, interval_seconds=0.01))
    ask(near, subscribe, slow, quick)
    with slow.producer() as first, quick.producer() as second:
        first.publish("slow")
        second.publish("quick")
        assert ask(near, get, 1, 1) == ["quick"]
        assert ask(near, get, 1, 0) == ["slow"]  # in the same pack


@pytest.mark.parametrize("retain", [None, ec.Retention(disk=False)], ids=str)
def test_what_drains_or_closes_waits_for_no_clock(near, name, retain):
    channel = ec.channel(name, packing=ec.Packing(degree=1000, interval_seconds=PATIENT), retain=retain)
    ask(near, subscribe, channel)
    producer = channel.producer()
    producer.publish(1)
    producer.drain(SOON)
    assert ask(near, get, 1) == [1]
    producer.publish(2)
    producer.close()
    assert ask(near, get, 1) == [2]


@pytest.mark.parametrize("retain", [None, ec.Retention(disk=False)], ids=str)
def test_delivering_waits_for_nothing(near, name, retain):
    channel = ec.channel(name, packing=ec.Packing(degree=1000, interval_seconds=PATIENT), retain=retain)
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        producer.publish(1)
        delivery = producer.deliver(2)
        assert ask(near, get, 2) == [1, 2]
        assert delivery.result(SOON).consumers == 1


@pytest.mark.parametrize("consumer", ["near", "far"])
@pytest.mark.parametrize(
    "packing",
    [
        ec.Packing(),
        ec.Packing(interval_seconds=0.0001),
        ec.Packing(interval_seconds=0.05),
        ec.Packing(degree=1),
        ec.Packing(degree="hill-climb", measuring_seconds=0.002),
    ],
    ids=str,
)
@pytest.mark.parametrize("retain", [None, ec.Retention(disk=False)], ids=str)
def test_everything_comes_once_and_in_order(parties, name, packing, consumer, retain):
    channel = ec.channel(name, packing=packing, retain=retain)
    ask(parties[consumer], subscribe, channel)
    count = 20_000
    ask(parties["threaded"], publish, channel, count)
    assert ask(parties[consumer], get, count) == [b"%d" % number for number in range(count)]
    stats = channel.stats()
    assert stats.events_published == stats.events_delivered == count
    assert (stats.packs_sent == count) == (packing.degree == 1)


def test_the_degree_of_each_link_is_in_the_statistics(near, far, name):
    channel = ec.channel(name)
    ask(far, subscribe, channel)
    ask(near, publish_and_stay, channel, 5000)
    with channel.producer() as producer:
        producer.publish(b"one")
        producer.drain(SOON)
        found = channel.stats().packing_degree
        assert len(found) == 2  # a link of each producer's process
        assert all(len(link.split(" to ")) == 2 for link in found)
        wait_until(lambda: degrees(channel) == [1.0, 1.0])  # nothing is sent: the next event leaves by itself
    ask(near, lambda party: party.kept["producer"].close())


def publish_and_stay(party: Party, channel: ec.EventChannel, count: int) -> None:
    producer = party.kept["producer"] = channel.producer()
    for number in range(count):
        producer.publish(b"%d" % number)
    producer.drain(SOON)


def test_a_fixed_degree_is_told_as_it_is(near, name):
    # However long this process is kept from running, it is the degree that sends the pack.
    channel = ec.channel(name, packing=ec.Packing(degree=64, interval_seconds=SOON))
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for number in range(64):
            producer.publish(number)
        assert ask(near, get, 64) == [*range(64)]
        assert degrees(channel) == [64.0]
        assert channel.stats().packs_sent == 1


def test_policies_end_with_those_who_use_them(near, name):
    first = ec.channel(name, packing=ec.Packing(degree=2))
    ask(near, subscribe, first)
    with first.producer() as producer:
        for number in range(20):
            other = ec.channel(f"{name}-{number}", packing=ec.Packing(degree=3 + number))
            with other.producer() as short_lived:
                ask(near, lambda party, other=other: party.kept.update(other=other.subscribe()))
                short_lived.publish(number)
                short_lived.drain(SOON)
            del short_lived
            ask(near, lambda party: party.kept.pop("other").close())
        producer.publish_many([1, 2, 3, 4])
        producer.drain(SOON)
        gather = producer._publisher.stream.gather
        assert gather is not None
        gc.collect()
        producer.publish_many([5, 6])
        producer.drain(SOON)  # where it is armed the second one waits for a tick
        assert len(gather.policies) < 3


def test_a_gap_is_the_first_thing_that_leaves(near, name):
    channel = ec.channel(name)
    ask(near, lambda party: party.kept.update(subscriptions=[channel.subscribe(group="g")]))
    with channel.producer(overflow="drop_newest") as producer:
        with producer._publisher.endpoint.lock:
            producer._publisher.sink.outlet.drop(1, "newest")
        producer.publish("an event")
        assert ask(near, get, 1) == ["an event"]


def test_adaptive_packs_hold_one_event_where_little_is_published(near, name):
    channel = ec.channel(name)
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for number in range(20):
            producer.publish(number)
            assert ask(near, get, 1) == [number]  # so the next comes much later
        assert channel.stats().packs_sent == 20
        assert degrees(channel) == [1.0]


def test_adaptive_packs_get_long_where_much_is_published(near, name):
    channel = ec.channel(name)
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for _ in range(100_000):
            producer.publish(b"event")
        producer.drain(SOON)
        assert channel.stats().packs_sent < 100_000 / 20


def test_the_degree_follows_the_load(near, name):
    channel = ec.channel(name)
    ask(near, subscribe_idly, channel)
    stopped = threading.Event()

    def publish_until_stopped() -> None:
        while not stopped.is_set():
            for _ in range(1000):
                producer.publish(b"event")

    with channel.producer() as producer:
        thread = threading.Thread(target=publish_until_stopped)
        thread.start()
        try:
            wait_until(lambda: degrees(channel)[0] > 20)
        finally:
            stopped.set()
            thread.join()
        wait_until(lambda: degrees(channel) == [1.0])


def subscribe_idly(party: Party, channel: ec.EventChannel) -> None:
    party.kept["subscriptions"] = [channel.subscribe(lambda event: None)]


def test_hill_climbing_climbs(near, name):
    channel = ec.channel(name, packing=ec.Packing(degree="hill-climb", measuring_seconds=0.005))
    ask(near, subscribe, channel)
    with channel.producer() as producer:
        for _ in range(50_000):
            producer.publish(b"event")
        producer.drain(SOON)
        assert degrees(channel)[0] >= 2


def test_modulators_get_what_is_published_seldom_at_once(near, name):
    channel = ec.channel(name)
    with (
        channel.producer(admission=ec.Admission(tiers=("inline",))) as producer,
        channel.subscribe(modulator=ec.FIFOModulator(), tier="inline") as subscription,
    ):
        for number in range(50):
            producer.publish(number)
            assert subscription.get(SOON) == number
