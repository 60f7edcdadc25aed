"""Which types can stand for which."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray.schemas import schema
from echannel_ray.schemas.extension import lossless
from echannel_ray.schemas.schema import (
    Anything,
    Array,
    Bool,
    Bytes,
    Complex,
    Date,
    Decimal,
    Duration,
    Enum,
    Float,
    Int,
    List,
    Map,
    RecordType,
    Set,
    Text,
    Time,
    Timestamp,
    Tuple,
    Uuid,
)
from tests.schemas.declarations import record

SIDES = Enum((("BUY", "buy"), ("SELL", "sell")))
SMALL = Enum((("ONE", 1), ("TWO", 2)))


FITTING = [
    (Int(32, False), Int()),
    (Int(8), Int(16)),
    (Int(8), Float(16)),
    (Int(16), Float(32)),
    (Int(32), Float()),
    (Int(32, False), Float()),
    (Float(32), Float()),
    (Complex(64), Complex()),
    (Text(3), Text(4)),
    (Text(3), Text()),
    (Bytes(3), Bytes()),
    (Bytes(3, True), Bytes()),
    (Bytes(3, True), Bytes(4, True)),
    (Timestamp("ms", ""), Timestamp("ns", "")),
    (Timestamp("us", ""), Timestamp()),
    (Timestamp("us", "UTC"), Timestamp()),
    (Timestamp("us", "UTC"), Timestamp("ns", "Europe/Berlin")),
    (Date(), Timestamp("D", "")),
    (Timestamp("D", ""), Date()),
    (Time("s"), Time("ns")),
    (Duration("W"), Duration("s")),
    (Decimal(10, 2), Decimal(12, 3)),
    (Decimal(10, 2), Decimal()),
    (Enum((("X", "buy"),)), SIDES),
    (SIDES, Text()),
    (SIDES, Text(4)),
    (SMALL, Int(8, False)),
    (SMALL, Float(16)),
    (Enum((("A", 1), ("B", None))), schema.Optional(Int())),
    (Enum((("A", 0.5),)), Float()),
    (Enum((("A", True),)), Bool()),
    (Int(32), schema.Optional(Int())),
    (schema.Optional(Int(8)), schema.Optional(Int())),
    (schema.Optional(Int(8)), schema.Union((schema.Optional(Int()), Text()))),
    (Int(8), schema.Union((Text(), Int()))),
    (schema.Union((Int(8), Int(16))), Int()),
    (schema.Union((Int(8), Text())), schema.Union((Text(), Int(8), Uuid()))),
    (RecordType(()), Anything()),
    (schema.Optional(Text()), Anything()),
    (Anything(), schema.Optional(Anything())),
    (Array(Int(8), (2, 3)), Array(Int(16), (2, 3))),
    (Array(Int(8), (2, 3)), Array(Array(Int(8), (3,)), (2,))),
    (Array(Int(8), (2, 3)), List(List(Int()))),
    (Tuple((Int(8), Int(16))), List(Int())),
    (Tuple((Int(8), Text(2))), Tuple((Int(), Text()))),
    (List(Int(8)), List(Int())),
    (Set(Int(8)), Set(Int())),
    (Set(Int(8)), List(Int())),
    (Map(Text(2), Int(8)), Map(Text(), Int())),
    (record(a=Int(8), b=Text()), record(a=Int())),
    (record(a=Int(8)), record(b=(Text(),), a=Int())),
]
UNFITTING = [
    (Int(64, False), Int(), "not every uint64 fits int"),
    (Int(8), Int(64, False), "not every int8 fits uint64"),
    (Int(), Int(32), "not every int fits int32"),
    (Int(), Float(), "not every int fits float"),
    (Int(16), Float(16), "not every int16 fits float16"),
    (Float(), Float(32), "not every float fits float32"),
    (Float(), Int(), "float is no int"),
    (Bool(), Int(), "bool is no int"),
    (Int(), Bool(), "int is no bool"),
    (Float(), Complex(), "float is no complex"),
    (Text(), Text(4), "not every str fits str[4]"),
    (Text(), Bytes(), "str is no bytes"),
    (Bytes(3), Bytes(3, True), "not every bytes[3] fits bytes[3, padded]"),
    (Bytes(), Bytes(3, True), "not every bytes fits bytes[3, padded]"),
    (Bytes(3, True), Bytes(3), "not every bytes[3, padded] fits bytes[3]"),
    (Bytes(3), Bytes(4), "not every bytes[3] fits bytes[4]"),
    (Timestamp("ns", ""), Timestamp(), "not every datetime64[ns] fits datetime"),
    (Timestamp(), Timestamp("us", ""), "not every datetime fits datetime64[us]"),
    (Timestamp("us", ""), Timestamp("us", "UTC"), "not every datetime64[us] fits datetime64[us, UTC]"),
    (Timestamp("h", ""), Date(), "not every datetime64[h] fits date"),
    (Time(), Time("ms"), "not every time fits time[ms]"),
    (Duration(), Duration("ms"), "not every timedelta fits timedelta[ms]"),
    (Decimal(), Decimal(10, 2), "not every decimal fits decimal[10, 2]"),
    (Decimal(10, 2), Decimal(10, 3), "not every decimal[10, 2] fits decimal[10, 3]"),
    (Text(), SIDES, "str is no 'buy' | 'sell'"),
    (SIDES, Enum((("BUY", "buy"),)), "not every 'buy' | 'sell' fits 'buy'"),
    (SIDES, Text(3), "not every 'buy' | 'sell' fits str[3]"),
    (SMALL, Text(), "not every 1 | 2 fits str"),
    (SMALL, Enum((("A", True), ("B", 2.0))), "not every 1 | 2 fits True | 2.0"),
    (Enum((("A", "a\0"),)), Text(9), r"not every 'a\x00' fits str[9]"),
    (schema.Optional(Int()), Int(), "not every int | None fits int"),
    (schema.Optional(Int()), schema.Union((Int(), Text())), "not every int | None fits int | str"),
    (schema.Union((Int(), Text())), Int(), "str is no int"),
    (Float(), schema.Union((Int(), Text())), "float is no int | str"),
    (Anything(), Int(), "Any is no int"),
    (Array(Int(), (2,)), Array(Int(), (3,)), "not every int[2] fits int[3]"),
    (List(Int()), Array(Int(), (3,)), "list[int] is no int[3]"),
    (List(Int()), Set(Int()), "list[int] is no set[int]"),
    (List(Text()), List(Int()), "at []: str is no int"),
    (Tuple((Int(), Text())), List(Int()), "at [1]: str is no int"),
    (Tuple((Int(),)), Tuple((Int(), Int())), "not every tuple[int] fits tuple[int, int]"),
    (Map(Text(), Int()), Map(Text(), Text()), "at [value]: int is no str"),
    (Map(Text(), Int()), Map(Int(), Int()), "at [key]: str is no int"),
    (record(a=Int()), record(b=Text()), "the field 'b' (str) is missing"),
    (
        record(a=record(b=List(record(c=Int())))),
        record(a=record(b=List(record(c=Text())))),
        "at a.b[].c: int is no str",
    ),
]


@pytest.mark.parametrize(("source", "target"), FITTING)
def test_every_value_fits(source, target):
    assert lossless(source, target) is None


@pytest.mark.parametrize(("source", "target", "reason"), UNFITTING)
def test_some_value_does_not_fit(source, target, reason):
    assert lossless(source, target) == reason


UNITS = st.sampled_from(["W", "D", "h", "m", "s", "ms", "us", "ns"])
FINE_UNITS = st.sampled_from(["s", "ms", "us", "ns"])
MEMBERS = st.one_of(
    st.booleans(), st.sampled_from([-1, 0, 1, 127, 300, 3000, 2**40]), st.sampled_from([0.5, 1.0, float("nan")]),
    st.sampled_from(["", "a", "buy", "a\0"]), st.none(),
)  # fmt: skip
SCALARS = st.one_of(
    st.just(Bool()),
    st.builds(Int, st.sampled_from([8, 16, 32, 64]), st.booleans()),
    st.builds(Float, st.sampled_from([16, 32, 64])),
    st.builds(Complex, st.sampled_from([64, 128])),
    st.builds(Text, st.none() | st.integers(1, 4)),
    st.just(Bytes()) | st.builds(Bytes, st.integers(1, 3), st.booleans()),
    st.builds(Timestamp, UNITS, st.sampled_from([None, "", "UTC", "Europe/Berlin"])),
    st.just(Date()),
    st.builds(Time, FINE_UNITS),
    st.builds(Duration, UNITS),
    st.just(Decimal()) | st.builds(Decimal, st.integers(4, 8), st.integers(0, 4)),
    st.just(Uuid()),
    st.just(Anything()),
    st.lists(MEMBERS, min_size=1, max_size=3).map(lambda values: Enum(tuple((repr(each), each) for each in values))),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    fields = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.one_of(
        st.builds(Array, inner, st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple)),
        st.builds(List, inner),
        st.builds(Set, inner),
        st.builds(Tuple, several),
        st.builds(Map, inner, inner),
        st.builds(schema.Optional, inner),
        st.builds(schema.Union, several),
        fields.map(lambda types: record(**types)),
    )


TYPES = st.recursive(SCALARS, containers, max_leaves=4)


@given(TYPES)
def test_lossless_is_reflexive(type_):
    assert lossless(type_, type_) is None
    assert lossless(type_, schema.Optional(type_)) is None
    assert lossless(type_, schema.Union((Uuid(), type_))) is None
    assert lossless(type_, Anything()) is None


@st.composite
def widened(draw: st.DrawFn, type_: Any) -> Any:
    """A type that this one mostly fits: random types hardly ever do."""
    kind = draw(st.sampled_from(["same", "optional", "union", "inside", "other"]))
    match type_:
        case _ if kind == "same":
            return type_
        case _ if kind == "optional":
            return schema.Optional(type_)
        case _ if kind == "union":
            return schema.Union((draw(SCALARS), type_))
        case Int():
            return draw(st.builds(Int, st.sampled_from([16, 32, 64])) | st.builds(Float, st.sampled_from([16, 32, 64])))
        case Array():
            return List(Array(type_.item, type_.shape[1:]) if type_.shape[1:] else type_.item)
        case Tuple():
            return List(draw(widened(type_.items[0])))
        case List() | schema.Optional():
            return type(type_)(draw(widened(type_.item)))
        case Set():
            return draw(st.sampled_from([List, Set]))(draw(widened(type_.item)))
        case Enum():
            return draw(st.sampled_from([Text(), Int(8), Float(16), Int(), Enum((*type_.members, ("more", "more")))]))
        case RecordType():
            return record(**{field.name: draw(widened(field.type)) for field in type_.fields[:2]})
    return draw(SCALARS)


@settings(max_examples=400)
@given(st.data())
def test_lossless_is_transitive(data):
    first = data.draw(TYPES)
    second = data.draw(widened(first) | TYPES)
    third = data.draw(widened(second) | TYPES)
    if lossless(first, second) is None and lossless(second, third) is None:
        assert lossless(first, third) is None


@given(TYPES, TYPES)
def test_reasons_are_for_people(source, target):
    reason = lossless(source, target)
    assert reason is None or any(part in reason for part in (" is no ", " fits ", " is missing"))
