"""Synchronous delivery: done when every consumer's handler has returned, with what went wrong where it went wrong."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, Valve, ask


def fail(event):
    raise ValueError(f"no {event}")


def subscribe(party, channel, handler=fail, **options):
    party.kept["subscription"] = channel.subscribe(handler, **options)


def test_nobody_listens(channel):
    with channel.producer() as producer:
        assert producer.deliver("unheard").result(timeout=5) == ec.Receipt(consumers=0)


@pytest.mark.parametrize("who", [["near"], ["far"], ["near", "far", "threaded"], []])
def test_counts_who_handled_it(parties, channel, who):
    ray.get([parties[each].consume.remote(channel) for each in who])
    inbox = Inbox()
    with channel.subscribe(inbox), channel.producer() as producer:
        for number in range(20):
            assert producer.deliver(number).result(timeout=10).consumers == len(who) + 1
            assert len(inbox.items) == number + 1  # handled, not just received
            assert [len(ask(parties[each], lambda p: p.kept["inbox"].items)) for each in who[:1]] in ([], [number + 1])


def test_keeps_its_place_in_the_order(near, channel):
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        for number in range(0, 1000, 10):
            for i in range(9):
                producer.publish(number + i)
            producer.deliver(number + 9).result(timeout=10)
    assert ray.get(near.received.remote(1000)) == [*range(1000)]


def test_many_at_once(parties, channel):
    ray.get([parties[each].consume.remote(channel) for each in ("near", "far")])
    with channel.producer() as producer:
        deliveries = [producer.deliver(number) for number in range(500)]
        assert {delivery.result(timeout=20).consumers for delivery in deliveries} == {2}


def test_several_subscriptions_of_one_process(near, channel):
    def subscribe_all(party, channel):
        party.kept.update({str(i): channel.subscribe(Inbox()) for i in range(3)})
        party.kept["group"] = channel.subscribe(Inbox(), group="g")
        party.kept["other group"] = channel.subscribe(Inbox(), group="h")

    ask(near, subscribe_all, channel)
    with channel.producer() as producer:
        assert producer.deliver("small").result(timeout=10).consumers == 5
        assert producer.deliver(bytes(3 << 20)).result(timeout=10).consumers == 5
        assert producer.publish("between")
        assert producer.deliver("last").result(timeout=10).consumers == 5


def test_failures_are_told(parties, channel):
    ask(parties["near"], subscribe, channel)
    ask(parties["far"], subscribe, channel)
    ray.get(parties["threaded"].consume.remote(channel))
    with channel.subscribe(fail), channel.producer() as producer:
        with pytest.raises(ec.DeliveryFailed, match="3 of 4") as caught:
            producer.deliver("x").result(timeout=10)
        error = pickle.loads(pickle.dumps(caught.value))
        assert len(error.failures) == 3
        assert error.handled == 1
        assert all("ValueError: no x" in failure.error for failure in error.failures)
        assert len({failure.consumer for failure in error.failures}) == 3


def test_only_its_own_event_counts(near, channel):
    def picky(event):
        if event == "bad":
            raise ValueError("bad")

    ask(near, subscribe, channel, picky)
    with channel.producer() as producer:
        producer.publish("bad")
        assert producer.deliver("good").result(timeout=10).consumers == 1
        producer.publish("good")
        with pytest.raises(ec.DeliveryFailed):
            producer.deliver("bad").result(timeout=10)


def test_a_group_counts_as_one(parties, channel):
    ray.get([parties[each].consume.remote(channel, group="workers") for each in ("near", "far", "threaded")])
    ray.get(parties["asynchronous"].run.remote(subscribe, channel, print))
    with channel.producer() as producer:
        for number in range(30):
            assert producer.deliver(number).result(timeout=10).consumers == 2
    counts = [ask(parties[each], lambda p: len(p.kept["inbox"].items)) for each in ("near", "far", "threaded")]
    assert sum(counts) == 30


def test_a_pull_subscription_has_handled_what_it_handed_out(near, channel):
    def pull(party):
        return party.kept["subscription"].get(timeout=10)

    ask(near, subscribe, channel, None)
    with channel.subscribe() as mine, channel.producer() as producer:
        delivery = producer.deliver("x")
        with pytest.raises(TimeoutError, match="2 consumers"):
            delivery.result(timeout=0.1)
        assert mine.get(timeout=5) == "x"
        assert not delivery.done()
        assert ask(near, pull) == "x"
        assert delivery.result(timeout=10).consumers == 2
        assert delivery.done()


def test_closing_a_consumer_releases_the_delivery(near, channel):
    ask(near, subscribe, channel, None)
    with channel.producer() as producer:
        delivery = producer.deliver("x")
        near.leave.remote()
        assert delivery.result(timeout=10).consumers == 0


def test_a_consumer_that_dies(near, new_party, channel):
    doomed = new_party()
    pid = ask(doomed, lambda party: os.getpid())
    ask(doomed, lambda party: subscribe(party, channel, Valve()))
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        delivery = producer.deliver("x")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ec.DeliveryFailed, match="died") as caught:
            delivery.result(timeout=10)
        assert len(caught.value.failures) == 1
        assert caught.value.handled == 1
        assert producer.deliver("y").result(timeout=10).consumers == 1


async def test_awaited(near, channel):
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        assert (await producer.deliver(1)).consumers == 1
        receipts = await asyncio.gather(*(_await(producer.deliver(number)) for number in range(50)))
        assert {receipt.consumers for receipt in receipts} == {1}
        done = producer.deliver(2)
        done.result(timeout=10)
        assert (await done).consumers == 1
    ask(near, lambda party: party.kept.pop("subscription").close())
    with channel.subscribe(fail), channel.producer() as producer, pytest.raises(ec.DeliveryFailed):
        await producer.deliver(3)


async def _await(delivery):
    return await delivery


def test_waits_in_several_threads(near, channel):
    ray.get(near.consume.remote(channel))
    outcomes = Inbox()
    with channel.producer() as producer:

        def deliver():
            for _ in range(50):
                outcomes(producer.deliver("x").result(timeout=20).consumers)

        threads = [threading.Thread(target=deliver) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert outcomes.wait(200) == [1] * 200
        for thread in threads:
            thread.join(5)


def test_with_a_full_window(near, channel):
    ray.get(near.consume.remote(channel))
    with channel.producer(overflow="raise") as producer:
        for _ in range(40):
            assert producer.deliver(bytes(1 << 20)).result(timeout=10).consumers == 1
