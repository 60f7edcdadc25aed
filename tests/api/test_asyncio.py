"""The asyncio forms: in the driver's own loop, and in an async actor."""

from __future__ import annotations

import asyncio
import threading

import pytest
import ray

import echannel_ray as ec
from echannel_ray.consumers.inbox import WINDOW_EVENTS
from tests.api.parties import Inbox, ask, publish_all
from tests.clusters import wait_until


async def take(subscription, count):
    taken = []
    async for event in subscription:
        taken.append(event)
        if len(taken) == count:
            return taken
    return taken


@pytest.mark.parametrize("source", ["here", "near"])
async def test_async_for(parties, channel, source):
    subscription = await channel.asubscribe()
    taking = asyncio.create_task(take(subscription, 100))
    if source == "here":
        async_producer = await asyncio.to_thread(channel.producer)
        for number in range(100):
            assert await async_producer.apublish(number) is True
        await async_producer.adrain(timeout=10)
        await async_producer.aclose()
    else:
        await parties[source].run.remote(publish_all, channel, [*range(100)])
    assert await asyncio.wait_for(taking, 10) == [*range(100)]
    await subscription.aclose()
    await subscription.aclose()


async def test_async_for_ends_at_close(channel):
    subscription = await channel.asubscribe()
    taking = asyncio.create_task(take(subscription, 1))
    await asyncio.sleep(0)
    await subscription.aclose()
    assert await asyncio.wait_for(taking, 5) == []


async def test_async_for_raises_when_deleted(name, nodes):
    channel = await asyncio.to_thread(ec.channel, name)
    subscription = await channel.asubscribe()
    taking = asyncio.create_task(take(subscription, 1))
    await asyncio.sleep(0)
    await asyncio.to_thread(channel.delete)
    with pytest.raises(ec.ChannelDeleted):
        await asyncio.wait_for(taking, 5)
    await subscription.aclose()


@pytest.mark.parametrize("method", ["subscribe", "asubscribe"])
async def test_a_coroutine_handler_runs_on_the_loop_that_subscribed(near, channel, method):
    handled: asyncio.Queue = asyncio.Queue()

    async def handle(event):
        await asyncio.sleep(0)
        handled.put_nowait((event, threading.get_ident(), asyncio.get_running_loop()))

    subscription = getattr(channel, method)(handle)
    if method == "asubscribe":
        subscription = await subscription
    await near.run.remote(publish_all, channel, [*range(50)])
    got = [await asyncio.wait_for(handled.get(), 10) for _ in range(50)]
    assert [event for event, _, _ in got] == [*range(50)]
    assert {loop for _, _, loop in got} == {asyncio.get_running_loop()}
    assert {thread for _, thread, _ in got} == {threading.get_ident()}
    await subscription.aclose()


def test_a_coroutine_handler_without_a_loop_runs_on_ours(near, channel):
    inbox = Inbox()

    async def handle(event):
        await asyncio.sleep(0)
        inbox((event, threading.get_ident()))

    with channel.subscribe(handle), channel.producer() as producer:
        ask(near, publish_all, channel, [1, 2, 3])
        assert [event for event, _ in inbox.wait(3)] == [1, 2, 3]
        assert threading.get_ident() not in {thread for _, thread in inbox.items}
        assert producer.deliver(4).result(timeout=10).consumers == 1


async def test_one_at_a_time_and_failures(near, channel):
    errors: asyncio.Queue = asyncio.Queue()
    inside: list[int] = []

    async def handle(event):
        assert not inside
        inside.append(event)
        await asyncio.sleep(0)
        inside.clear()
        if event % 2:
            raise ValueError(event)

    subscription = await channel.asubscribe(handle, on_error=errors.put_nowait)
    await near.run.remote(publish_all, channel, [*range(20)])
    got = [await asyncio.wait_for(errors.get(), 10) for _ in range(10)]
    assert {type(error) for error in got} == {ValueError}
    await asyncio.to_thread(subscription.drain, 10)
    assert subscription.stats().handled == 10
    await subscription.aclose()


async def test_calls_inside_a_coroutine_handler(far, channel, name):
    other = await asyncio.to_thread(ec.channel, f"{name}-other")
    await far.consume.remote(other)
    outcome = asyncio.get_running_loop().create_future()

    async def handle(event):
        try:
            producer = await asyncio.to_thread(other.producer)
            await producer.apublish(event)
            receipt = await producer.deliver(event)
            await producer.adrain(timeout=10)
            await producer.aclose()
            subscription.drain()  # its own: it can't wait for itself
            await subscription.areset()
            await subscription.aclose()
            outcome.set_result(receipt.consumers)
        except BaseException as error:
            outcome.set_exception(error)

    subscription = await channel.asubscribe(handle)
    await asyncio.to_thread(publish_all, None, channel, ["x", "y"])
    assert await asyncio.wait_for(outcome, 20) == 1
    assert ray.get(far.received.remote(2)) == ["x", "x"]


def test_a_loop_that_ends_takes_its_subscription_along(near, channel):
    async def handle(event):
        await asyncio.sleep(0)

    async def main():
        await channel.asubscribe(handle)

    asyncio.run(main())
    # Nobody can handle anything there: producers must not wait for it.
    ask(near, publish_all, channel, ["x"])
    with channel.producer() as producer:
        for _ in range(30):
            assert producer.publish(bytes(1 << 20), timeout=10)


def test_a_loop_that_ends_within_a_handler(near, channel):
    async def main():
        entered = asyncio.Event()

        async def handle(event):
            entered.set()
            await asyncio.sleep(60)

        await channel.asubscribe(handle)
        near.run.remote(publish_all, channel, ["x"])
        await asyncio.wait_for(entered.wait(), 10)

    asyncio.run(main())
    ask(near, publish_all, channel, [bytes(1 << 20)] * 30)
    wait_until(lambda: channel.stats().consumers == 0)


def test_in_an_async_actor(parties, channel):
    actor = parties["asynchronous"]

    async def consume(party):
        party.kept["queue"] = asyncio.Queue()
        party.kept["subscription"] = await channel.asubscribe(party.kept["queue"].put)

    async def received(party, count):
        return [await party.kept["queue"].get() for _ in range(count)]

    async def produce(party):
        producer = channel.producer()
        for number in range(100):
            await producer.apublish(number)
        receipt = await producer.deliver(100)
        await producer.aclose()
        return receipt.consumers

    ask(actor, consume)
    inbox = Inbox()
    with channel.subscribe(inbox):
        assert ask(actor, produce) == 2
        assert inbox.wait(101) == [*range(101)]
        assert ask(actor, received, 101) == [*range(101)]


async def test_apublish_waits_without_holding_up_the_loop(channel):
    with channel.subscribe() as subscription, channel.producer() as producer:
        for number in range(WINDOW_EVENTS):
            producer.publish(number)
        with pytest.raises(TimeoutError):
            await producer.apublish("late", timeout=0.2)
        waiting = asyncio.create_task(producer.apublish("later"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        for _ in range(WINDOW_EVENTS):
            subscription.get(timeout=5)
        assert await asyncio.wait_for(waiting, 10) is True
