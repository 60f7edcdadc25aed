"""Waiting for room in coroutines, calls that are cancelled, and what nobody holds any more."""

from __future__ import annotations

import asyncio
import gc

import pytest

import echannel_ray as ec
from echannel_ray.consumers.inbox import WINDOW_EVENTS
from tests.api.parties import SOON, Inbox, Valve
from tests.clusters import wait_until


def fill(producer: ec.Producer) -> None:
    for number in range(WINDOW_EVENTS):  # the one that the handler is busy with included
        producer.publish(number, timeout=SOON)


async def test_apublish_waits_without_holding_up_the_loop(channel):
    valve = Valve()
    subscription = await channel.asubscribe(valve)
    producer = await asyncio.to_thread(channel.producer)
    await asyncio.to_thread(fill, producer)
    waiting = asyncio.create_task(producer.apublish("last"))
    ticks = 0
    while not producer._publisher.room.waiting:
        await asyncio.sleep(0)
        ticks += 1
    assert not waiting.done()
    valve.opened.set()
    assert await asyncio.wait_for(waiting, SOON) is True
    await asyncio.to_thread(valve.inbox.wait, WINDOW_EVENTS + 1)
    assert valve.inbox.items[-1] == "last"
    await subscription.aclose()
    await producer.aclose()


async def test_an_apublish_that_is_cancelled_publishes_nothing(channel):
    valve = Valve()
    subscription = await channel.asubscribe(valve)
    producer = await asyncio.to_thread(channel.producer)
    await asyncio.to_thread(fill, producer)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(producer.apublish("never"), 0.05)
    with pytest.raises(TimeoutError):
        await producer.apublish("never", timeout=0.05)
    assert not producer._publisher.room.waiting
    valve.opened.set()
    await producer.apublish("last")
    await asyncio.to_thread(valve.inbox.wait, WINDOW_EVENTS + 1)
    assert valve.inbox.items[-1] == "last"
    assert "never" not in valve.inbox.items
    await subscription.aclose()
    await producer.aclose()


async def test_a_delivery_in_a_coroutine_waits_for_room_by_itself(channel):
    """The consumer is on the same loop: were `deliver` to wait there, nothing would go on."""
    handled = []
    begin = asyncio.Event()

    async def handle(event):
        await begin.wait()
        handled.append(event)

    subscription = await channel.asubscribe(handle)
    producer = await asyncio.to_thread(channel.producer)
    for number in range(WINDOW_EVENTS):
        await producer.apublish(number)
    delivery = producer.deliver("delivered")
    begin.set()
    receipt = await asyncio.wait_for(_outcome(delivery), SOON)
    assert receipt.consumers == 1
    assert handled[-1] == "delivered"
    await subscription.aclose()
    await producer.aclose()


async def _outcome(delivery):
    return await delivery


async def test_an_asubscribe_that_is_cancelled_leaves_nothing_installed(channel):
    for _ in range(5):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(channel.asubscribe(lambda event: None), 0)
    subscribing = asyncio.create_task(channel.asubscribe(lambda event: None))
    await asyncio.sleep(0.0005)
    subscribing.cancel()
    await asyncio.gather(subscribing, return_exceptions=True)
    if not subscribing.cancelled():
        await subscribing.result().aclose()  # it was faster
    await asyncio.to_thread(wait_until, lambda: channel.stats().consumers == 0)


def test_a_pull_subscription_that_nobody_holds_is_closed(channel):
    subscription = channel.subscribe()
    assert channel.stats().consumers == 1
    del subscription
    gc.collect()
    wait_until(lambda: channel.stats().consumers == 0)


def test_a_push_subscription_lives_without_being_held(channel):
    inbox = Inbox()
    channel.subscribe(inbox)
    gc.collect()
    with channel.producer() as producer:
        assert producer.deliver("still").result(timeout=SOON).consumers == 1
    assert inbox.items == ["still"]


def test_a_handler_that_would_wait_for_itself_is_told(channel):
    errors = Inbox()
    producer = channel.producer()

    def handle(event):
        if event == "go":
            try:
                producer.deliver("mine").result(timeout=SOON)
            except ec.EChannelError as error:
                errors(str(error))

    subscription = channel.subscribe(handle)
    producer.publish("go")
    assert "waits for itself" in errors.wait(1)[0]
    subscription.close()
    producer.close()


def test_deliver_waits_for_room_no_longer_than_it_may(channel):
    valve = Valve()
    subscription = channel.subscribe(valve)
    producer = channel.producer()
    fill(producer)
    with pytest.raises(TimeoutError):
        producer.deliver("late", timeout=0.05)
    valve.opened.set()
    valve.inbox.wait(WINDOW_EVENTS)
    subscription.close()
    producer.close()
