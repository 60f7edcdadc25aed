"""Declarations of types: plain data, equal for equal types, and a difference has a name."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pickle
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Optional

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest

from echannel_ray.errors import TypeMismatch
from echannel_ray.formats.types import compare, describe, type_text
from tests.formats.shapes import Side

if TYPE_CHECKING:
    from decimal import Decimal


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float
    side: Side
    tags: list[str] | None = None
    at: Annotated[datetime.datetime, "utc"] = datetime.datetime.min
    count: ClassVar[int] = 0


class Base(pydantic.BaseModel):
    name: str


class Model(Base):
    price: float = pydantic.Field(gt=0)
    kind: Literal["a", "b"] = "a"


class Record(msgspec.Struct):
    name: str
    values: dict[str, tuple[int, ...]]


class Outer:
    @dataclasses.dataclass
    class Inner:
        hidden: Decimal


@pytest.mark.parametrize(
    ("event_type", "kind", "name", "fields"),
    [
        (
            Trade,
            "dataclass",
            "Trade",
            {"symbol": "str", "price": "float", "side": "Side", "tags": "list[str] | None", "at": "datetime"},
        ),
        (Model, "pydantic", "Model", {"name": "str", "price": "float", "kind": "Literal['a', 'b']"}),
        (Record, "struct", "Record", {"name": "str", "values": "dict[str, tuple[int, ...]]"}),
        (Outer.Inner, "dataclass", "Outer.Inner", {"hidden": "Decimal"}),
        (
            np.dtype([("t", "<f8"), ("v", ">i4", (3,)), ("p", [("x", "u1")]), ("d", "<M8[ns]")]),
            "numpy",
            "dtype",
            {"t": "<f8", "v": ">i4[3]", "p": "{x: |u1}", "d": "<M8[ns]"},
        ),
        (
            pa.schema([("a", pa.int64()), pa.field("s", pa.list_(pa.string()), nullable=False)]),
            "arrow",
            "Schema",
            {"a": "int64", "s": "list<item: string> not null"},
        ),
    ],
)
def test_declarations(event_type, kind, name, fields):
    declaration = describe(event_type)
    assert declaration is not None
    assert declaration["kind"] == kind
    assert declaration["name"].endswith(f":{name}")
    assert list(declaration["fields"].items()) == list(fields.items())
    assert json.loads(json.dumps(declaration)) == declaration
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(declaration)) == declaration
    compare("c", declaration, describe(event_type))


def test_untyped():
    assert describe(None) is None
    compare("c", None, None)
    compare("c", describe(Trade), None)


@pytest.mark.parametrize(
    "event_type",
    [int, dict, "Trade", Side, Trade("a", 1.0, Side.BUY), np.dtype("f8"), np.dtype([("o", "O")]), [("a", int)]],
)
def test_no_event_type(event_type):
    with pytest.raises(TypeError, match=r"untyped|dataclass"):
        describe(event_type)


def test_a_schema_with_a_name_twice():
    with pytest.raises(TypeError, match="two fields"):
        describe(pa.schema([("a", pa.int8()), ("a", pa.int16())]))


def made(named: str = "Made", **fields: Any) -> dict[str, Any]:
    return declared(dataclasses.make_dataclass(named, fields.items(), namespace={"__module__": __name__}))


def declared(event_type: type) -> dict[str, Any]:
    declaration = describe(event_type)
    assert declaration is not None
    return declaration


@pytest.mark.parametrize(
    ("defined", "asked", "field", "expected", "got"),
    [
        (made(a=int, b=str), made(a=int, b=bytes), "b", "str", "bytes"),
        (made(a=int, b=str), made(a=int), "b", "str", None),
        (made(a=int), made(a=int, c=float), "c", None, "float"),
        (made(a=int, b=int), made(a=str, b=str), "a", "int", "str"),
        (None, made(a=int), None, None, made(a=int)["name"]),
        (describe(Trade), made(symbol=str), "price", "float", None),
        (made(a=int), made(a=int, named="Other"), None, f"{__name__}:Made", f"{__name__}:Other"),
    ],
)
def test_differences_have_names(defined, asked, field, expected, got):
    with pytest.raises(TypeMismatch, match="'prices'") as raised:
        compare("prices", defined, asked)
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.channel, error.field, error.expected, error.got) == ("prices", field, expected, got)
    for part in (field, expected, got):
        assert part is None or part in str(error)


def test_a_field_is_named_before_the_class_or_kind():
    with pytest.raises(TypeMismatch, match="'x' is int, not float") as raised:
        compare("c", made(x=int, named="A"), made(x=float, named="B"))
    assert (raised.value.field, raised.value.expected, raised.value.got) == ("x", "int", "float")
    with pytest.raises(TypeMismatch) as raised:
        compare("c", describe(Trade), describe(Model))
    assert raised.value.field == "symbol"


def test_another_kind_of_type():
    with pytest.raises(TypeMismatch, match=r"dataclass .* not struct") as raised:
        compare("c", made(name=str, values=dict[str, tuple[int, ...]]), describe(Record))
    assert raised.value.field is None


def test_order_and_module_make_no_difference():
    defined, asked = made(a=int, b=str), made(b=str, a=int)
    asked["name"] = "__main__:Made"
    assert defined != asked
    compare("c", defined, asked)
    compare("c", asked, defined)


def test_equal_types_have_equal_texts():
    assert type_text(Optional[int]) == type_text(int | None) == "int | None"  # noqa: UP045
    assert type_text(Annotated[list[Optional[int]], 1]) == "list[int | None]"  # noqa: UP045
    assert type_text(Any) == "Any"
