"""Declarations of types as managers have them: plain data, compared and extended without the classes."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest

from echannel_ray.errors import TypeMismatch
from echannel_ray.schemas import schema, types
from echannel_ray.schemas.schema import Anything, Array, Bytes, Decimal, Enum, Float, Int, List, Set, Text, Timestamp
from echannel_ray.schemas.type_texts import type_text
from tests.formats.shapes import Side
from tests.schemas.declarations import EQUIVALENT, SAME, Custom, PointData


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float
    side: Side
    tags: list[str] | None = None


class Model(pydantic.BaseModel):
    name: str
    price: float = pydantic.Field(gt=0)


class Record(msgspec.Struct):
    name: str
    values: dict[str, tuple[int, ...]]


class Outer:
    @dataclasses.dataclass
    class Inner:
        point: PointData


@pytest.mark.parametrize(
    ("event_type", "kind", "name", "fields"),
    [
        (
            Trade,
            "dataclass",
            f"{__name__}:Trade",
            {"symbol": "str", "price": "float", "side": "'buy' | 'sell'", "tags": "list[str] | None"},
        ),
        (Model, "pydantic", f"{__name__}:Model", {"name": "str", "price": "float"}),
        (Record, "struct", f"{__name__}:Record", {"name": "str", "values": "dict[str, list[int]]"}),
        (Outer.Inner, "dataclass", f"{__name__}:Outer.Inner", {"point": "{x: float, y: float32}"}),
        (
            np.dtype([("t", "<f8"), ("v", ">i4", (3,)), ("p", [("x", "u1")]), ("d", "<M8[ns]")]),
            "numpy",
            "numpy:dtype",
            {"t": "float", "v": "int32[3]", "p": "{x: uint8}", "d": "datetime64[ns]"},
        ),
        (
            pa.schema([("a", pa.int64()), pa.field("s", pa.list_(pa.string()), nullable=False)]),
            "arrow",
            "pyarrow:Schema",
            {"a": "int", "s": "list[str]"},
        ),
    ],
)
def test_declarations(event_type, kind, name, fields):
    declaration = types.describe(event_type)
    assert declaration is not None
    assert (declaration["kind"], declaration["name"]) == (kind, name)
    assert list(declaration["fields"].items()) == list(fields.items())
    assert schema.record_from(declaration["schema"]) == types.schema_of(event_type) == types.record_of(declaration)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(declaration)) == declaration
    types.compare("c", declaration, types.describe(event_type))
    assert types.opened("c", declaration, types.describe(event_type)) == declaration


@pytest.mark.parametrize("source", SAME)
def test_equal_types_are_described_equally(source):
    first, second = declared(SAME["dataclass"]), declared(SAME[source])
    assert (first["fields"], first["schema"]) == (second["fields"], second["schema"])


@pytest.mark.parametrize("first", EQUIVALENT)
@pytest.mark.parametrize("second", EQUIVALENT)
def test_equivalent_types_go_together(first, second):
    declaration = declared(EQUIVALENT[first])
    types.compare("c", declaration, declared(EQUIVALENT[second]))
    types.check_producer("c", declaration, EQUIVALENT[second])
    types.check_consumer("c", declaration, EQUIVALENT[second])
    assert types.opened("c", declaration, declared(EQUIVALENT[second])) == declaration


def test_untyped():
    assert types.describe(None) is None
    types.compare("c", None, None)
    types.compare("c", declared(Trade), None)
    assert types.opened("c", None, None) is None
    assert types.opened("c", declared(Trade), None) == declared(Trade)
    assert types.record_of(None) == schema.RecordType(())


@pytest.mark.parametrize(
    "check",
    [
        lambda: types.compare("c", None, declared(Trade)),
        lambda: types.opened("c", None, declared(Trade)),
        lambda: types.check_producer("c", None, Trade),
        lambda: types.check_consumer("c", None, Trade),
    ],
)
def test_an_untyped_channel_has_no_type(check):
    with pytest.raises(TypeMismatch, match=r"'c' is untyped, .* delete it and create it with one") as raised:
        check()
    assert (raised.value.field, raised.value.expected, raised.value.got) == (None, None, f"{__name__}:Trade")


def made(**fields: Any) -> type:
    return dataclasses.make_dataclass("Made", fields.items(), namespace={"__module__": __name__})


def declared(event_type: Any) -> dict[str, Any]:
    declaration = types.describe(event_type)
    assert declaration is not None
    return declaration


@pytest.mark.parametrize(
    ("defined", "asked", "field", "expected", "got"),
    [
        (made(a=int, b=str), made(a=int, b=bytes), "b", "str", "bytes"),
        (made(a=int, b=int), made(a=str, b=str), "a", "int", "str"),
        (made(a=int, b=str), made(a=int, c=str), "b", "str", None),
        (made(a=int), made(a=float), "a", "int", "float"),
        (made(a=int), np.dtype([("a", "S4")]), "a", "int", "bytes[4, padded]"),
        (made(a=Side), made(a=float), "a", "'buy' | 'sell'", "float"),
        (Trade, Record, "symbol", "str", None),
    ],
)
def test_differences_have_names(defined, asked, field, expected, got):
    with pytest.raises(TypeMismatch, match="'prices'") as raised:
        types.compare("prices", declared(defined), declared(asked))
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.channel, error.field, error.expected, error.got) == ("prices", field, expected, got)
    for part in (field, expected, got):
        assert part is None or part in str(error)


def test_order_and_names_of_classes_make_no_difference():
    defined, asked = declared(made(a=int, b=str)), declared(made(b=str, a=int))
    asked["name"] = "__main__:Other"
    types.compare("c", defined, asked)
    types.compare("c", asked, defined)


def test_producers_extend_channels():
    plain, venue = made(price=float), made(price=float, venue=str)
    extended = types.opened("c", declared(plain), declared(venue))
    assert extended is not None
    assert extended["name"] == declared(plain)["name"]
    assert extended["schema"] == declared(plain)["schema"]
    assert extended["fields"] == {"price": "float", "venue": "str"}
    assert types.record_of(extended).names == ("price", "venue")
    assert types.record_of(extended).field("venue").is_optional
    assert types.opened("c", extended, declared(plain)) == extended
    types.check_producer("c", extended, plain)
    with pytest.raises(TypeMismatch, match="not all its records have a field 'venue'"):
        types.check_consumer("c", extended, venue)
    for check in (types.check_producer, types.check_consumer):
        with pytest.raises(TypeMismatch, match="'venue' is str, not int"):
            check("c", extended, made(price=float, venue=int))
    with pytest.raises(TypeMismatch, match="'venue' is str, not int"):
        types.opened("c", extended, declared(made(price=float, venue=int)))


def test_consumers_extend_channels_too():
    defined = declared(made(price=float, size=int))
    optional = dataclasses.make_dataclass("Made", [("price", float), ("venue", str, "")])
    extended = types.opened("c", defined, declared(optional))
    assert types.record_of(extended).names == ("price", "size", "venue")
    with pytest.raises(TypeMismatch, match="'venue' is str, not int"):
        types.opened("c", extended, declared(made(price=float, size=int, venue=int)))


def test_no_event_type():
    with pytest.raises(TypeError, match=r"the class Custom can't be an event type: .* untyped"):
        types.describe(Custom)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (schema.Bool(), "bool"),
        (Int(), "int"),
        (Int(64, False), "uint64"),
        (Int(32), "int32"),
        (Float(), "float"),
        (Float(32), "float32"),
        (schema.Complex(), "complex"),
        (schema.Complex(64), "complex64"),
        (Text(), "str"),
        (Text(4), "str[4]"),
        (Bytes(), "bytes"),
        (Bytes(8), "bytes[8]"),
        (Bytes(8, True), "bytes[8, padded]"),
        (Timestamp(), "datetime"),
        (Timestamp("ns"), "datetime[ns]"),
        (Timestamp("ns", ""), "datetime64[ns]"),
        (Timestamp("s", "UTC"), "datetime64[s, UTC]"),
        (schema.Date(), "date"),
        (schema.Time(), "time"),
        (schema.Time("ns"), "time[ns]"),
        (schema.Duration(), "timedelta"),
        (schema.Duration("D"), "timedelta[D]"),
        (Decimal(), "decimal"),
        (Decimal(10, 2), "decimal[10, 2]"),
        (schema.Uuid(), "uuid"),
        (Enum((("A", "a"), ("B", 2), ("C", None))), "'a' | 2 | None"),
        (Array(Float(), (37, 253)), "float[37, 253]"),
        (Array(Enum((("A", 1), ("B", 2))), (3,)), "(1 | 2)[3]"),
        (List(Float()), "list[float]"),
        (Set(Text()), "set[str]"),
        (schema.Tuple((Int(), Text())), "tuple[int, str]"),
        (schema.Tuple(()), "tuple[()]"),
        (schema.Map(Text(), Int(8)), "dict[str, int8]"),
        (schema.Optional(Int()), "int | None"),
        (schema.Union((Int(), Text())), "int | str"),
        (Anything(), "Any"),
        (schema.RecordType((schema.Field("x", Float()), schema.Field("y", List(Int())))), "{x: float, y: list[int]}"),
    ],
)
def test_texts(type_, text):
    assert type_text(type_) == text


def test_annotations_of_equal_types_have_equal_texts():
    assert declared(made(a=Annotated[list[int | None], 1]))["fields"] == {"a": "list[int | None]"}
