"""Typed channels: groups, policies, modulators, large records and blocks."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Party, Valve, ask
from tests.api.quotes import (
    NUMBERED,
    OPEN,
    Numbered,
    QuoteData,
    QuoteModel,
    QuoteStruct,
    Sized,
    check_quotes,
    handled,
    numbered,
    numbers,
    quote,
)


def test_deliver_tells_who_has_handled_it(near, name):
    channel = ec.channel(name, QuoteData)
    ray.get(near.consume.remote(channel, event_type=QuoteModel))

    def refuse(event):
        raise ValueError(event.symbol)

    with channel.producer() as producer, channel.subscribe(Inbox(), event_type=QuoteStruct):
        assert producer.deliver(quote(QuoteData, 1)).result(SOON).consumers == 2
        check_quotes(ray.get(near.received.remote(1)), QuoteModel, range(1, 2))
        with channel.subscribe(refuse), pytest.raises(ec.DeliveryFailed, match="symbol 2"):
            producer.deliver(quote(QuoteData, 2)).result(SOON)


def test_members_of_groups_share_singles_and_blocks(near, far, name):
    channel = ec.channel(name, Numbered)
    for party in (near, far):
        ray.get(party.consume.remote(channel, group="g"))
    inbox = Inbox()
    with channel.subscribe(inbox, group="g"), channel.producer() as producer:
        for first in (0, 100, 200):
            producer.publish_many([Numbered(number) for number in range(first, first + 50)])
            producer.publish_many(numbered(first + 50, first + 99))
        producer.drain(timeout=SOON)
        parts = [numbers(ask(party, handled)) for party in (near, far)]
        parts.append(numbers(inbox.items))
    assert sorted(chain(*parts)) == [*range(300)]
    assert all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
@pytest.mark.parametrize("where", ["near", "here"])
def test_of_a_block_policies_drop_records(near, name, overflow, where):
    """A consumer that is held up gets an increasing part, with a gap for each hole."""
    channel = ec.channel(name, Numbered)
    party = Party()
    held = (lambda function: ask(near, function)) if where == "near" else (lambda function: function(party))

    def hold(party):
        party.kept.update(valve=Valve(), gaps=Inbox())
        party.kept["subscription"] = channel.subscribe(party.kept["valve"], on_error=party.kept["gaps"])

    def told(party):
        party.kept["subscription"].drain(SOON)
        return numbers(party.kept["valve"].inbox.items), party.kept["gaps"].items

    total = 700_000 if where == "near" else 30_000
    held(hold)
    with channel.producer(overflow=overflow) as producer:
        complete = True
        for first in range(0, total, 10_000):
            complete &= producer.publish_many(numbered(first, first + 9_999))
        held(lambda party: party.kept["valve"].opened.set())
        producer.drain(timeout=SOON)
        got, lost = held(told)
    assert complete == (overflow == "drop_oldest")  # which drops what was published before
    party.leave()
    missing = [number for gap in lost for number in range(gap.first - 1, gap.last)]
    assert missing
    assert got == sorted(got)
    assert sorted(got + missing) == [*range(total)]
    assert channel.stats().events_dropped == len(missing)


class Doubled:
    """A demodulator that sees events of the consumer's own class."""

    def receive(self, event: Any) -> list[Any]:
        return [event, dataclasses.replace(event, weight=-1.0)]


def test_demodulators_get_events_of_the_consumers_class(consume, name):
    channel = ec.channel(name, Numbered)
    received = consume(channel, demodulator=Doubled())
    with channel.producer() as producer:
        producer.publish(Numbered(1))
        producer.publish_many(numbered(2, 3))
    weights = [(number, weight) for number in (1, 2, 3) for weight in (0.5, -1.0)]
    assert [(event.number, event.weight) for event in received(6)] == weights


class Even(ec.Modulator):
    """Passes on every other event, and 40 in the place of 4."""

    def enqueue(self, event: Any) -> None:
        is_own = isinstance(event, Numbered)  # so the sandbox has the class
        number = event.number if is_own else event["number"]
        if number == 4:
            self.emit({"number": 40, "weight": 0.5})
        elif number % 2 == 0:
            self.emit(event)


@pytest.mark.parametrize("tier", ["inline", "isolated"])
@pytest.mark.parametrize("how", ["instances", "dicts", "arrays", "batches"])
def test_modulators_see_records(consume, name, tier, how):
    channel = ec.channel(name, Numbered)
    received = consume(channel, modulator=Even(), tier=tier)
    with channel.producer(admission=OPEN) as producer:
        block = numbered(0, 9)
        if how == "instances":
            producer.publish_many([Numbered(number) for number in range(10)])
        elif how == "dicts":
            producer.publish_many([{"number": number, "weight": 0.5} for number in range(10)])
        elif how == "arrays":
            producer.publish_many(block)
        else:
            columns = {each: pa.array(block[each]) for each in ("number", "weight")}
            producer.publish_many(pa.RecordBatch.from_pydict(columns))
        producer.drain(timeout=SOON)
        assert received() == [Numbered(number) for number in (0, 2, 40, 6, 8)]


class Renumbering(ec.Modulator):
    """Makes records of the channel's type."""

    def enqueue(self, event: Any) -> None:
        self.emit(Numbered(event.number + 1))


@pytest.mark.parametrize("tier", ["inline", "isolated"])
def test_modulators_emit_records_of_the_declared_type(consume, name, tier):
    channel = ec.channel(name, Numbered)
    received = consume(channel, modulator=Renumbering(), tier=tier)
    with channel.producer(admission=OPEN) as producer:
        producer.publish_many([Numbered(number) for number in range(10)])
        producer.drain(timeout=SOON)
        assert received() == [Numbered(number) for number in range(1, 11)]


class Kinds(ec.Modulator):
    """Tells of which classes events are."""

    def enqueue(self, event: Any) -> None:
        self.emit(type(event).__name__)


@pytest.mark.parametrize("event", [Numbered(1), {"number": 1, "weight": 0.5}], ids=["instances", "dicts"])
def test_modulators_see_events_of_one_class_whatever_way_they_take(near, name, event):
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel, modulator=Kinds(), tier="inline"))
    with channel.producer(admission=OPEN) as producer:
        for _ in range(5000):
            producer.publish(event)
        producer.publish_many([event])
        producer.drain(timeout=SOON)
        assert len(set(ask(near, handled))) == 1


@pytest.mark.parametrize("size", [1 << 10, 20_000, 300_000, 3 << 20])
def test_large_records(consume, name, size):
    channel = ec.channel(name, Sized)
    received = consume(channel)
    events = [Sized(number, bytes([number]) * size) for number in range(4)]
    with channel.producer() as producer:
        for event in events:
            producer.publish(event)
            producer.publish(Sized(-1, b""))
        assert producer.deliver(events[0]).result(SOON).consumers == 1
    assert received(9) == [*[each for event in events for each in (event, Sized(-1, b""))], events[0]]


def test_large_records_of_arrays_and_batches(consume, name):
    dtype = np.dtype([("number", "<i8"), ("grid", "<f4", (256, 300))])  # 300 KB each
    channel = ec.channel(name, dtype)
    received = consume(channel)
    block = np.zeros(5, dtype)
    block["number"] = range(5)
    block["grid"][:, 255, 299] = range(5)
    with channel.producer() as producer:
        producer.publish_many(block)
        producer.publish(block[0])
    events = received(6)
    assert [(int(event["number"]), float(event["grid"][255, 299])) for event in events] == [
        *((number, float(number)) for number in range(5)),
        (0, 0.0),
    ]


def test_records_of_arrays_that_are_larger_than_a_window(new_party, name):
    dtype = np.dtype([("number", "<i8"), ("grid", "<f8", (9 << 17,))])  # 9 MB each
    channel = ec.channel(name, dtype)

    def publish(party):
        block = np.zeros(2, dtype)
        block["number"] = (1, 2)
        with channel.producer() as producer:
            producer.publish_many(block)

    inbox = Inbox()
    with channel.subscribe(lambda event: inbox(int(event["number"]))):
        party = new_party()
        ray.get(party.where.remote())
        ray.get(party.run.remote(publish), timeout=4)
        assert inbox.wait(2) == [1, 2]


def publish_mixed(producer: ec.Producer, total: int) -> None:
    """Singles, arrays, record batches, dicts in turn, of many lengths."""
    first = 1
    while first <= total:
        for last in (first, first + 6, first + 999, first + 20_000):
            last = min(last, total)
            block = numbered(first, last)
            if last - first < 10:
                producer.publish_many([Numbered(number) for number in range(first, last + 1)])
            elif last - first < 1000:
                columns = {each: pa.array(block[each]) for each in ("number", "weight")}
                producer.publish_many(pa.RecordBatch.from_pydict(columns))
            else:
                producer.publish_many(block)
            first = last + 1
            if first > total:
                return


def test_singles_and_blocks_keep_their_order(consume, name):
    channel = ec.channel(name, Numbered)
    received = consume(channel)
    with channel.producer() as producer:
        publish_mixed(producer, 60_000)
    assert numbers(received(60_000)) == [*range(1, 60_001)]


SWAPPED = np.dtype([("weight", ">f8"), ("number", "<i8")])  # another format of the same record


def singles(first: int) -> list[Any]:
    """Records one by one, of as many makes as there are."""
    return [
        Numbered(first, 0.5),
        {"number": first + 1, "weight": 0.5},
        np.array([(first + 2, 0.5)], NUMBERED)[0],
        np.array([(0.5, first + 3)], SWAPPED)[0],
        np.rec.array([(first + 4, 0.5)], NUMBERED)[0],
        np.array((first + 5, 0.5), NUMBERED),
    ]


@pytest.mark.parametrize("run", [1, 40])
def test_single_records_of_all_makes_in_turn_arrive_in_order(near, name, run):
    """With runs of one make, in which a producer is armed for it, and without."""
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel))
    rounds = [singles(6 * n) for n in range(600)]
    events = [each[at] for i in range(0, 600, run) for at in range(6) for each in rounds[i : i + run]]
    with channel.producer() as producer:
        for i, event in enumerate(events):
            producer.publish(event)
            if i % 500 == 0:
                with pytest.raises(ec.NotSerialisable):
                    producer.publish(Numbered("no number", 0.5))  # type: ignore[arg-type]
    got = ray.get(near.received.remote(len(events)))
    assert all(type(each) is Numbered and each.weight == 0.5 for each in got)
    order = [6 * n + at for i in range(0, 600, run) for at in range(6) for n in range(i, i + run)]
    assert numbers(got) == order


def test_a_record_that_is_changed_afterwards_arrives_as_it_was(near, name):
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel))
    event, array = Numbered(0, 0.0), np.zeros(1, NUMBERED)
    with channel.producer() as producer:
        for number in range(300):
            event.number = array["number"][0] = number
            producer.publish(event if number % 50 < 25 else array[0])
    assert numbers(ray.get(near.received.remote(300))) == [*range(300)]


@pytest.mark.parametrize("source", ["near", "here"])
def test_messages_have_sequence_numbers_over_singles_and_blocks(near, name, source):
    channel = ec.channel(name, Numbered)

    def publish(party):
        with channel.producer() as producer:
            publish_mixed(producer, 8_000)
            return producer.name

    with channel.subscribe() as subscription:
        producer = ask(near, publish) if source == "near" else publish(None)
        messages = subscription.messages()
        seen = [next(messages) for _ in range(8_000)]
    assert [message.sequence for message in seen] == [*range(1, 8_001)]
    assert numbers([message.event for message in seen]) == [*range(1, 8_001)]
    assert {message.producer for message in seen} == {producer}


def test_stats_count_records_of_blocks(near, name):
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel))
    with channel.subscribe(Inbox()) as here, channel.producer() as producer:
        producer.publish_many(numbered(1, 5000))
        producer.publish_many([Numbered(number) for number in range(100)])
        producer.publish_many(numbered(1, 3))
        producer.drain(timeout=SOON)
        here.drain(SOON)
        ask(near, lambda party: party.kept["subscription"].drain(SOON))
        for stats in (here.stats(), ask(near, lambda party: party.kept["subscription"].stats())):
            assert (stats.received, stats.handled, stats.pending) == (5103, 5103, 0)
        stats = channel.stats()
    assert (stats.events_published, stats.events_delivered, stats.events_failed) == (5103, 2 * 5103, 0)
    assert stats.bytes_published == 5103 * NUMBERED.itemsize


def test_a_consumer_that_joins_amid_blocks_gets_an_unbroken_last_part(near, name):
    channel = ec.channel(name, Numbered)

    def publish_on(party):
        party.kept["producer"] = channel.producer()
        party.kept["stop"] = stop = threading.Event()
        party.kept["last"] = 0

        def run():
            while not stop.is_set():
                last = party.kept["last"]
                party.kept["producer"].publish_many(numbered(last + 1, last + 3000))
                party.kept["producer"].drain(SOON)
                party.kept["last"] = last + 3000

        party.kept["thread"] = threading.Thread(target=run)
        party.kept["thread"].start()

    def finish(party):
        party.kept["stop"].set()
        party.kept["thread"].join()
        party.kept["producer"].drain(SOON)
        return party.kept["last"]

    ask(near, publish_on)
    inboxes = [Inbox() for _ in range(4)]
    subscriptions = []
    for inbox in inboxes:
        subscriptions.append(channel.subscribe(inbox))
        inbox.wait(1)
    last = ask(near, finish)
    for inbox, subscription in zip(inboxes, subscriptions, strict=True):
        subscription.drain(SOON)
        subscription.close()
        assert numbers(inbox.items) == [*range(inbox.items[0].number, last + 1)]


@pytest.mark.parametrize("source", ["near", "here"])
def test_close_amid_a_block_ends_behind_the_event_that_is_handled(near, name, source):
    channel = ec.channel(name, Numbered)
    seen = []

    def handle(event):
        seen.append(event.number)
        if event.number == 500:
            subscription.close()

    def publish(party):
        with channel.producer() as producer:
            producer.publish_many(numbered(1, 50_000))
            producer.drain(SOON)

    other = Inbox()
    with channel.subscribe(other):
        subscription = channel.subscribe(handle)
        ask(near, publish) if source == "near" else publish(None)
        assert numbers(other.wait(50_000)) == [*range(1, 50_001)]
    assert seen == [*range(1, 501)]


@pytest.mark.parametrize("source", ["near", "here"])
@pytest.mark.parametrize("style", ["function", "coroutine"])
async def test_a_handler_that_raises_amid_a_block_loses_no_other_event(near, name, source, style):
    channel = ec.channel(name, Numbered)
    inbox, failures = Inbox(), Inbox()

    def handle(event):
        if event.number % 100 == 0:
            raise ValueError(event.number)
        inbox(event.number)

    async def handle_later(event):
        handle(event)

    def publish(party):
        with channel.producer() as producer:
            producer.publish_many(numbered(1, 1000))

    handler = handle if style == "function" else handle_later
    subscription = await channel.asubscribe(handler, on_error=failures)
    await asyncio.to_thread(lambda: ask(near, publish) if source == "near" else publish(None))
    assert await asyncio.to_thread(inbox.wait, 990) == [number for number in range(1, 1001) if number % 100]
    assert [error.args for error in await asyncio.to_thread(failures.wait, 10)] == [
        (number,) for number in range(100, 1001, 100)
    ]
    stats = subscription.stats()
    assert (stats.handled, stats.failed) == (990, 10)
    await subscription.aclose()
