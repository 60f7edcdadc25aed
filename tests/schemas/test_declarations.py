"""Schemas of declared types: each kind of declaration, each annotation, and what has no schema."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Dict, Final, List, Literal, Optional, Union  # noqa: UP035

import msgspec
import numpy as np
import numpy.typing as npt
import pydantic
import pytest

from echannel_ray.formats import plain
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of
from echannel_ray.schemas.type_texts import type_text
from tests.formats.shapes import Level, Side
from tests.schemas import declarations
from tests.schemas.declarations import EQUIVALENT, SAME, UNFIT, holding

ANYTHING = schema.Anything()


@pytest.mark.parametrize("source", SAME)
def test_equal_declarations_have_equal_schemas(source):
    expected = schema.RecordType(
        (
            schema.Field("is_open", schema.Bool()),
            schema.Field("count", schema.Int()),
            schema.Field("price", schema.Float()),
            schema.Field("size", schema.Int(32)),
            schema.Field("name", schema.Text(4)),
            schema.Field(
                "at",
                schema.RecordType((schema.Field("x", schema.Float()), schema.Field("y", schema.Float(32)))),
            ),
            schema.Field("values", schema.Array(schema.Float(), (3,))),
        )
    )
    record = schema_of(SAME[source])
    assert record == expected
    assert schema.as_bytes(record) == schema.as_bytes(expected)
    assert schema.record_from(schema.as_bytes(record)) == record
    assert schema.Format(record, schema.MSGPACK).token == schema.Format(expected, schema.MSGPACK).token


def test_arrow_has_texts_without_a_limit():
    record = schema_of(declarations.ARROW)
    assert record.field("name").type == schema.Text()
    assert [field for field in record.fields if field.name != "name"] == [
        field for field in schema_of(declarations.Data).fields if field.name != "name"
    ]


@pytest.mark.parametrize("source", EQUIVALENT)
def test_order_is_as_declared(source):
    event_type = EQUIVALENT[source]
    names = getattr(event_type, "names", None) or tuple(event_type.__annotations__)
    assert schema_of(event_type).names == tuple(names)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, schema.Bool()),
        (int, schema.Int()),
        (float, schema.Float()),
        (complex, schema.Complex()),
        (str, schema.Text()),
        (bytes, schema.Bytes()),
        (bytearray, schema.Bytes()),
        (None, schema.Enum((("None", None),))),
        (datetime.datetime, schema.Timestamp()),
        (datetime.date, schema.Date()),
        (datetime.time, schema.Time()),
        (datetime.timedelta, schema.Duration()),
        (decimal.Decimal, schema.Decimal()),
        (uuid.UUID, schema.Uuid()),
        (Any, ANYTHING),
        (object, ANYTHING),
        (Side, schema.Enum((("BUY", "buy"), ("SELL", "sell")))),
        (Level, schema.Enum((("LOW", 1), ("HIGH", 2)))),
        (
            declarations.Mixed,
            schema.Enum((("TEXT", "text"), ("NUMBER", 2), ("HALF", 0.5), ("NOTHING", None))),
        ),
        (Literal["a", 2], schema.Enum((("'a'", "a"), ("2", 2)))),
        (Literal["a", None], schema.Optional(schema.Enum((("'a'", "a"),)))),
        (Literal[Side.BUY], schema.Enum((("BUY", "buy"),))),
        (list[int], schema.List(schema.Int())),
        (List[int], schema.List(schema.Int())),  # noqa: UP006
        (Sequence[int], schema.List(schema.Int())),
        (Iterable[int], schema.List(schema.Int())),
        (collections.deque[int], schema.List(schema.Int())),
        (tuple[int, ...], schema.List(schema.Int())),
        (tuple[int, str], schema.Tuple((schema.Int(), schema.Text()))),
        (tuple[()], schema.Tuple(())),
        (set[int], schema.Set(schema.Int())),
        (frozenset[int], schema.Set(schema.Int())),
        (dict[str, float], schema.Map(schema.Text(), schema.Float())),
        (Mapping[str, float], schema.Map(schema.Text(), schema.Float())),
        (list, schema.List(ANYTHING)),
        (tuple, schema.List(ANYTHING)),
        (set, schema.Set(ANYTHING)),
        (dict, schema.Map(ANYTHING, ANYTHING)),
        (Dict, schema.Map(ANYTHING, ANYTHING)),  # noqa: UP006
        (Optional[int], schema.Optional(schema.Int())),  # noqa: UP045
        (int | None, schema.Optional(schema.Int())),
        (Union[int, str, None], schema.Optional(schema.Union((schema.Int(), schema.Text())))),  # noqa: UP007
        (int | declarations.Kelvin | float, schema.Union((schema.Int(), schema.Float()))),
        (int | Any, ANYTHING),
        (Optional[Literal[None]], schema.Enum((("None", None),))),  # noqa: UP045
        (declarations.Kelvin, schema.Float()),
        (declarations.Celsius, schema.Float()),
        (Final[int], schema.Int()),
        (Annotated[int, "any metadata"], schema.Int()),
        (pydantic.PositiveInt, schema.Int()),
        (pydantic.AwareDatetime, schema.Timestamp()),
        (pydantic.PastDate, schema.Date()),
        (np.float32, schema.Float(32)),
        (np.uint16, schema.Int(16, False)),
        (np.bool_, schema.Bool()),
        (np.complex64, schema.Complex(64)),
        (npt.NDArray[np.int8], schema.List(schema.Int(8))),
        (npt.NDArray[Any], schema.List(ANYTHING)),
        (Annotated[float, np.float16], schema.Float(16)),
        (Annotated[float | None, np.float16], schema.Optional(schema.Float(16))),
        (Annotated[bytes, np.dtype("S8")], schema.Bytes(8, True)),
        (Annotated[datetime.datetime, np.dtype("M8[ns]")], schema.Timestamp("ns", "")),
        (Annotated[np.ndarray, np.dtype(("f4", (2, 3)))], schema.Array(schema.Float(32), (2, 3))),
        (
            declarations.Pair,
            schema.RecordType(
                (
                    schema.Field("first", schema.Int()),
                    schema.Field("second", schema.Text(), plain.encode(""), True),
                )
            ),
        ),
        (declarations.Bare, schema.RecordType((schema.Field("one", ANYTHING),))),
        (declarations.Options, schema.RecordType((schema.Field("depth", schema.Int()),))),
        (declarations.PointModel, schema_of(declarations.PointData)),
        (list[declarations.PointStruct], schema.List(schema_of(declarations.PointData))),
    ],
)
def test_annotations(annotation, expected):
    (field,) = schema_of(holding(annotation)).fields
    assert field.type == expected
    assert schema.record_from(schema.as_bytes(schema_of(holding(annotation)))).fields == (field,)


@dataclasses.dataclass
class Base:
    first: int
    shared: ClassVar[int] = 0


@dataclasses.dataclass
class Derived(Base):
    given: dataclasses.InitVar[int]
    made: float = dataclasses.field(init=False)
    label: str = "none"


class Aliased(pydantic.BaseModel):
    price: float = pydantic.Field(alias="p", gt=0)
    limited: Annotated[list[int], pydantic.Field(max_length=3)] = []
    _private: int = 0
    shared: ClassVar[int] = 0

    @pydantic.computed_field
    def double(self) -> float:
        return 2 * self.price


class Renamed(msgspec.Struct, rename="camel"):
    long_name: int
    shared: ClassVar[int] = 0


@pydantic.dataclasses.dataclass
class Validated:
    price: float
    size: int = pydantic.Field(default=3, gt=0)


def test_fields_are_what_is_sent():
    assert schema_of(Derived).names == ("first", "made", "label")
    assert schema_of(Aliased).names == ("price", "limited")
    assert schema_of(Renamed).names == ("long_name",)
    assert schema_of(Validated).field("size").default == plain.encode(3)
    assert not schema_of(Validated).field("price").is_optional


@dataclasses.dataclass(frozen=True)
class Corner:
    x: float
    y: float


class Opaque:
    pass


@dataclasses.dataclass
class WithDefaults:
    number: int = 3
    side: Side = Side.SELL
    sides: list[Side] = dataclasses.field(default_factory=lambda: [Side.BUY])
    empty: dict[str, int] = dataclasses.field(default_factory=dict)
    nothing: int | None = None
    at: Corner = Corner(1.0, 2.0)
    pair: declarations.Pair = declarations.Pair(1)  # noqa: RUF009
    number_id: uuid.UUID = uuid.UUID(int=1)  # noqa: RUF009
    any_id: uuid.UUID = dataclasses.field(default_factory=uuid.uuid4)
    narrow: np.float32 = np.float32(0.5)  # noqa: RUF009
    some: frozenset[int] = frozenset({1})
    strange: Any = Opaque()  # noqa: RUF009


class ModelDefaults(pydantic.BaseModel):
    number: int = 3
    side: Side = Side.SELL
    empty: list[int] = pydantic.Field(default_factory=list)
    made: list[int] = pydantic.Field(default_factory=lambda: [1])
    needed: int


class StructDefaults(msgspec.Struct, kw_only=True):
    number: int = 3
    needed: int
    empty: list[int] = []
    made: uuid.UUID = msgspec.field(default_factory=uuid.uuid4)


@pytest.mark.parametrize(
    ("event_type", "written", "unwritten"),
    [
        (
            WithDefaults,
            {
                "number": 3,
                "side": "sell",
                "empty": {},
                "nothing": None,
                "at": {"x": 1.0, "y": 2.0},
                "pair": {"first": 1, "second": ""},
                "number_id": str(uuid.UUID(int=1)),
                "narrow": 0.5,
                "some": frozenset({1}),
            },
            {"sides", "any_id", "strange"},
        ),
        (ModelDefaults, {"number": 3, "side": "sell", "empty": []}, {"made"}),
        (StructDefaults, {"number": 3, "empty": []}, {"made"}),
        (declarations.DTYPE, {}, set()),
        (declarations.ARROW, {}, set()),
    ],
)
def test_defaults(event_type, written, unwritten):
    fields = schema_of(event_type).fields
    assert {field.name: plain.decode(field.default) for field in fields if field.default is not None} == written
    assert {field.name for field in fields if field.is_optional} == {*written, *unwritten}


def test_factories_that_may_have_effects_are_not_called():
    calls: list[None] = []
    field = dataclasses.field(default_factory=lambda: calls.append(None))
    event_type = dataclasses.make_dataclass("Made", [("a", int, field)])
    assert schema_of(event_type).field("a") == schema.Field("a", schema.Int(), None, True)
    assert calls == []


@pytest.mark.parametrize("what", UNFIT)
def test_what_has_no_schema_is_named(what):
    event_type, field = UNFIT[what]
    with pytest.raises(TypeError, match=rf"(?s)'{field}'.*([Uu]se |Import |Say |Declare |Fields are |make |give )"):
        schema_of(event_type)


def test_the_class_is_named_that_has_the_field():
    with pytest.raises(TypeError, match=r"'content' of Holder .* socket\.socket\. Fields are .* dataclasses"):
        schema_of(UNFIT["a socket"][0])
    with pytest.raises(TypeError, match="'hidden' of Hidden can't be read: name 'Fraction'"):
        schema_of(declarations.Deep)


@pytest.mark.parametrize(
    "event_type",
    [
        int,
        dict,
        "Trade",
        Side,
        declarations.PointData(1.0, 2.0),
        declarations.Pair,
        declarations.Options,
        declarations.Root,
        np.dtype("f8"),
        np.dtype([]),
        np.float64,
        [("a", int)],
    ],
)
def test_no_event_type(event_type):
    with pytest.raises(TypeError, match="untyped"):
        schema_of(event_type)


def test_a_default_that_contains_itself():
    endless: list[Any] = []
    endless.append(endless)
    event_type = dataclasses.make_dataclass("Made", [("a", Any, dataclasses.field(default=tuple(endless)))])
    assert schema_of(event_type).field("a") == schema.Field("a", ANYTHING, None, True)


def test_aliases_of_enum_members_count_once():
    class Aliases(enum.Enum):
        ONE = 1
        FIRST = 1  # noqa: PIE796

    assert type_text(schema_of(holding(Aliases)).field("content").type) == "1"


def test_other_libraries_are_not_imported():
    program = (
        "import sys, dataclasses\n"
        "from echannel_ray.schemas import types\n"
        "types.describe(dataclasses.make_dataclass('A', [('a', 'list[int]')]))\n"
        "print([name for name in ('numpy', 'pyarrow', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
