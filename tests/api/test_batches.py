"""Whole packs as columns: NumPy arrays and Arrow record batches, for every way to consume."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api import modulators
from tests.api.parties import SOON, Inbox, ask
from tests.clusters import wait_until

OPEN = ec.Admission(tiers=("ecode", "isolated", "inline"))
DTYPE = np.dtype([("number", "<i8"), ("weight", "<f4"), ("row", "<i2", (2,))])
SCHEMA = pa.schema([("number", pa.int64()), ("weight", pa.float32()), ("row", pa.list_(pa.int16(), 2))])


@dataclasses.dataclass
class Reading:
    number: int
    weight: Annotated[float, np.float32]
    row: Annotated[list[int], np.dtype(("<i2", (2,)))]


@dataclasses.dataclass
class Short:
    number: int


@dataclasses.dataclass
class Named:
    name: str
    number: int


def array(first: int, last: int) -> np.ndarray:
    made = np.zeros(last - first + 1, DTYPE)
    made["number"] = np.arange(first, last + 1)
    made["weight"] = made["number"] / 2
    made["row"][:, 1] = made["number"] % 100
    return made


def batch(first: int, last: int) -> pa.RecordBatch:
    columns = array(first, last)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(columns["row"].ravel()), 2)
    return pa.RecordBatch.from_arrays([pa.array(columns["number"]), pa.array(columns["weight"]), rows], schema=SCHEMA)


def singles(first: int, last: int) -> list[Reading]:
    return [Reading(n, n / 2, [0, n % 100]) for n in range(first, last + 1)]


SOURCES = {"arrays": array, "batches": batch, "singles": singles}
TOTAL = 20_000


def gathering(source: str) -> ec.Packing | None:
    """What is published one by one comes in packs as large as this says, and not as this machine is fast."""
    return ec.Packing(degree=64, interval_seconds=1) if source == "singles" else None


def publish(party: Any, channel: ec.EventChannel, source: str, total: int = TOTAL) -> None:
    with channel.producer() as producer:
        half = total // 2
        producer.publish_many(SOURCES[source](1, half))
        producer.publish_many(SOURCES[source](half + 1, total))
        producer.drain(SOON)


def check(batches: list[Any], kind: str, total: int = TOTAL) -> None:
    """All of them, in order, and in far fewer pieces."""
    assert {type(each) for each in batches} == {np.ndarray if kind == "numpy" else pa.RecordBatch}
    assert sum(map(len, batches)) == total
    assert len(batches) < total / 10
    columns: Any
    if kind == "numpy":
        columns = np.concatenate(batches)
    else:
        table = pa.Table.from_batches(batches)
        columns = {each: table[each].to_numpy() for each in ("number", "weight")}
        columns["row"] = np.array(table["row"].to_pylist())
    expected = array(1, total)
    for field in ("number", "weight", "row"):
        assert np.array_equal(columns[field], expected[field])


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("declared", [Reading, DTYPE, SCHEMA], ids=["class", "dtype", "schema"])
def test_push(near, name, declared, source, kind):
    channel = ec.channel(name, declared, packing=gathering(source))
    inbox = Inbox()
    with channel.subscribe(inbox, batches=kind) as subscription:
        ask(near, publish, channel, source)
        subscription.drain(SOON)
        check(inbox.items, kind)
        stats = subscription.stats()
        assert (stats.received, stats.handled, stats.failed, stats.pending) == (TOTAL, TOTAL, 0, 0)
        assert channel.stats().events_delivered == TOTAL


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", ["arrays", "batches"])
def test_in_the_producers_process(name, source, kind):
    channel = ec.channel(name, Reading)
    inbox = Inbox()
    with channel.subscribe(inbox, batches=kind) as subscription:
        publish(None, channel, source)
        subscription.drain(SOON)
        check(inbox.items, kind)
        assert subscription.stats().handled == TOTAL


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
def test_a_single_event_in_the_producers_process_is_a_batch_too(name, kind):
    channel = ec.channel(name, Reading)
    inbox = Inbox()
    with channel.subscribe(inbox, batches=kind) as subscription, channel.producer() as producer:
        producer.publish(singles(1, 1)[0])
        producer.publish({"number": 2, "weight": 1.0, "row": [0, 2]})
        assert producer.deliver(singles(3, 3)[0]).result(SOON).consumers == 1
        subscription.drain(SOON)
        numbers = [each["number"] for each in inbox.items]
        assert [int(n) if kind == "numpy" else n.as_py() for each in numbers for n in each] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
def test_pull(near, name, source, kind):
    channel = ec.channel(name, Reading, packing=gathering(source))
    with channel.subscribe(batches=kind) as subscription:
        ask(near, publish, channel, source, 5000)
        batches: list[Any] = []
        while sum(map(len, batches)) < 5000:
            batches.append(subscription.get(SOON))
        check(batches, kind, 5000)
        assert subscription.stats().handled == 5000


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
def test_messages_have_the_number_of_the_first_record(near, name, source, kind):
    channel = ec.channel(name, Reading, packing=gathering(source))
    with channel.subscribe(batches=kind) as subscription:
        ask(near, publish, channel, source, 5000)
        messages, seen = subscription.messages(), 0
        batches = []
        while seen < 5000:
            message = next(messages)
            assert message.sequence == seen + 1
            seen += len(message.event)
            batches.append(message.event)
        check(batches, kind, 5000)


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("style", ["coroutine", "async for"])
async def test_coroutines(near, name, kind, style):
    channel = ec.channel(name, Reading)
    batches: list[Any] = []
    done = asyncio.Event()

    async def handle(each):
        batches.append(each)
        if sum(map(len, batches)) == TOTAL:
            done.set()

    subscription = await channel.asubscribe(handle if style == "coroutine" else None, batches=kind)
    publishing = asyncio.get_running_loop().run_in_executor(None, ask, near, publish, channel, "arrays")
    if style == "async for":
        async for each in subscription:
            await handle(each)
            if done.is_set():
                break
    await asyncio.wait_for(done.wait(), SOON)
    await publishing
    check(batches, kind)
    await subscription.aclose()
    assert channel.stats().events_delivered == TOTAL


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
def test_mixed_sources_keep_their_order(near, name, kind):
    channel = ec.channel(name, Reading)

    def publish_mixed(party):
        with channel.producer() as producer:
            first = 1
            while first < TOTAL:
                for source, count in (("arrays", 700), ("singles", 50), ("batches", 250)):
                    producer.publish_many(SOURCES[source](first, first + count - 1))
                    first += count
            producer.drain(SOON)

    inbox = Inbox()
    with channel.subscribe(inbox, batches=kind) as subscription:
        ask(near, publish_mixed)
        subscription.drain(SOON)
        check(inbox.items, kind)


@pytest.mark.parametrize(
    ("kind", "asked", "expected"),
    [
        ("numpy", np.dtype([("number", ">i8"), ("weight", "<f8")]), np.dtype([("number", ">i8"), ("weight", "<f8")])),
        ("arrow", pa.schema([("weight", pa.float64())]), pa.schema([("weight", pa.float64())])),
        ("numpy", dataclasses.make_dataclass("Some", [("number", int)]), np.dtype([("number", "<i8")])),
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_batches_of_another_type(near, name, source, kind, asked, expected):
    channel = ec.channel(name, Reading)
    inbox = Inbox()
    with channel.subscribe(inbox, event_type=asked, batches=kind) as subscription:
        ask(near, publish, channel, source, 1000)
        subscription.drain(SOON)
    assert sum(map(len, inbox.items)) == 1000
    for each in inbox.items:
        assert (each.dtype if kind == "numpy" else each.schema) == expected
    first = inbox.items[0][expected.names[-1]]
    assert float(first[0] if kind == "numpy" else first[0].as_py()) == (0.5 if "weight" in expected.names else 1)


def test_texts_come_as_arrow(near, name):
    channel = ec.channel(name, Named)
    inbox = Inbox()
    with channel.subscribe(inbox, batches="arrow") as subscription:

        def publish_names(party):
            with channel.producer() as producer:
                producer.publish_many([Named(f"name {n}", n) for n in range(1000)])
                columns = {"name": [f"name {n}" for n in range(1000, 2000)], "number": [*range(1000, 2000)]}
                producer.publish_many(pa.RecordBatch.from_pydict(columns))
                producer.publish_many(pa.table(columns).slice(0, 0))
                producer.drain(SOON)

        ask(near, publish_names)
        subscription.drain(SOON)
        table = pa.Table.from_batches(inbox.items)
    assert table.to_pylist() == [{"name": f"name {n}", "number": n} for n in range(2000)]


@pytest.mark.parametrize("empty", [np.zeros(0, DTYPE), SCHEMA.empty_table(), batch(1, 1).slice(0, 0), []])
@pytest.mark.parametrize("kind", [None, "numpy", "arrow"])
def test_what_is_empty_is_no_event(near, name, empty, kind):
    channel = ec.channel(name, Reading)
    ray.get(near.consume.remote(channel, batches=kind))
    inbox = Inbox()
    with channel.subscribe(inbox, batches=kind) as subscription, channel.producer() as producer:
        assert producer.publish_many(empty)
        assert producer.deliver(singles(1, 1)[0]).result(SOON).consumers == 2
        subscription.drain(SOON)
        assert len(inbox.items) == 1
        assert len(ray.get(near.received.remote(1))) == 1
        assert channel.stats().events_published == 1


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
def test_a_handler_that_raises_fails_the_whole_batch(near, name, kind):
    channel = ec.channel(name, Reading)
    failures, inbox = Inbox(), Inbox()

    def handle(each):
        if not inbox.items:
            inbox(each)
            raise ValueError(len(each))
        inbox(each)

    with channel.subscribe(handle, batches=kind, on_error=failures) as subscription:
        ask(near, publish, channel, "arrays")
        subscription.drain(SOON)
        check(inbox.items, kind)
        (failure,) = failures.items
        stats = subscription.stats()
    assert (stats.failed, stats.handled) == (failure.args[0], TOTAL - failure.args[0])


class Joined:
    """A demodulator that sees whole batches."""

    def receive(self, each: Any) -> list[Any]:
        return [each["number"]]


def test_demodulators_see_batches(near, name):
    channel = ec.channel(name, Reading)
    inbox = Inbox()
    with channel.subscribe(inbox, demodulator=Joined(), batches="numpy") as subscription:
        ask(near, publish, channel, "arrays", 1000)
        subscription.drain(SOON)
    assert np.array_equal(np.concatenate(inbox.items), np.arange(1, 1001))


def test_behind_a_modulator(name):
    channel = ec.channel(name, Reading)
    inbox = Inbox()
    with (
        channel.subscribe(inbox, modulator=modulators.Repeat(2), tier="inline", batches="numpy") as subscription,
        channel.producer(admission=OPEN) as producer,
    ):
        producer.publish_many(singles(1, 3))
        producer.drain(SOON)
        subscription.drain(SOON)
    assert [int(n) for each in inbox.items for n in each["number"]] == [1, 1, 2, 2, 3, 3]


def publish_openly(party: Any, channel: ec.EventChannel, source: str) -> None:
    with channel.producer(admission=OPEN) as producer:
        producer.publish_many(SOURCES[source](1, 100))
        producer.drain(SOON)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("is_near", [True, False])
def test_what_an_inline_modulator_passes_on_stays_a_record(near, name, source, is_near):
    channel = ec.channel(name, Reading)
    made = channel.derive(ec.ecode("output.number = number * 2\nreturn True", output=Short))
    columns, short, of_made, made_columns = Inbox(), Inbox(), Inbox(), Inbox()
    inline: dict[str, Any] = {"modulator": modulators.Repeat(1), "tier": "inline"}
    with (
        channel.subscribe(columns, batches="numpy", **inline) as first,
        channel.subscribe(short, event_type=Short, **inline),
        made.subscribe(of_made, **inline),
        made.subscribe(made_columns, batches="arrow", **inline),
    ):
        publish_openly(None, channel, source) if is_near else ask(near, publish_openly, channel, source)
        assert short.wait(100) == [Short(number) for number in range(1, 101)]
        assert of_made.wait(100) == [Short(number * 2) for number in range(1, 101)]
        wait_until(lambda: sum(map(len, columns.items)) == sum(map(len, made_columns.items)) == 100)
        assert first.stats().failed == 0
    assert np.array_equal(np.concatenate(columns.items)["row"], array(1, 100)["row"])
    assert [n for each in made_columns.items for n in each["number"].to_pylist()] == [*range(2, 202, 2)]


class Described(ec.Modulator):
    """Emits dicts of its own, of which some have the fields of a record."""

    def enqueue(self, event: Any) -> None:
        number = event["number"]
        self.emit({"number": number, "weight": number / 2, "row": [0, number]})
        self.emit({"number": number, "about": "something else"})
        self.emit({"number": "no number", "weight": 0.0, "row": [0, 0]})


def test_a_dict_that_an_inline_modulator_makes_is_a_record_if_it_fits(near, name):
    channel = ec.channel(name, Reading)
    inbox, others = Inbox(), Inbox()
    with channel.subscribe(inbox, modulator=Described(), tier="inline", batches="arrow", on_error=others):
        ask(near, publish_openly, channel, "arrays")
        wait_until(lambda: sum(map(len, inbox.items)) == 100)
        assert len(others.wait(200)) == 200


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
def test_members_of_a_group_share_what_a_log_has_in_whole_blocks(near, name, source, kind):
    channel = ec.channel(name, Reading, retain=ec.Retention())
    ask(near, publish, channel, source)
    inboxes = Inbox(), Inbox()
    first, second = (channel.subscribe(each, group="g", start="earliest", batches=kind) for each in inboxes)
    with first, second:
        wait_until(lambda: first.stats().handled + second.stats().handled == TOTAL)
        assert first.stats().failed == second.stats().failed == 0
    batches = [each for inbox in inboxes for each in inbox.items]
    check(sorted(batches, key=lambda each: int(each["number"].tolist()[0])), kind)


# ---- what can't be ----


def test_an_untyped_channel_has_no_batches(channel):
    with pytest.raises(TypeError, match="untyped"):
        channel.subscribe(batches="numpy")
    assert channel.stats().consumers == 0


def test_there_are_two_kinds(name):
    with pytest.raises(ValueError, match='"numpy" or "arrow"'):
        ec.channel(name, Reading).subscribe(batches="pandas")


def test_what_has_no_column_is_named(name):
    channel = ec.channel(name, Named)
    with pytest.raises(ValueError, match="'name'"):
        channel.subscribe(batches="numpy")
    mixed = ec.channel(f"{name}-2", dataclasses.make_dataclass("Mixed", [("fine", int), ("odd", int | str)]))
    with pytest.raises(ValueError, match="'odd'"):
        mixed.subscribe(batches="arrow")
    assert (channel.stats().consumers, mixed.stats().consumers) == (0, 0)


WORDS = pa.schema([("number", pa.int64()), ("word", pa.string())])


def words(count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(count)), pa.array(["a"] * count)], schema=WORDS)


def test_rows_of_a_record_batch_travel_alone_where_they_have_to(nodes, near, name):
    """To a group, and behind E-code: in a format of their own, which consumers have to know."""
    channel = ec.channel(name, WORDS)

    def consume(party):
        opened = ec.channel(name)
        few, shared = Inbox(), Inbox()
        party.kept.update(few=few, shared=shared)
        party.kept["subscriptions"] = opened.derive("number < 3").subscribe(few), opened.subscribe(shared, group="g")

    ask(near, consume)
    with channel.producer() as producer:
        producer.publish_many(words(100))
        few = ask(near, lambda party: [tuple(each) for each in party.kept["few"].wait(3)])
        shared = ask(near, lambda party: [each.number for each in party.kept["shared"].wait(100)])
    assert len(few) == 3
    assert shared == [*range(100)]
