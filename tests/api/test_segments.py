"""Large events inside a node: consumers look at them where they were written, and see nothing else for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Party, ask
from tests.clusters import wait_until

LENGTH = 50_000
DTYPE = np.dtype([("number", "<i8"), ("values", "<f8", (1000,))])


def numbered(number: int) -> Any:
    """An array whose elements all say which it is."""
    return np.full(LENGTH, number, np.float64)


def number_of(event: Any) -> int:
    """Which one it is, if it is whole."""
    values = {*np.unique(np.frombuffer(event) if isinstance(event, bytes) else event).tolist()}
    assert len(values) == 1, values
    return int(values.pop())


def begin(party: Party, channel: ec.EventChannel, options: dict[str, Any]) -> None:
    """Consume there, and look at each event when it is handled."""
    inbox = party.kept["inbox"] = Inbox()

    def handle(event: Any) -> None:
        inbox((number_of(event), type(event).__name__, isinstance(event, bytes) or event.flags.writeable))

    party.kept["subscription"] = channel.subscribe(handle, **options)


def seen(party: Party) -> list[Any]:
    """What has come so far."""
    return [*party.kept["inbox"].items]


def keep(party: Party, channel: ec.EventChannel) -> None:
    """Consume there, and keep all events."""
    party.kept["events"] = []
    party.kept["subscription"] = channel.subscribe(party.kept["events"].append)


def kept_numbers(party: Party) -> list[int]:
    """Which ones were kept, as they are now."""
    return [number_of(event) for event in [*party.kept["events"]]]


def until_in_segments(channel: ec.EventChannel, publish: Callable[[int], object], count: int = 30) -> int:
    """Publish until so many events have gone by segments; how many that were in all."""
    number = 0

    def go_on() -> bool:
        nonlocal number
        for _ in range(10):
            publish(number)
            number += 1
        return channel.stats().events_in_segments >= count

    wait_until(go_on)
    return number


@pytest.mark.parametrize(
    ("make", "kind"),
    [(numbered, "ndarray"), (lambda number: numbered(number).tobytes(), "bytes")],
    ids=["array", "bytes"],
)
def test_events_arrive_as_what_they_are(channel, near, make, kind):
    ask(near, begin, channel, {})
    with channel.producer() as producer:
        total = until_in_segments(channel, lambda number: producer.publish(make(number)))
    came = ask(near, lambda party, count: party.kept["inbox"].wait(count), total)
    assert came == [(number, kind, kind == "bytes") for number in range(total)]
    stats = channel.stats()
    assert (stats.events_published, stats.events_dropped) == (total, 0)
    assert set(stats.not_in_segments) <= {"unmapped"}


def loans_of(producer: ec.Producer) -> Callable[[int], Any]:
    """Makes loaned arrays that are numbered."""

    def make(number: int) -> Any:
        array = producer.loan(LENGTH)
        array[:] = number
        return array

    return make


def test_loans_arrive_and_are_given_up(channel, near):
    ask(near, begin, channel, {})
    with channel.producer() as producer:
        make = loans_of(producer)
        kept = []

        def publish(number: int) -> None:
            array = make(number)
            assert array.flags.writeable
            producer.publish(array)
            with pytest.raises(ValueError, match="read-only"):
                array[0] = -1
            if number % 10 == 3:
                kept.append(array)  # which nobody may use for another event

        total = until_in_segments(channel, publish)
        assert ask(near, lambda party, count: party.kept["inbox"].wait(count), total) == [
            (number, "ndarray", False) for number in range(total)
        ]
        assert [number_of(array) for array in kept] == [*range(3, total, 10)]


def test_a_view_that_is_written_after_publish_changes_no_event(channel, near):
    ask(near, keep, channel)
    with channel.producer() as producer:
        make = loans_of(producer)

        def publish(number: int) -> None:
            array = make(number)
            view = array[: LENGTH // 2]
            producer.publish(array)
            view[:] = -1

        for number in range(20):
            publish(number)
        total = 20 + until_in_segments(channel, lambda number: producer.publish(make(20 + number)))
        for number in range(total, total + 20):
            publish(number)
        producer.drain(SOON)
        assert ask(near, kept_numbers) == [*range(total + 20)]
    assert channel.stats().not_in_segments["viewed"] > 0


def test_every_way_to_publish_gives_up_a_loan(channel, near):
    ask(near, begin, channel, {})
    with channel.producer() as producer:
        make = loans_of(producer)
        total = until_in_segments(channel, lambda number: producer.publish(make(number)))
        delivered, awaited = make(total), make(total + 1)
        assert producer.deliver(delivered).result(SOON).consumers == 1
        asyncio.run(producer.apublish(awaited))
        producer.drain(SOON)
        assert not delivered.flags.writeable
        assert not awaited.flags.writeable
    assert [number for number, _, _ in ask(near, seen)] == [*range(total + 2)]


@pytest.mark.parametrize("way", ["local", "group", "retained", "modulator", "far", "nobody", "two"])
def test_loans_go_every_other_way_as_well(nodes, name, parties, way):
    retain = ec.Retention() if way == "retained" else None
    channel = ec.channel(name, retain=retain)
    everything: dict[str, dict[str, Any]] = {"group": {"group": "g"}, "modulator": {"modulator": ec.FIFOModulator()}}
    options = everything.get(way, {})
    inbox = Inbox()
    consumers = {"far": ["far"], "nobody": [], "local": [], "two": ["near", "threaded"]}.get(way, ["near"])
    for consumer in consumers:
        ask(parties[consumer], begin, channel, options)
    if way == "local":
        channel.subscribe(inbox)
    with channel.producer() as producer:
        make = loans_of(producer)
        for number in range(40):
            array = make(number)
            producer.publish(array)
            assert not array.flags.writeable
        producer.drain(SOON)
    for consumer in consumers:
        came = ask(parties[consumer], lambda party: party.kept["inbox"].wait(40))
        assert [number for number, _, _ in came] == [*range(40)]
    if way == "local":
        assert [number_of(event) for event in inbox.wait(40)] == [*range(40)]


def test_views_that_a_handler_keeps_stay_as_they_are(nodes, name, new_party):
    channel = ec.channel(name)
    consumer = new_party()
    ask(consumer, keep, channel)
    session = ec.connect(segment_bytes=16 << 20)  # of which a consumer may hold a quarter: ten events
    try:
        with channel.producer() as producer:
            total = until_in_segments(channel, lambda number: producer.publish(numbered(number)), 60)
            producer.drain(SOON)
            assert ask(consumer, kept_numbers) == [*range(total)]
    finally:
        session._endpoint.exchange.max_bytes = None
        session._endpoint.exchange.store.max_bytes = None
    assert ask(consumer, kept_numbers) == [*range(total)], "the producer has closed"


def test_without_segments_events_go_as_they_did(nodes, name, new_party):
    channel = ec.channel(name)
    publisher, consumer = new_party(), new_party()
    ask(consumer, begin, channel, {})

    def publish(party: Party, channel: ec.EventChannel) -> None:
        ec.connect(segment_bytes=0)
        with channel.producer() as producer:
            for number in range(40):
                array = producer.loan(LENGTH)
                array[:] = number
                producer.publish(array)

    ask(publisher, publish, channel)
    assert [number for number, _, _ in ask(consumer, lambda party: party.kept["inbox"].wait(40))] == [*range(40)]
    assert channel.stats().events_in_segments == 0


@pytest.mark.parametrize("way", ["pull", "messages", "coroutine"])
def test_bytes_however_they_are_consumed(channel, near, way):
    def begin(party: Party, channel: ec.EventChannel) -> None:
        inbox = party.kept["inbox"] = Inbox()
        if way == "coroutine":

            async def handle(event: bytes) -> None:
                inbox((type(event), number_of(event)))

            party.kept["subscription"] = channel.subscribe(handle)
            return
        subscription = party.kept["subscription"] = channel.subscribe()

        def read() -> None:
            for each in subscription if way == "pull" else subscription.messages():
                event = each if way == "pull" else each.event
                inbox((type(event), number_of(event)))

        threading.Thread(target=read, daemon=True).start()

    ask(near, begin, channel)
    with channel.producer() as producer:
        total = until_in_segments(channel, lambda number: producer.publish(numbered(number).tobytes()))
    came = ask(near, lambda party, count: party.kept["inbox"].wait(count), total)
    assert came == [(bytes, number) for number in range(total)]


@pytest.mark.parametrize("value", [-1, "1 GB", 1.5])
def test_a_bound_is_a_number_of_bytes(nodes, value):
    with pytest.raises(ValueError, match="segment_bytes"):
        ec.connect(segment_bytes=value)


@pytest.mark.parametrize("overflow", ["block", "raise", "drop_newest", "drop_oldest"])
def test_a_slow_consumer_gets_what_the_policy_says(channel, near, overflow):
    def begin_slowly(party: Party, channel: ec.EventChannel) -> None:
        inbox = party.kept["inbox"] = Inbox()

        def read(subscription: ec.Subscription) -> None:
            for message in subscription.messages():
                inbox((message.first, message.last) if isinstance(message, ec.Gap) else number_of(message.event))

        subscription = party.kept["subscription"] = channel.subscribe()
        threading.Thread(target=read, args=[subscription], daemon=True).start()

    ask(near, begin_slowly, channel)
    published = []
    with channel.producer(overflow=overflow) as producer:
        for number in range(300):
            try:
                producer.publish(numbered(number))
            except ec.Overloaded:
                continue
            published.append(number)
        producer.drain(SOON)
    dropped = channel.stats().events_dropped

    def all_told(party: Party) -> int:
        items = [*party.kept["inbox"].items]
        return sum(item[1] - item[0] + 1 if isinstance(item, tuple) else 1 for item in items)

    wait_until(lambda: ask(near, all_told) >= len(published))
    came = ask(near, seen)
    numbers = [item for item in came if isinstance(item, int)]
    assert numbers == sorted(numbers)
    assert len(numbers) + dropped == len(published)
    assert overflow.startswith("drop") or (numbers == published and not dropped)


# ---- typed channels ----


def records(numbers: range) -> Any:
    """Records of 8 KB."""
    made = np.zeros(len(numbers), DTYPE)
    made["number"] = numbers
    made["values"] = made["number"][:, np.newaxis]
    return made


def begin_records(party: Party, channel: ec.EventChannel, options: dict[str, Any]) -> None:
    """Consume records, or batches."""
    inbox = party.kept["inbox"] = Inbox()

    def handle(event: Any) -> None:
        rows = np.atleast_1d(event)
        if isinstance(event, pa.RecordBatch):
            rows = records(range(0))
            for number, values in zip(event["number"].to_pylist(), event["values"].to_pylist(), strict=True):
                assert {*values} == {float(number)}
                inbox(number)
        for row in rows:
            assert (row["values"] == row["number"]).all()
            inbox(int(row["number"]))

    party.kept["subscription"] = channel.subscribe(handle, **options)


@pytest.mark.parametrize("batches", [None, "numpy", "arrow"])
@pytest.mark.parametrize("is_loaned", [False, True], ids=["array", "loan"])
def test_records_in_bulk(nodes, name, near, batches, is_loaned):
    channel = ec.channel(name, DTYPE)
    ask(near, begin_records, channel, {"batches": batches})
    total = 0
    with channel.producer() as producer:

        def publish(_: int) -> None:
            nonlocal total
            array = records(range(total, total + 200))
            if is_loaned:
                loaned = producer.loan(200, DTYPE)
                loaned[:] = array
                array = loaned
            producer.publish_many(array)
            assert array.flags.writeable != is_loaned
            array = None
            total += 200

        until_in_segments(channel, publish, 1000)
    came = ask(near, lambda party, count: party.kept["inbox"].wait(count), total)
    assert came == [*range(total)]
    assert channel.stats().events_published == total


def test_one_large_record(nodes, name, near):
    dtype = np.dtype([("number", "<i8"), ("values", "<f8", (LENGTH,))])
    channel = ec.channel(name, dtype)
    ask(near, begin_records, channel, {})
    with channel.producer() as producer:

        def publish(number: int) -> None:
            record = producer.loan((), dtype) if number % 2 else np.zeros((), dtype)
            record["number"] = number
            record["values"] = number
            producer.publish(record)

        total = until_in_segments(channel, publish)
    assert ask(near, lambda party, count: party.kept["inbox"].wait(count), total) == [*range(total)]


def test_an_array_of_objects_can_not_be_loaned(channel):
    with channel.producer() as producer, pytest.raises(TypeError, match="refers to objects"):
        producer.loan(10, object)


def test_a_closed_producer_loans_nothing(channel):
    producer = channel.producer()
    producer.close()
    with pytest.raises(ec.Closed):
        producer.loan(LENGTH)
