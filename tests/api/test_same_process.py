"""Consumers in the producer's own process: the object itself, by a bounded queue of their own, never inside publish."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray

import echannel_ray as ec
from echannel_ray.consumers.inbox import WINDOW_EVENTS
from tests.api.parties import SOON, Inbox, Valve


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


@pytest.mark.parametrize("tier", ["inline", "isolated"])
@pytest.mark.parametrize("make", [lambda n: b"%d" % n, lambda n: n, lambda n: {"n": n}], ids=["bytes", "int", "dict"])
@pytest.mark.parametrize("derived", ["wanted", "unwanted"])
def test_beside_modulators(near, channel, tier, make, derived):
    # Many: a producer that is armed must not forget those of its own process.
    pushed, events = Inbox(), [make(n) for n in range(4000)]
    behind = channel.derive(ec.FIFOModulator(), tier=tier)
    if derived == "wanted":
        ray.get(near.consume.remote(behind))
    with channel.subscribe(pushed), channel.producer(admission=ec.Admission(tiers=(tier,))) as producer:
        for event in events:
            producer.publish(event)
        assert pushed.wait(len(events)) == events
    if derived == "wanted":
        assert ray.get(near.received.remote(len(events))) == events


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("handler", ["function", "coroutine"])
@pytest.mark.parametrize("overflow", ["block", "drop_oldest", "drop_newest"])
def test_threads_at_full_rate(channel, switching, consumers, handler, overflow):
    count, threads = 3000, 3
    inboxes = [Inbox() for _ in range(consumers)]

    def handler_of(inbox):
        async def handle(event):
            inbox(event)

        return inbox if handler == "function" else handle

    def publish(producer, first):
        for number in range(first, first + count):
            producer.publish(number)

    with contextlib.ExitStack() as stack:
        subscriptions = [stack.enter_context(channel.subscribe(handler_of(inbox))) for inbox in inboxes]
        shared = stack.enter_context(channel.producer())
        other = stack.enter_context(channel.producer(overflow=overflow))
        producers = [shared, shared, other]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(publish, producers, range(0, threads * count, count)))
        for inbox, subscription in zip(inboxes, subscriptions, strict=True):
            subscription.drain(timeout=SOON)
            for thread, producer in enumerate(producers):
                came = [number for number in inbox.items if number // count == thread]
                if producer is shared or overflow == "block":
                    assert came == [*range(thread * count, (thread + 1) * count)]
                else:
                    assert came == sorted(set(came))
            stats = subscription.stats()
            assert stats.pending == stats.failed == 0
            assert stats.handled == stats.received == len(inbox.items)
            assert stats.received + stats.dropped == threads * count


def test_one_by_itself_does_not_wait_for_a_tick(channel, monkeypatch):
    handled = threading.Event()

    def handle(event):
        if event == "last":
            handled.set()

    monkeypatch.setattr("echannel_ray.endpoint.process_endpoint.ProcessEndpoint._absorb", lambda *_: False)
    with channel.subscribe(handle), channel.producer() as producer:
        for number in range(300):
            for _ in range(number % 40):
                producer.publish("earlier")
            handled.clear()
            producer.publish("last")
            assert handled.wait(SOON)


def test_what_was_published_is_received(channel):
    valve = Valve()
    with channel.subscribe(valve) as subscription, channel.producer() as producer:
        for number in range(1000):
            producer.publish(number)
            assert subscription.stats().received == number + 1
        valve.opened.set()
        subscription.drain(timeout=SOON)
        assert valve.inbox.items == [*range(1000)]
        assert channel.stats().events_published == 1000


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
