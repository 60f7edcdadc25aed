"""Producers and consumers whose types differ from the channel's: what goes together, and what is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest
import ray

import echannel_ray as ec
from echannel_ray.session import endpoint_for
from tests.api.parties import SOON, Inbox, Party, ask, publish_all
from tests.clusters import wait_until


@dataclasses.dataclass
class Base:
    """What the channels of most tests are created with."""

    number: int
    price: float


@dataclasses.dataclass
class Wider:
    """A later version of a producer's."""

    venue: str
    price: float
    number: int
    size: int = 3


@dataclasses.dataclass
class WithDefaults:
    """A later version of a consumer's."""

    number: int
    price: float
    venue: str = "unknown"
    tags: list[str] = dataclasses.field(default_factory=lambda: ["none"])
    size: int | None = None


class ModelWithDefaults(pydantic.BaseModel):
    size: int | None = None
    tags: list[str] = pydantic.Field(default_factory=lambda: ["none"])
    venue: str = "unknown"
    price: float
    number: int


class StructWithDefaults(msgspec.Struct, kw_only=True):
    venue: str = "unknown"
    number: int
    tags: list[str] = msgspec.field(default_factory=lambda: ["none"])
    price: float
    size: int | None = None


@dataclasses.dataclass
class Subset:
    price: float


Received = Callable[[int], list[Any]]


@pytest.fixture(params=["in another process", "in the producer's process"])
def consume(request: pytest.FixtureRequest, near: Any) -> Iterator[Callable[..., Received]]:
    """Subscribes there; what it returns waits for so many events."""
    here = Party()

    def subscribe(channel: ec.EventChannel, **options: Any) -> Received:
        if request.param == "in another process":
            ray.get(near.consume.remote(channel, **options))
            return lambda count: ray.get(near.received.remote(count))
        here.consume(channel, **options)
        return here.received

    yield subscribe
    here.leave()


# ---- what goes together ----


def test_a_producer_publishes_more_than_the_channel_has(consume, name):
    received = consume(ec.channel(name, Base))
    publish_all(None, ec.channel(name, Wider), [Wider("X", 1.5, 1), Wider("Y", 2.5, 2)])
    assert received(2) == [Base(1, 1.5), Base(2, 2.5)]
    assert ec.channel(name).schema() == {"number": "int", "price": "float", "venue": "str", "size": "int"}


def test_a_consumer_asks_for_less(consume, name):
    channel = ec.channel(name, Wider)
    received = consume(channel, event_type=Subset)
    publish_all(None, channel, [Wider("X", 1.5, 1)])
    assert received(1) == [Subset(1.5)]


@pytest.mark.parametrize("asked", [WithDefaults, ModelWithDefaults, StructWithDefaults])
def test_a_new_consumer_with_an_old_producer(consume, name, asked):
    channel = ec.channel(name, Base)
    received = consume(channel, event_type=asked)
    publish_all(None, channel, [Base(1, 1.5), Base(2, 2.5)])
    events = received(2)
    assert events == [asked(number=number, price=number + 0.5) for number in (1, 2)]
    assert events[0].tags is not events[1].tags


@pytest.mark.parametrize("asked", [WithDefaults, ModelWithDefaults, StructWithDefaults])
def test_a_new_consumer_with_an_old_and_a_new_producer(consume, name, asked):
    received = consume(ec.channel(name, Base), event_type=asked)
    with ec.channel(name).producer() as old, ec.channel(name).producer() as new:
        for number in range(4):
            old.deliver(Base(number, 1.0)).result(SOON)
            new.deliver(Wider("X", 1.0, number, 7)).result(SOON)
    expected = []
    for number in range(4):
        expected.append(asked(number=number, price=1.0))
        expected.append(asked(number=number, price=1.0, venue="X", size=7))
    assert received(8) == expected


def test_a_format_that_came_later_is_asked_for_once(near, name):
    ray.get(near.consume.remote(ec.channel(name, Base)))
    # No test before this one has had such records.
    newest = dataclasses.make_dataclass("Newest", [("number", int), ("price", float), ("never_seen_before", str)])

    def count_asking(party):
        requests = endpoint_for(None).requests
        party.kept["asked"] = []
        ask_manager = requests.ask

        def counting(request, *more):
            party.kept["asked"].append(type(request).__name__)
            return ask_manager(request, *more)

        vars(requests)["ask"] = counting

    def asked_for(party):
        del vars(endpoint_for(None).requests)["ask"]
        return party.kept["asked"]

    ask(near, count_asking)
    try:
        with ec.channel(name).producer() as producer:
            for number in range(5):
                producer.deliver(newest(number, 1.5, "")).result(SOON)
            producer.publish_many([newest(number, 1.5, "") for number in range(5, 3000)])
    finally:
        events = ray.get(near.received.remote(3000))
        asked = ask(near, asked_for)
    assert events == [Base(number, 1.5) for number in range(3000)]
    assert asked == ["OpenChannel"]


@dataclasses.dataclass
class Narrow:
    number: Annotated[int, np.int32]
    price: Annotated[float, np.float32]
    flag: Annotated[int, np.uint8]


@dataclasses.dataclass
class Broad:
    flag: float
    price: float
    number: int


NARROW_DTYPE = np.dtype([("price", "<f4"), ("flag", "u1"), ("number", "<i4")])
NARROW_ARROW = pa.schema([("number", pa.int32()), ("flag", pa.uint8()), ("price", pa.float32())])


@pytest.mark.parametrize("asked", [Broad, np.dtype([("number", ">i8"), ("flag", "<f8"), ("price", ">f8")])])
@pytest.mark.parametrize("declared", [Narrow, NARROW_DTYPE, NARROW_ARROW], ids=["class", "dtype", "arrow"])
def test_numbers_widen(consume, name, declared, asked):
    channel = ec.channel(name, declared)
    received = consume(channel, event_type=asked)
    rows = [(-(2**31), 0.1, 255), (2**31 - 1, -1.5, 0)]
    with channel.producer() as producer:
        for number, price, flag in rows:
            producer.publish({"number": number, "price": price, "flag": flag})
        block = np.array([(price, flag, number) for number, price, flag in rows], NARROW_DTYPE)
        if declared is NARROW_DTYPE:
            producer.publish_many(block)
        elif declared is NARROW_ARROW:
            arrays = [pa.array(block[field]) for field in declared.names]
            producer.publish_many(pa.RecordBatch.from_arrays(arrays, schema=declared))
        else:
            producer.publish_many([Narrow(number, price, flag) for number, price, flag in rows])
    events = received(4)
    values = [
        (each.number, each.price, each.flag) if asked is Broad else (each["number"], each["price"], each["flag"])
        for each in events
    ]
    assert values == [(number, float(np.float32(price)), float(flag)) for number, price, flag in rows] * 2
    if asked is Broad:
        assert [type(value) for value in values[0]] == [int, float, float]


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("price", ">f8"), ("number", ">i8")]),
        np.dtype({"names": ["number", "price"], "formats": ["<i4", ">f4"], "offsets": [3, 9], "itemsize": 21}),
        np.dtype([("number", "i1"), ("price", "<f2")], align=True),
        np.dtype({"names": ["price", "number"], "formats": ["<f4", "<i8"], "offsets": [8, 0]}),
    ],
    ids=["big-endian", "by hand", "aligned", "out of order"],
)
@pytest.mark.parametrize("asked", [None, Subset, np.dtype([("number", "<i8"), ("price", "<f8")])])
def test_arrays_of_any_layout(consume, name, dtype, asked):
    channel = ec.channel(name, Base)
    received = consume(channel, event_type=asked)
    array = np.zeros(200, dtype)
    array["number"] = np.arange(200) % 100
    array["price"] = np.arange(200) / 4
    with ec.channel(name).producer() as producer:
        producer.publish_many(array[::2])
        producer.publish(array[1])
    expected = [*array[::2], array[1]]
    events = received(101)
    assert [float(each["price"] if isinstance(each, np.void) else each.price) for each in events] == [
        float(each["price"]) for each in expected
    ]
    if asked is None:
        assert events == [Base(int(each["number"]), float(each["price"])) for each in expected]


class InnerOld(msgspec.Struct):
    x: int


class InnerNew(msgspec.Struct):
    y: int
    x: int


class OuterOld(msgspec.Struct):
    inner: InnerOld
    all: list[InnerOld]


class OuterNew(msgspec.Struct):
    all: list[InnerNew]
    inner: InnerNew


def test_nested_records_extend_too(consume, name):
    received = consume(ec.channel(name, OuterOld))
    publish_all(None, ec.channel(name), [OuterNew([InnerNew(1, 2)], InnerNew(3, 4))])
    assert received(1) == [OuterOld(InnerOld(4), [InnerOld(2)])]


@dataclasses.dataclass
class DefinedWithDefault:
    number: int
    venue: str = "channel's"


@dataclasses.dataclass
class WithoutVenue:
    number: int


@dataclasses.dataclass
class MustHaveVenue:
    venue: str
    number: int


class ModelMustHaveVenue(pydantic.BaseModel):
    venue: str
    number: int


class StructMustHaveVenue(msgspec.Struct):
    venue: str
    number: int


@pytest.mark.parametrize("event", [WithoutVenue(1), {"number": 1}], ids=["class", "dict"])
@pytest.mark.parametrize("asked", [DefinedWithDefault, MustHaveVenue, ModelMustHaveVenue, StructMustHaveVenue, None])
def test_the_channels_default_stands_for_what_a_producer_lacks(consume, name, event, asked):
    ec.channel(name, DefinedWithDefault)
    received = consume(ec.channel(name), event_type=asked)
    with ec.channel(name).producer() as producer:
        assert producer.deliver(event).result(SOON).consumers == 1
    (got,) = received(1)
    if asked is None:
        assert got == {"number": 1, "venue": "channel's"}
    else:
        assert got == asked(number=1, venue="channel's")


@dataclasses.dataclass
class WithVenueOfItsOwn:
    number: int
    venue: str = "consumer's"


def test_the_consumers_default_counts_before_the_channels(consume, name):
    ec.channel(name, DefinedWithDefault)
    received = consume(ec.channel(name), event_type=WithVenueOfItsOwn)
    publish_all(None, ec.channel(name), [WithoutVenue(1), MustHaveVenue("given", 2)])
    assert received(2) == [WithVenueOfItsOwn(1), WithVenueOfItsOwn(2, "given")]


def test_a_class_that_travels_by_value_keeps_its_defaults(near, name):
    """As one of a program's main module does. Whoever has no default must not seem to have one."""

    @dataclasses.dataclass
    class Local:
        number: int
        venue: str = "local"

    ec.channel(name, WithoutVenue)
    ask(near, lambda party: party.consume(ec.channel(name), event_type=Local))
    with ec.channel(name).producer() as producer:
        delivery = producer.deliver(WithoutVenue(1))
        assert delivery.result(SOON).consumers == 1
    assert [(each.number, each.venue) for each in ray.get(near.received.remote(1))] == [(1, "local")]
    must_have = other(number=int, venue=str)
    with pytest.raises(ec.TypeMismatch, match="'venue'"):
        ask(near, lambda party: party.consume(ec.channel(f"{name}-without", WithoutVenue), event_type=must_have))


def test_a_class_is_published_through_a_handle_without_type(consume, name):
    received = consume(ec.channel(name, Base))
    handle = ec.channel(name)
    assert handle.event_type is None
    publish_all(None, handle, [Base(1, 1.0), Wider("X", 2.0, 2), {"number": 3, "price": 3.0}])
    assert received(3) == [Base(1, 1.0), Base(2, 2.0), Base(3, 3.0)]


def test_what_extends_a_channel_is_known_to_consumers_that_come_later(near, name):
    ec.channel(name, Base)
    with ec.channel(name).producer() as producer:
        producer.publish(Wider("X", 1.0, 1))
        ray.get(near.consume.remote(ec.channel(name), event_type=WithDefaults))
        inbox = Inbox()
        with ec.channel(name).subscribe(inbox):
            producer.publish(Wider("Y", 2.0, 2, 5))
            assert inbox.wait(1) == [{"number": 2, "price": 2.0, "venue": "Y", "size": 5}]
    assert ray.get(near.received.remote(1)) == [WithDefaults(2, 2.0, "Y", ["none"], 5)]


# ---- what does not ----


def other(**types: Any) -> type:
    return dataclasses.make_dataclass("Other", list(types.items()))


INCOMPATIBLE = [
    (other(number=str, price=float), "number"),
    (other(number=int, price=str), "price"),
    (other(number=list[int], price=float), "number"),
    (np.dtype([("number", "i8"), ("price", "c16")]), "price"),
    (pa.schema([("number", pa.string()), ("price", pa.float64())]), "number"),
]


@pytest.mark.parametrize(("event_type", "field"), INCOMPATIBLE)
def test_what_can_neither_publish_nor_subscribe_does_not_open(near, name, event_type, field):
    ec.channel(name, Base)
    with pytest.raises(ec.TypeMismatch, match=f"'{field}'") as caught:
        ec.channel(name, event_type)
    assert (caught.value.channel, caught.value.field) == (name, field)
    with pytest.raises(ec.TypeMismatch, match=f"'{field}'") as caught:
        ask(near, lambda party: ec.channel(name, event_type))
    assert caught.value.field == field


PRODUCES_NOT = [
    (other(price=float), "number"),
    (other(number=int | None, price=float), "number"),
]


@pytest.mark.parametrize(("event_type", "field"), PRODUCES_NOT)
def test_what_can_only_subscribe_has_no_producer(name, event_type, field):
    ec.channel(name, Base)
    channel = ec.channel(name, event_type)
    with pytest.raises(ec.TypeMismatch, match=f"'{field}'") as caught:
        channel.producer()
    assert (caught.value.channel, caught.value.field) == (name, field)
    assert channel.stats().producers == 0
    channel.subscribe().close()


SUBSCRIBES_NOT = [
    (other(number=int, price=float, venue=str), "venue"),
    (other(number=Annotated[int, np.int32], price=float), "number"),
    (other(number=int, price=Annotated[float, np.float32]), "price"),
    (np.dtype([("number", "i8"), ("price", "f8"), ("size", "i4")]), "size"),
]


@pytest.mark.parametrize(("event_type", "field"), SUBSCRIBES_NOT)
def test_what_can_only_publish_does_not_subscribe(name, event_type, field):
    channel = ec.channel(name, Base)
    with pytest.raises(ec.TypeMismatch, match=f"'{field}'") as caught:
        channel.subscribe(event_type=event_type)
    assert (caught.value.channel, caught.value.field) == (name, field)
    with pytest.raises(ec.TypeMismatch, match=f"'{field}'"):
        ec.channel(name, event_type).subscribe()
    assert channel.stats().consumers == 0
    ec.channel(name, event_type).producer().close()


def test_two_producers_mean_the_same_by_what_they_add(name):
    ec.channel(name, Base)
    with ec.channel(name).producer() as first, ec.channel(name).producer() as second:
        first.publish(Wider("X", 1.0, 1))
        with pytest.raises(ec.TypeMismatch, match="'venue'") as caught:
            second.publish(other(number=int, price=float, venue=int)(1, 1.0, 3))
        assert caught.value.field == "venue"
        second.publish(Base(1, 1.0))


def test_an_untyped_channel_has_no_event_types(channel):
    with pytest.raises(ec.TypeMismatch, match="untyped"):
        channel.subscribe(event_type=Base)


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
@pytest.mark.parametrize("retain", [None, ec.Retention()], ids=["passing", "retained"])
def test_a_batch_has_the_fields_that_every_record_has(name, kind, retain):
    narrow = np.dtype([("number", "i8"), ("price", "f8")])
    wide = np.dtype([*narrow.descr, ("extra", "i8")])
    ec.channel(name, narrow, retain=retain)
    with ec.channel(name, wide).producer() as newer, ec.channel(name).producer() as older:
        inbox = Inbox()
        with ec.channel(name).subscribe(inbox, batches=kind) as subscription:
            older.publish_many(np.array([(1, 0.5), (2, 0.5)], narrow))
            older.drain(SOON)
            newer.publish_many(np.array([(3, 0.5, 7), (4, 0.5, 7)], wide))
            newer.publish_many(pa.record_batch({"number": [5], "price": [0.5], "extra": [7]}))
            newer.drain(SOON)
            older.publish({"number": 6, "price": 0.5})
            wait_until(lambda: subscription.stats().handled == 6)
            assert subscription.stats().failed == 0
    rows = [row for each in inbox.items for row in (each.tolist() if kind == "numpy" else each.to_pylist())]
    values = [row if kind == "numpy" else (*row.values(),) for row in rows]
    assert values == [(number, 0.5) for number in range(1, 7)]


def test_equal_texts_share_one_derived_channel_whatever_was_added_meanwhile(near, name):
    channel = ec.channel(name, Base)
    before = channel.derive("number % 3 == 0")
    with channel.subscribe(event_type=WithDefaults):
        after = [channel.derive("number % 3 == 0"), ec.channel(name, Wider).derive("number % 3 == 0")]
        assert {each.name for each in after} == {before.name}
        first, second = Inbox(), Inbox()
        with before.subscribe(first, group="g"), after[0].subscribe(second, group="g"):
            ask(near, publish_all, channel, [Base(number, 1.5) for number in range(30)])
            wait_until(lambda: len(first.items) + len(second.items) >= 10)
            got = sorted(each.number for each in first.items + second.items)
        assert got == [*range(0, 30, 3)]


def test_ecode_does_not_know_what_was_added(name):
    channel = ec.channel(name, Base)
    with channel.subscribe(event_type=WithDefaults):
        assert "venue" in (ec.channel(name, Base).schema() or {})
        with pytest.raises(ec.ModulatorRefused, match="venue is not known here"):
            ec.channel(name, Base).derive("venue == 'X'")
