"""Pull subscriptions: get, iteration, messages, and how they end."""

from __future__ import annotations

import gc
import threading
import time

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, ask, publish_all


def test_get(near, channel):
    with channel.subscribe() as subscription:
        ask(near, publish_all, channel, [*range(100)])
        assert [subscription.get(timeout=5) for _ in range(100)] == [*range(100)]


@pytest.mark.parametrize("timeout", [0, 0.1, -1])
def test_get_times_out(channel, timeout):
    with channel.subscribe() as subscription:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="no event of channel"):
            subscription.get(timeout=timeout)
        assert time.monotonic() - began < 1


def test_get_with_no_time_takes_what_is_there(near, channel):
    with channel.subscribe() as subscription:
        ask(near, publish_all, channel, ["x", "y"])  # closed, so drained: it has arrived
        assert subscription.get(timeout=0) == "x"
        assert subscription.get(0) == "y"


def test_get_waits(near, channel):
    with channel.subscribe() as subscription:
        taken = Inbox()
        thread = threading.Thread(target=lambda: taken(subscription.get(timeout=20)))
        thread.start()
        ask(near, publish_all, channel, ["late"])
        assert taken.wait(1) == ["late"]
        thread.join(5)


def test_two_threads_share_one_subscription(near, channel):
    taken = Inbox()
    with channel.subscribe() as subscription:

        def take():
            for event in subscription:
                taken(event)

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        with pytest.raises(TimeoutError):
            subscription.get(timeout=0.1)
        ask(near, publish_all, channel, [*range(200)])
        assert sorted(taken.wait(200)) == [*range(200)]
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_iteration_ends_at_close(near, channel):
    subscription = channel.subscribe()
    seen, ended = Inbox(), threading.Event()

    def iterate():
        for event in subscription:
            seen(event)
        ended.set()

    threading.Thread(target=iterate, daemon=True).start()
    ask(near, publish_all, channel, [1, 2, 3])
    assert seen.wait(3) == [1, 2, 3]
    subscription.close()
    assert ended.wait(5)
    assert [*subscription] == []
    assert [*subscription.messages()] == []


def test_after_close_nothing_more_is_handed_out(near, channel):
    subscription = channel.subscribe()
    ask(near, publish_all, channel, [*range(100)])
    assert subscription.get(timeout=5) == 0
    subscription.close()
    subscription.close()
    with pytest.raises(ec.Closed, match="subscribe again"):
        subscription.get(timeout=1)
    for call in (subscription.drain, subscription.reset):
        with pytest.raises(ec.Closed):
            call()
    assert subscription.stats().handled == 1


@pytest.mark.parametrize("who", ["here", "far"])
def test_deletion_raises(parties, name, who):
    channel = ec.channel(name)
    errors, ended = Inbox(), Inbox()
    pulled, waiting = channel.subscribe(), channel.subscribe()
    pushed = channel.subscribe(print, on_error=errors)
    producer = channel.producer()

    def iterate():
        try:
            for _ in waiting:
                pass
        except ec.ChannelDeleted as error:
            ended(error)

    threading.Thread(target=iterate, daemon=True).start()
    # Long enough for everything of this process to have gone to sleep.
    with pytest.raises(TimeoutError):
        pulled.get(timeout=0.7)
    if who == "here":
        channel.delete()
    else:
        ask(parties[who], lambda party: channel.delete())
    assert ended.wait(1, timeout=5)[0].channel == name
    assert type(errors.wait(1)[0]) is ec.ChannelDeleted
    for call in (
        lambda: pulled.get(timeout=5),
        lambda: next(iter(pulled)),
        lambda: next(pulled.messages()),
        lambda: producer.publish(1),
        lambda: producer.publish(b"1"),
        lambda: producer.publish_many([1]),
        lambda: producer.deliver(1),
        producer.drain,
        channel.producer,
        channel.subscribe,
        channel.stats,
        pulled.drain,
        pushed.drain,
    ):
        with pytest.raises(ec.ChannelDeleted) as caught:
            call()
        assert caught.value.channel == name
    for each in (pulled, waiting, pushed, producer):
        each.close()
        each.close()


def test_a_channel_made_again_is_another_one(near, name):
    old = ec.channel(name)
    stale = old.subscribe()
    old.delete()
    new = ec.channel(name)
    with new.subscribe() as fresh:
        ask(near, publish_all, ec.channel(name), ["x"])
        assert fresh.get(timeout=5) == "x"
        with pytest.raises(ec.ChannelDeleted):
            stale.get(timeout=5)
        with pytest.raises(ec.ChannelDeleted):
            old.producer()
    assert name in ec.status().channels


@pytest.mark.parametrize("source", ["here", "near", "far"])
def test_messages(parties, channel, source):
    with channel.subscribe() as subscription:
        began = time.time()
        events = ["x", 1, bytes(3 << 20), {"a": 1}]
        if source == "here":
            name = publish_all(None, channel, events)
        else:
            name = ask(parties[source], publish_all, channel, events)
        messages = subscription.messages()
        taken = [next(messages) for _ in events]
    assert [message.event for message in taken] == events
    assert [message.sequence for message in taken] == [1, 2, 3, 4]
    assert {message.producer for message in taken} == {name}
    assert all(began - 0.1 <= message.published_at <= time.time() + 0.1 for message in taken)
    assert not any(message.redelivered for message in taken)
    assert all(hasattr(message, "position") for message in taken)


def test_stats(near, channel):
    with channel.subscribe() as subscription:
        ask(near, publish_all, channel, [*range(10)])
        for _ in range(4):
            subscription.get(timeout=5)
        stats = subscription.stats()
        assert (stats.received, stats.handled, stats.failed, stats.dropped) == (10, 4, 0, 0)
        assert (stats.duplicates, stats.pending) == (0, 6)


def test_drain_waits_until_all_is_taken(near, channel):
    with channel.subscribe() as subscription:
        ask(near, publish_all, channel, [1, 2])
        with pytest.raises(TimeoutError, match="2 events"):
            subscription.drain(timeout=0.05)
        thread = threading.Thread(target=lambda: [subscription.get(), subscription.get()])
        thread.start()
        subscription.drain(timeout=10)
        thread.join(5)


def test_a_push_subscription_can_not_be_pulled(channel):
    with channel.subscribe(print) as subscription:
        for call in (subscription.get, subscription.messages, lambda: next(iter(subscription))):
            with pytest.raises(TypeError, match="handler"):
                call()


def test_it_outlives_its_reference(near, channel):
    inbox = Inbox()
    channel.subscribe(inbox)
    gc.collect()
    ask(near, publish_all, channel, ["x"])
    assert inbox.wait(1) == ["x"]


def test_a_subscriber_that_left_is_waited_for_by_nobody(near, channel):
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        producer.publish(1)
        ray.get(near.leave.remote())
        for _ in range(20):
            assert producer.publish(bytes(1 << 20), timeout=5)
        producer.drain(timeout=5)


@pytest.mark.parametrize("iterate", [iter, ec.Subscription.messages])
def test_who_iterates_holds_the_subscription(channel, iterate):
    """As `for event in channel.subscribe()` does, and nothing else."""
    iterator = iterate(channel.subscribe())
    gc.collect()
    with channel.producer() as producer:
        producer.publish("before")
        first = next(iterator)
    assert getattr(first, "event", first) == "before"


async def test_who_iterates_in_a_coroutine_holds_it_too(channel):
    iterator = aiter_of(channel)
    gc.collect()
    with channel.producer() as producer:
        producer.publish("before")
        assert await iterator.__anext__() == "before"


def aiter_of(channel):
    return channel.subscribe().__aiter__()
