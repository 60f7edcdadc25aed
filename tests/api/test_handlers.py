"""Handlers: one at a time, on threads of ours; what they raise; and every call of the API inside them."""

from __future__ import annotations

import logging
import sys
import threading

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, Valve, ask, publish_all


@pytest.mark.parametrize("source", ["here", "near"])
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_one_that_raises_loses_nothing_else(parties, channel, caplog, source, error):
    handled, errors = Inbox(), Inbox()

    def handle(event):
        if event % 10 == 3:
            raise error(f"no {event}")
        handled(event)

    with channel.subscribe(handle, on_error=errors) as subscription, caplog.at_level(logging.WARNING, "echannel_ray"):
        if source == "here":
            publish_all(None, channel, [*range(100)])
        else:
            ask(parties[source], publish_all, channel, [*range(100)])
        assert handled.wait(90) == [number for number in range(100) if number % 10 != 3]
        subscription.drain(timeout=10)
        stats = subscription.stats()
        assert (stats.received, stats.handled, stats.failed, stats.pending) == (100, 90, 10, 0)
        assert [type(each) for each in errors.items] == [error] * 10
        assert "no 3" in caplog.text
        assert channel.name in caplog.text


def test_on_error_may_raise_too(channel):
    handled = Inbox()

    def complain(error):
        raise RuntimeError("again")

    def handle(event):
        handled(event)
        raise ValueError(event)

    with channel.subscribe(handle, on_error=complain):
        publish_all(None, channel, [1, 2, 3])
        assert handled.wait(3) == [1, 2, 3]


def test_one_at_a_time(parties, channel):
    inside = threading.Lock()
    handled = Inbox()

    def handle(event):
        assert inside.acquire(blocking=False)
        try:
            handled(event)
        finally:
            inside.release()

    with channel.subscribe(handle) as subscription:
        sources = [parties[name] for name in ("near", "far", "threaded")]
        answers = [source.run.remote(publish_all, channel, [*range(300)]) for source in sources]
        publish_all(None, channel, [*range(300)])
        ray.get(answers)
        handled.wait(1200)
        assert subscription.stats().failed == 0


@pytest.mark.parametrize("source", ["here", "near"])
def test_a_slow_one_delays_no_other_subscription(parties, channel, name, source):
    slow, fast, elsewhere = Valve(), Inbox(), Inbox()
    other = ec.channel(f"{name}-other")
    with channel.subscribe(slow), channel.subscribe(fast), other.subscribe(elsewhere):
        for each in (channel, other):
            if source == "here":
                publish_all(None, each, [*range(100)])
            else:
                ask(parties[source], publish_all, each, [*range(100)])
        assert fast.wait(100) == elsewhere.wait(100) == [*range(100)]
        assert slow.inbox.items == []
        slow.opened.set()
        assert slow.inbox.wait(100) == [*range(100)]


def test_many_slow_ones_delay_nobody(near, channel, name):
    valves = [Valve() for _ in range(12)]
    subscriptions = [channel.subscribe(valve) for valve in valves]
    ask(near, publish_all, channel, ["x"])
    assert all(valve.entered.wait(10) for valve in valves)
    inbox = Inbox()
    other = ec.channel(f"{name}-other")
    with other.subscribe(inbox), other.producer() as producer:
        assert producer.deliver("y").result(timeout=10).consumers == 1
        ask(near, publish_all, other, ["z"])
        assert inbox.wait(2) == ["y", "z"]
    for valve, subscription in zip(valves, subscriptions, strict=True):
        valve.opened.set()
        subscription.close()


# ---- calls of the API inside handlers ----


@pytest.fixture(params=["here", "near"])
def trigger(request, parties, channel):
    """Publishes one event from this process, or from another."""

    def publish(event):
        if request.param == "here":
            publish_all(None, channel, [event])
        else:
            ask(parties[request.param], publish_all, channel, [event])

    return publish


def outcome_of(channel, trigger, action):
    """What the action does inside a handler."""
    outcomes = Inbox()

    def handle(event):
        try:
            outcomes(action(subscription))
        except BaseException:
            outcomes(sys.exc_info()[1])

    subscription = channel.subscribe(handle)
    try:
        trigger("go")
        return outcomes.wait(1)[0]
    finally:
        subscription.close()


def test_publish_inside(far, channel, name, trigger):
    other = ec.channel(f"{name}-other")
    ray.get(far.consume.remote(other))
    assert outcome_of(channel, trigger, lambda _: publish_all(None, other, [1, 2])).count(".") == 1
    assert ray.get(far.received.remote(2)) == [1, 2]


def test_deliver_inside(far, channel, name, trigger):
    other = ec.channel(f"{name}-other")
    ray.get(far.consume.remote(other))

    def deliver(_):
        with other.producer() as producer:
            return [producer.deliver(number).result(timeout=10).consumers for number in range(20)]

    assert outcome_of(channel, trigger, deliver) == [1] * 20


def test_deliver_to_this_process_inside(channel, name, trigger):
    other = ec.channel(f"{name}-other")
    with other.subscribe(Inbox()), other.producer() as producer:
        assert outcome_of(channel, trigger, lambda _: producer.deliver(1).result(timeout=10)) == ec.Receipt(1)


def test_subscribe_inside(near, channel, name, trigger):
    other = ec.channel(f"{name}-other")
    inbox = Inbox()
    subscription = outcome_of(channel, trigger, lambda _: other.subscribe(inbox, timeout=10))
    ask(near, publish_all, other, [1])
    assert inbox.wait(1) == [1]
    subscription.close()


def test_pull_inside(near, channel, name, trigger):
    other = ec.channel(f"{name}-other")
    with other.subscribe() as pulled:
        ask(near, publish_all, other, [1])
        assert outcome_of(channel, trigger, lambda _: pulled.get(timeout=10)) == 1


def test_open_and_delete_inside(channel, name, trigger):
    def act(_):
        other = ec.channel(f"{name}-other")
        other.delete()
        return other.name in ec.status().channels

    assert outcome_of(channel, trigger, act) is False


def test_drain_inside(far, channel, name, trigger):
    other = ec.channel(f"{name}-other")
    ray.get(far.consume.remote(other))

    def drain(subscription):
        with other.producer() as producer:
            producer.publish("x")
            producer.drain(timeout=10)
        subscription.drain(timeout=10)  # which can't wait for itself
        return subscription.stats().handled

    assert outcome_of(channel, trigger, drain) == 0


def test_reset_inside(channel, trigger):
    assert outcome_of(channel, trigger, lambda subscription: subscription.reset()) is None


@pytest.mark.parametrize("source", ["here", "near"])
def test_close_inside_ends_with_this_event(parties, channel, source):
    handled = Inbox()

    def handle(event):
        handled(event)
        if event == 4:
            subscription.close()
            handled("closed")

    with channel.subscribe() as witness:
        subscription = channel.subscribe(handle)
        if source == "here":
            publish_all(None, channel, [*range(100)])
        else:
            ask(parties[source], publish_all, channel, [*range(100)])
        assert handled.wait(6) == [0, 1, 2, 3, 4, "closed"]
        assert [witness.get(timeout=10) for _ in range(100)] == [*range(100)]
        assert len(handled.items) == 6
        assert subscription.stats().handled == 5
