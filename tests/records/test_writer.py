"""What is written of an event, and what is said of one that can't be."""

import dataclasses
import enum
import pickle
import struct
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import pydantic
import pytest

from echannel_ray.errors import NotSerialisable
from echannel_ray.records.generic import Record
from echannel_ray.records.validators import validator_of
from echannel_ray.records.writer import Writer, block_of, format_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of


class Side(enum.IntEnum):
    BUY = 1
    SELL = 2


@dataclasses.dataclass
class Point:
    x: float
    y: float


@dataclasses.dataclass
class Trade:
    price: float
    size: int
    where: Point
    side: Side = Side.BUY
    is_open: bool = True


@dataclasses.dataclass
class Quote:
    symbol: str
    trades: list[Trade] = dataclasses.field(default_factory=list)
    by_day: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    either: int | Point = 0
    at: datetime | None = None
    data: bytes = b""
    price: Decimal | None = None
    pair: tuple[int, str] = (1, "a")
    some: Any = None
    tags: set[str] = dataclasses.field(default_factory=set)
    floats: list[float] = dataclasses.field(default_factory=list)


TRADE = Trade(1.5, 2, Point(3.0, 4.0), Side.SELL)


def test_fixed_records_are_laid_out_as_c_does():
    write = Writer(Trade, schema_of(Trade))
    assert write.format.encoding == schema.LAYOUT
    assert write(TRADE) == struct.pack("=dqddq?7x", 1.5, 2, 3.0, 4.0, 2, True)


def test_others_are_the_values_in_order():
    write = Writer(Quote, schema_of(Quote))
    assert write.format.encoding == schema.MSGPACK
    event = Quote("x", [TRADE], either=Point(0.0, 1.0))
    assert msgspec.msgpack.decode(write(event))[:4] == ["x", [[1.5, 2, [3.0, 4.0], 2, True]], {}, [1, [0.0, 1.0]]]


def test_mappings_are_written_as_events_of_the_class_are():
    write, generic = Writer(Trade, schema_of(Trade)), Writer(None, schema_of(Trade))
    fields = {"side": 2, "size": 2, "price": 1.5, "where": {"y": 4.0, "x": 3.0}}
    assert generic.format == write.format
    assert generic(fields) == generic({**fields, "is_open": True}) == generic(Record(fields)) == write(TRADE)


def test_nearly_right_values_are_taken():
    write = Writer(Trade, schema_of(Trade))
    nearly = Trade(np.float32(1.5), np.int64(2), Point(3, np.float64(4)), 2, np.bool_(True))  # type: ignore[arg-type]
    assert write(nearly) == write(TRADE)
    quote = Writer(Quote, schema_of(Quote))

    class Name(str):
        __slots__ = ()

    assert quote(Quote(Name("x"), floats=np.array([1.0]))) == quote(Quote("x", floats=[1]))  # type: ignore[arg-type]


class Loose(pydantic.BaseModel):
    side: Side
    model_config = {"use_enum_values": True}


def test_a_model_may_have_values_in_the_place_of_members():
    write = Writer(Loose, schema_of(Loose))
    assert write(Loose(side=Side.SELL)) == struct.pack("=q", 2)


@pytest.mark.parametrize(
    ("changes", "path", "needed"),
    [
        ({"price": "1"}, "price", "a float"),
        ({"price": None}, "price", "a float"),
        ({"size": 2**63}, "size", "range of int64"),
        ({"size": 1.0}, "size", "an int"),
        ({"where": None}, "where", "a Point"),
        ({"where": Point(1.0, None)}, "where.y", "a float"),  # type: ignore[arg-type]
        ({"side": 3}, "side", "one of 1, 2"),
        ({"side": []}, "side", "one of 1, 2"),
        ({"is_open": 1}, "is_open", "a bool"),
    ],
)
def test_a_value_of_a_fixed_record_that_does_not_fit_is_named(changes, path, needed):
    _check_refused(dataclasses.replace(TRADE, **changes), path, needed)


@pytest.mark.parametrize(
    ("changes", "path", "needed"),
    [
        ({"symbol": None}, "symbol", "a str"),
        ({"symbol": "\ud800"}, "symbol", "lone surrogates"),
        ({"trades": [TRADE, Trade(1.0, "x", Point(1.0, 1.0))]}, "trades[1].size", "an int"),  # type: ignore[arg-type]
        ({"trades": None}, "trades", "a list"),
        ({"trades": "x"}, "trades", "a list"),
        ({"by_day": {"a": [1, 2**64]}}, "by_day['a'][1]", "range of int64"),
        ({"by_day": {1: []}}, "by_day[1]", "a str"),
        ({"either": "x"}, "either", "one of int, Point"),
        ({"at": 3}, "at", "a datetime"),
        ({"data": "x"}, "data", "bytes"),
        ({"price": 1.0}, "price", "a Decimal"),
        ({"pair": (1, 2)}, "pair[1]", "a str"),
        ({"pair": (1,)}, "pair", "a tuple of 2"),
        ({"some": {1, 2}}, "some", "plain data"),
        ({"some": {"a": ["\ud800"]}}, "some", "lone surrogates"),
        ({"tags": ["x"]}, "tags", "a set"),
        ({"tags": {"\ud800"}}, "tags", "lone surrogates"),
        ({"floats": [1.0, "x"]}, "floats[1]", "a float"),
    ],
)
def test_a_value_of_any_record_that_does_not_fit_is_named(changes, path, needed):
    _check_refused(dataclasses.replace(Quote("x"), **changes), path, needed)


def _check_refused(event, path, needed):
    with pytest.raises(NotSerialisable) as caught:
        Writer(type(event), schema_of(type(event)))(event)
    assert caught.value.path.startswith(path)
    assert path in str(caught.value)
    assert needed in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).path == caught.value.path


@pytest.mark.parametrize(
    ("event", "path", "needed"),
    [
        ({"x": 1.0}, "y", "given"),
        ({"x": 1.0, "y": 2.0, "z": 3.0}, "z", "no such field (there are x, y)"),
        ({"x": 1.0, "z": 3.0}, "z", "no such field"),
        ([1.0, 2.0], None, "a mapping"),
        (None, None, "a mapping"),
    ],
)
def test_a_mapping_has_the_fields_of_the_record(event, path, needed):
    with pytest.raises(NotSerialisable) as caught:
        Writer(None, schema_of(Point))(event)
    assert caught.value.path == path
    assert needed in str(caught.value)


def test_an_event_of_another_class_is_refused():
    with pytest.raises(NotSerialisable, match="has to be a Point, and is 3"):
        Writer(Point, schema_of(Point))(3)


@pytest.mark.parametrize("texts", [["abcd", "", ""], ["", "", "é" * 4]])
def test_places_of_fixed_size_are_kept(texts):
    @dataclasses.dataclass
    class Fixed:
        first: Annotated[list[float], np.dtype(("f8", (2,)))]
        second: Annotated[list[float], np.dtype(("f8", (1,)))]
        text: Annotated[str, np.dtype("U3")] = ""

    write = Writer(Fixed, _schema(Fixed))
    assert write(Fixed([1.0, 2.0], [3.0], "ab")) == struct.pack("=3d", 1, 2, 3) + "ab\0".encode("utf-32-le")[
        :12
    ] + bytes(4)
    with pytest.raises(NotSerialisable, match="'first' has to be a list of 2"):
        write(Fixed([1.0], [2.0, 3.0]))
    for text in filter(None, texts):
        with pytest.raises(NotSerialisable, match="'text' has to be a str of at most 3"):
            write(Fixed([1.0, 2.0], [3.0], text))


def _schema(cls):
    double = schema.Float()
    return schema.RecordType(
        (
            schema.Field("first", schema.Array(double, (2,))),
            schema.Field("second", schema.Array(double, (1,))),
            schema.Field("text", schema.Text(3)),
        )
    )


def test_times_have_the_unit_and_zone_of_their_field():
    dtype = np.dtype([("at", "M8[s]"), ("took", "m8[ms]")])
    write = Writer(None, schema_of(dtype))
    array = np.array([("2024-01-02T03:04:05", 1500)], dtype)
    good = {"at": datetime(2024, 1, 2, 3, 4, 5), "took": timedelta(seconds=1.5)}
    assert write(good) == write(array[0]) == array.tobytes()
    for field, value in [
        ("at", datetime(2024, 1, 1, tzinfo=timezone.utc)),
        ("at", datetime(2024, 1, 1, microsecond=1)),
        ("at", np.datetime64(1, "ms")),
        ("at", np.datetime64(2**61, "D")),
        ("took", timedelta(microseconds=1)),
        ("took", np.timedelta64(2**61, "s")),
        ("took", 3),
    ]:
        with pytest.raises(NotSerialisable, match=f"'{field}'"):
            write({**good, field: value})


def test_a_block_is_the_array_itself():
    array = np.arange(6).astype([("a", "<i8")])
    assert np.shares_memory(np.frombuffer(block_of(array), "i8"), array)
    assert bytes(block_of(array[::2])) == array[::2].tobytes()
    assert bytes(block_of(array[1])) == array[1:2].tobytes()
    with pytest.raises(NotSerialisable, match="one dimension"):
        block_of(array.reshape(2, 3))


def test_the_format_of_a_type_is_that_of_its_events():
    assert format_of(Trade) == Writer(Trade, schema_of(Trade)).format
    dtype = np.dtype([("a", ">f4")])
    assert format_of(dtype).layout.fields[0].code == ">f4"


class Limited(pydantic.BaseModel):
    size: Annotated[int, pydantic.Field(gt=0)]
    inner: "list[Limited]" = pydantic.Field([], alias="within")


class LimitedStruct(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(gt=0)]
    name: str = ""

    def __post_init__(self):
        assert self.name != "never made again"


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (Limited.model_construct(size=0), "size"),
        (Limited.model_construct(size="x"), "size"),
        (Limited.model_construct(size=1, inner=[Limited.model_construct(size=0)]), "inner[0].size"),
        (LimitedStruct(0), "size"),
        (LimitedStruct(1, 3), "name"),  # type: ignore[arg-type]
        (dataclasses.replace(TRADE, size=1.5), "size"),  # type: ignore[arg-type]
        (dataclasses.replace(TRADE, where=Point(1.0, "x")), "where.y"),  # type: ignore[arg-type]
    ],
)
def test_validation_names_what_a_class_would_not_accept(event, path):
    with pytest.raises(NotSerialisable) as caught:
        validator_of(type(event))(event)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "event",
    [Limited(size=1, within=[Limited(size=2)]), LimitedStruct(1), TRADE, Quote("x", [TRADE])],  # type: ignore[call-arg]
)
def test_validation_lets_good_events_pass(event):
    validator_of(type(event))(event)
