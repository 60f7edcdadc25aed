"""Typed channels: events of each kind of type arrive as each consumer asked for them, one by one and in blocks."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest
import ray

import echannel_ray as ec
from tests.api import modulators
from tests.api.parties import SOON, Inbox, Party, Valve, ask, publish_all
from tests.records.same_record import FIXED_TYPES, Values, made, values_of

OPEN = ec.Admission(tiers=("ecode", "isolated", "inline"))
AT = datetime(2024, 2, 29, 12, 30, 1, 5)
NAMES = ["dataclass", "pydantic", "struct", "numpy", "arrow"]
Row = Annotated[list[float], np.dtype(("f8", (3,)))]
Moment = Annotated[datetime, np.dtype("M8[us]")]


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class LegData:
    venue: str
    size: int


class LegModel(pydantic.BaseModel):
    venue: str
    size: int


class LegStruct(msgspec.Struct):
    venue: str
    size: int


@dataclasses.dataclass
class QuoteData:
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegData
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


class QuoteModel(pydantic.BaseModel):
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegModel
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


class QuoteStruct(msgspec.Struct):
    symbol: str
    is_open: bool
    price: float
    raw: bytes
    leg: LegStruct
    tags: list[str]
    row: Row
    note: str | None
    at: Moment


QUOTE_ARROW = pa.schema(
    [
        ("at", pa.timestamp("us")),
        pa.field("note", pa.string(), metadata={"optional": "true"}),
        ("row", pa.list_(pa.float64(), 3)),
        ("tags", pa.list_(pa.string())),
        ("leg", pa.struct([("size", pa.int64()), ("venue", pa.string())])),
        ("raw", pa.binary()),
        ("price", pa.float64()),
        ("is_open", pa.bool_()),
        ("symbol", pa.string()),
    ]
)
QUOTE_TYPES = [QuoteData, QuoteModel, QuoteStruct, QUOTE_ARROW]
LEGS: dict[Any, Any] = {QuoteData: LegData, QuoteModel: LegModel, QuoteStruct: LegStruct}


# What has no place in Arrow's types, for those who have classes.
@dataclasses.dataclass
class FeeData:
    fee: Decimal
    side: Side
    at: datetime
    took: timedelta


class FeeModel(pydantic.BaseModel):
    took: timedelta
    at: datetime
    side: Side
    fee: Decimal


class FeeStruct(msgspec.Struct):
    side: Side
    fee: Decimal
    took: timedelta
    at: datetime


@dataclasses.dataclass
class Numbered:
    number: int
    weight: float = 0.5


NUMBERED = np.dtype([("number", "<i8"), ("weight", "<f8")])


@dataclasses.dataclass
class Sized:
    number: int
    data: bytes


def numbered(first: int, last: int) -> np.ndarray:
    """An array of records with these numbers."""
    array = np.zeros(last - first + 1, NUMBERED)
    array["number"] = np.arange(first, last + 1)
    array["weight"] = 0.5
    return array


def numbers(events: list[Any]) -> list[int]:
    return [event.number for event in events]


def handled(party: Any) -> list[Any]:
    """The events that have come to its process, once they are handled."""
    party.kept["subscription"].drain(SOON)
    return list(party.kept["inbox"].items)


Consume = Callable[..., Callable[..., list[Any]]]


@pytest.fixture(params=["in another process", "in the producer's process"])
def consume(request: pytest.FixtureRequest, near: Any) -> Iterator[Consume]:
    """Subscribes there; what it returns waits for so many events, or tells which have come."""
    here = Party()

    def subscribe(channel: ec.EventChannel, **options: Any) -> Callable[..., list[Any]]:
        if request.param == "in another process":
            ray.get(near.consume.remote(channel, **options))
            return lambda count=0: ray.get(near.received.remote(count)) if count else ask(near, handled)
        here.consume(channel, **options)
        return lambda count=0: here.received(count) if count else handled(here)

    yield subscribe
    here.leave()


# ---- types ----


def fixed(number: int) -> Values:
    return Values(number, [1.5, -2.0, 0.0], (2.0 * number, 1.0), AT, timedelta(microseconds=number))


@pytest.mark.parametrize("asked", FIXED_TYPES, ids=NAMES)
@pytest.mark.parametrize("declared", FIXED_TYPES, ids=NAMES)
def test_records_of_fixed_size_arrive_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    with channel.producer() as producer:
        if isinstance(declared, type):
            producer.publish(made(declared, fixed(1)))
            producer.publish_many([made(declared, fixed(number)) for number in (2, 3)])
        elif isinstance(declared, np.dtype):
            producer.publish(made(declared, fixed(1))[0])
            producer.publish_many(np.concatenate([made(declared, fixed(number)) for number in (2, 3)]))
        else:
            producer.publish(made(declared, fixed(1)).to_pylist()[0])
            producer.publish_many(pa.concat_batches([made(declared, fixed(number)) for number in (2, 3)]))
    events = received(3)
    assert [values_of(event) for event in events] == [fixed(1), fixed(2), fixed(3)]
    expected = asked if isinstance(asked, type) else np.void if isinstance(asked, np.dtype) else ec.Record
    assert {type(event) for event in events} == {expected}


def quote_fields(number: int) -> dict[str, Any]:
    note = None if number % 2 else "☃"
    leg = {"venue": "X" * number, "size": number}
    return {
        "symbol": f"symbol {number}", "is_open": bool(number % 2), "price": number / 4, "raw": b"\0a\0",
        "leg": leg, "tags": ["a"] * number, "row": [1.0, 2.0, 3.5], "note": note, "at": AT,
    }  # fmt: skip


def quote(event_type: Any, number: int) -> Any:
    fields = quote_fields(number)
    if not isinstance(event_type, type):
        return fields
    return event_type(**{**fields, "leg": LEGS[event_type](**fields["leg"])})


def check_quotes(events: list[Any], event_type: Any, expected: range) -> None:
    if isinstance(event_type, type):
        assert events == [quote(event_type, number) for number in expected]
        assert {type(event.leg) for event in events} == {LEGS[event_type]}
    else:
        assert {(type(event), type(event.leg)) for event in events} == {(ec.Record, ec.Record)}
        assert events == [quote_fields(number) for number in expected]


@pytest.mark.parametrize("asked", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_records_of_any_size_arrive_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    with channel.producer() as producer:
        producer.publish(quote(declared, 1))
        if isinstance(declared, type):
            producer.publish_many([quote(declared, 2), quote(declared, 3)])
        else:
            producer.publish_many(pa.RecordBatch.from_pylist([quote_fields(2), quote_fields(3)], declared))
    check_quotes(received(3), asked, range(1, 4))


@pytest.mark.parametrize("asked", [FeeData, FeeModel, FeeStruct])
@pytest.mark.parametrize("declared", [FeeData, FeeModel, FeeStruct])
def test_what_only_classes_have_arrives_as_each_consumer_asked(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    zoned = datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2)))
    cases = [
        {"fee": Decimal("1.10"), "side": Side.BUY, "at": AT, "took": timedelta(1)},
        {"fee": Decimal("-1E+5"), "side": Side.SELL, "at": zoned, "took": timedelta(0, -1)},
    ]
    publish_all(None, channel, [declared(**fields) for fields in cases])
    events = received(2)
    assert events == [asked(**fields) for fields in cases]
    assert [str(event.fee) for event in events] == ["1.10", "-1E+5"]
    assert events[1].at.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_the_schema_is_known_without_the_class(near, name, declared):
    channel = ec.channel(name, declared)
    schema = channel.schema()
    assert schema is not None
    assert schema == ask(near, lambda party: ec.channel(name).schema())
    assert sorted(schema) == sorted(quote_fields(1))
    assert (schema["symbol"], schema["price"], schema["tags"]) == ("str", "float", "list[str]")


@pytest.mark.parametrize("declared", QUOTE_TYPES, ids=["dataclass", "pydantic", "struct", "arrow"])
def test_a_consumer_without_the_class_gets_records_by_name(consume, name, declared):
    channel = ec.channel(name, declared)
    received = consume(ec.channel(name))
    publish_all(None, channel, [quote(declared, 1), quote(declared, 2)])
    check_quotes(received(2), None, range(1, 3))


def test_only_an_instance_of_the_consumers_own_class_is_the_object_itself(name):
    channel = ec.channel(name, QuoteData)
    own, other, generic = Inbox(), Inbox(), Inbox()
    event = quote(QuoteData, 1)
    with (
        channel.subscribe(own),
        channel.subscribe(other, event_type=QuoteStruct),
        ec.channel(name).subscribe(generic),
    ):
        publish_all(None, channel, [event, quote_fields(2)])
        assert own.wait(2)[0] is event
        check_quotes(own.items, QuoteData, range(1, 3))
        check_quotes(other.wait(2), QuoteStruct, range(1, 3))
        check_quotes(generic.wait(2), None, range(1, 3))


def test_dicts_with_the_fields_are_events_too(consume, name):
    channel = ec.channel(name, QuoteStruct)
    received = consume(channel)
    with channel.producer() as producer:
        assert producer.publish(quote_fields(1))
        assert producer.publish_many([quote_fields(2), ec.Record(quote_fields(3))])
    check_quotes(received(3), QuoteStruct, range(1, 4))


def test_another_class_with_the_fields_is_an_event_too(consume, name):
    channel = ec.channel(name, QuoteStruct)
    received = consume(channel)
    publish_all(None, channel, [quote(QuoteData, 1), quote(QuoteModel, 2), quote(QuoteStruct, 3)])
    check_quotes(received(3), QuoteStruct, range(1, 4))


# ---- what is no event of the type ----


async def publish_by(how: str, producer: ec.Producer, event: Any) -> None:
    """Publish in one of the four ways."""
    if how == "publish":
        await asyncio.to_thread(producer.publish, event)
    elif how == "publish_many":
        await asyncio.to_thread(producer.publish_many, [event])
    elif how == "apublish":
        await producer.apublish(event)
    else:
        await producer.deliver(event)


class Stranger:
    """No record."""


NO_RECORDS = [b"bytes", "text", 1, None, (1, 2.0), Stranger(), np.zeros(3)]
UNFIT = [
    (Numbered("one"), "number"),  # type: ignore[arg-type]
    (Numbered(1, None), "weight"),  # type: ignore[arg-type]
    (Numbered(2**70), "number"),
    ({"number": 1.5, "weight": 1.0}, "number"),
    ({"weight": 1.0}, "number"),
]
WAYS = ["publish", "publish_many", "apublish", "deliver"]


@pytest.mark.parametrize("how", WAYS)
async def test_what_is_no_record_is_refused(consume, name, how):
    channel = ec.channel(name, Numbered)
    received = consume(channel)
    producer = channel.producer()
    for event in NO_RECORDS:
        with pytest.raises(ec.TypeMismatch, match="number, weight") as caught:
            await publish_by(how, producer, event)
        assert caught.value.channel == name
    await publish_by(how, producer, Numbered(1))
    await producer.aclose()
    assert await asyncio.to_thread(received, 1) == [Numbered(1)]
    assert channel.stats().events_published == 1


@pytest.mark.parametrize("how", WAYS)
async def test_values_that_do_not_fit_are_refused_by_name(near, name, how):
    channel = ec.channel(name, Numbered)
    await near.consume.remote(channel)
    producer = channel.producer()
    for event, field in UNFIT:
        with pytest.raises(ec.NotSerialisable, match=field) as caught:
            await publish_by(how, producer, event)
        assert field in str(caught.value.path or caught.value.reason)
        assert f"{field!r}" in str(caught.value)
    await publish_by(how, producer, Numbered(1))
    await producer.aclose()
    assert await near.received.remote(1) == [Numbered(1)]
    assert channel.stats().events_published == 1


def test_a_class_that_lacks_a_field_is_refused(near, name):
    channel = ec.channel(name, Numbered)
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        with pytest.raises(ec.TypeMismatch, match="number") as caught:
            producer.publish(LegData("X", 1))
        assert caught.value.field == "number"
        with pytest.raises(ec.TypeMismatch, match="number"):
            producer.publish_many(np.zeros(3, [("number", "f8"), ("weight", "f8")]))
        with pytest.raises(ec.TypeMismatch, match="number"):
            producer.publish_many(pa.RecordBatch.from_pylist([{"weight": 1.0}]))
        producer.publish(Numbered(7))
    assert ray.get(near.received.remote(1)) == [Numbered(7)]
    assert channel.stats().events_published == 1


def test_what_only_a_modulator_would_get_is_refused_too(consume, name):
    channel = ec.channel(name, Numbered)
    received = consume(channel, modulator=modulators.Repeat(1), tier="inline")
    with channel.producer(admission=OPEN) as producer:
        for number in range(3000):  # until it takes the shortest way
            producer.publish(Numbered(number))
        for event in NO_RECORDS:
            with pytest.raises(ec.TypeMismatch):
                producer.publish(event)
        producer.drain(timeout=SOON)
        assert numbers(received()) == [*range(3000)]


@pytest.mark.parametrize("how", WAYS)
async def test_of_what_is_refused_no_consumer_gets_anything(name, how):
    """Neither those who would take the object as it is."""
    channel = ec.channel(name, Numbered)
    own = Inbox()
    with channel.subscribe(own) as first, ec.channel(name).subscribe(Inbox()), channel.producer() as producer:
        with pytest.raises(ec.NotSerialisable, match="number"):
            await publish_by(how, producer, Numbered("one"))  # type: ignore[arg-type]
        await publish_by(how, producer, Numbered(1))
        first.drain(SOON)
        assert own.items == [Numbered(1)]
        assert channel.stats().events_published == 1


class Bounded(pydantic.BaseModel):
    """Looks at its values when it is made, and not when they are changed."""

    number: int = pydantic.Field(ge=0)


def test_without_validation_only_types_count(near, name):
    channel = ec.channel(name, Bounded)
    ray.get(near.consume.remote(channel))
    event = Bounded(number=1)
    event.number = -5
    publish_all(None, channel, [event])
    assert [each.number for each in ray.get(near.received.remote(1))] == [-5]


@pytest.mark.parametrize("how", WAYS)
async def test_validation_compares_values_with_the_declaration(consume, name, how):
    channel = ec.channel(name, Bounded)
    received = consume(channel)
    producer = channel.producer(validate=True)
    event = Bounded(number=1)
    event.number = -5
    with pytest.raises(ec.NotSerialisable, match="number"):
        await publish_by(how, producer, event)
    event.number = 5
    await publish_by(how, producer, event)
    await producer.aclose()
    assert numbers(await asyncio.to_thread(received, 1)) == [5]
    assert channel.stats().events_published == 1


# ---- the other calls ----


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


# ---- blocks ----


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
