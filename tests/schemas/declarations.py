"""The same records declared in each of the five ways, and classes that have no schema."""

from __future__ import annotations

import collections
import dataclasses
import enum
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
from typing_extensions import NotRequired, TypeAliasType

from echannel_ray.schemas import schema
from tests.formats.shapes import Access

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")
Kelvin = NewType("Kelvin", float)
Celsius = TypeAliasType("Celsius", float)
Tree = TypeAliasType("Tree", "list[Tree]")
Narrow = Annotated[int, np.int32]
Three = Annotated[list[float], np.dtype(("f8", (3,)))]
Short = Annotated[str, np.dtype("U4")]


@dataclasses.dataclass
class PointData:
    x: float
    y: Annotated[float, np.float32]


class PointModel(pydantic.BaseModel):
    x: float
    y: Annotated[float, np.float32]


class PointStruct(msgspec.Struct):
    x: float
    y: Annotated[float, np.float32]


@dataclasses.dataclass
class Data:
    is_open: bool
    count: int
    price: float
    size: np.int32
    name: Short
    at: PointData
    values: Three


class Model(pydantic.BaseModel):
    is_open: bool
    count: int
    price: float
    size: Narrow
    name: Short
    at: PointModel
    values: Three


class Struct(msgspec.Struct):
    is_open: bool
    count: int
    price: float
    size: Narrow
    name: Short
    at: PointStruct
    values: Three


DTYPE = np.dtype(
    [
        ("is_open", "?"),
        ("count", "<i8"),
        ("price", ">f8"),
        ("size", "<i4"),
        ("name", "U4"),
        ("at", [("x", "f8"), ("y", "f4")]),
        ("values", "f8", (3,)),
    ],
    align=True,
)
ARROW = pa.schema(
    [
        ("is_open", pa.bool_()),
        ("count", pa.int64()),
        ("price", pa.float64()),
        ("size", pa.int32()),
        pa.field("name", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float32())])),
        ("values", pa.list_(pa.float64(), 3)),
    ]
)
# Arrow has no texts of limited size.
SAME = {"dataclass": Data, "pydantic": Model, "struct": Struct, "numpy": DTYPE}


@dataclasses.dataclass
class PlainData:
    is_open: bool
    count: int
    price: float
    at: PointData


class PlainModel(pydantic.BaseModel):
    at: PointModel
    is_open: bool
    price: float
    count: int


class PlainStruct(msgspec.Struct):
    count: int
    is_open: bool
    at: PointStruct
    price: float


PLAIN_DTYPE = np.dtype([("price", "f8"), ("count", ">i8"), ("is_open", "?"), ("at", [("y", "f4"), ("x", "f8")])])
PLAIN_ARROW = pa.schema(
    [
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float32())])),
        ("count", pa.int64()),
        ("is_open", pa.bool_()),
        ("price", pa.float64()),
    ]
)
EQUIVALENT = {
    "dataclass": PlainData,
    "pydantic": PlainModel,
    "struct": PlainStruct,
    "numpy": PLAIN_DTYPE,
    "arrow": PLAIN_ARROW,
}


class Pair(NamedTuple):
    first: int
    second: str = ""


Bare = collections.namedtuple("Bare", ["one"])


class Options(TypedDict):
    depth: int


class PartialOptions(TypedDict):
    depth: int
    width: NotRequired[int]


class Partial(TypedDict, total=False):
    depth: int


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 2
    HALF = 0.5
    NOTHING = None


class Pairs(enum.Enum):
    ONE = (1, 2)


class Empty(enum.Enum):
    pass


class Huge(enum.Enum):
    MANY = 2**70


class Custom:
    pass


class Root(pydantic.RootModel[list[int]]):
    pass


@dataclasses.dataclass
class Node:
    value: int
    next: Node | None = None


class ModelNode(pydantic.BaseModel):
    children: list[ModelNode] = []


@dataclasses.dataclass
class Around:
    inner: Back


@dataclasses.dataclass
class Back:
    outer: list[Around]


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Hidden:
    fine: int
    hidden: Fraction


class Incomplete(pydantic.BaseModel):
    fine: int
    hidden: Fraction


@dataclasses.dataclass
class Deep:
    hidden_in: Hidden


def record(**types: Any) -> schema.RecordType:
    """The schema with fields of these types; one whose type is in a tuple is optional."""
    return schema.RecordType(
        tuple(
            schema.Field(name, each[0], None, True) if isinstance(each, tuple) else schema.Field(name, each)
            for name, each in types.items()
        )
    )


def holding(annotation: Any) -> type:
    """A dataclass with a field `content`."""
    namespace = {"__module__": __name__}
    return dataclasses.make_dataclass("Holder", [("content", annotation)], namespace=namespace)


UNFIT = {
    "a socket": (holding(socket.socket), "content"),
    "in a list": (holding(list[Custom]), "content"),
    "in a dict": (holding(dict[str, Custom]), "content"),
    "in a union": (holding(int | Custom), "content"),
    "a function": (holding(Callable[[int], int]), "content"),
    "a complex annotation": (holding(type[int]), "content"),
    "text of a class of its own": (holding(type("Name", (str,), {})), "content"),
    "a flag": (holding(Access), "content"),
    "an enum of tuples": (holding(Pairs), "content"),
    "an enum of nothing": (holding(Empty), "content"),
    "an enum of huge numbers": (holding(Huge), "content"),
    "a literal of bytes": (holding(Literal[b"a"]), "content"),
    "an array of anything": (holding(np.ndarray), "content"),
    "stored as objects": (holding(Annotated[str, np.dtype("O")]), "content"),
    "stored as another kind": (holding(Annotated[str, np.float32]), "content"),
    "a time without a unit": (holding(np.datetime64), "content"),
    "a type variable": (Box, "content"),
    "a generic": (holding(Box[int]), "content"),
    "no class at all": (holding(3), "content"),
    "a model of one value": (holding(Root), "content"),
    "keys that may be missing": (holding(PartialOptions), "width"),
    "keys that may all be missing": (holding(Partial), "depth"),
    "in itself": (Node, "next"),
    "a model in itself": (ModelNode, "children"),
    "in itself, around a corner": (Around, "outer"),
    "an alias in itself": (holding(Tree), "content"),
    "a name for type checkers": (Hidden, "hidden"),
    "such a name inside": (Deep, "hidden"),
    "such a name of a model": (Incomplete, "hidden"),
    "an object": (np.dtype([("a", "i4"), ("content", "O")]), "content"),
    "an object inside": (np.dtype([("a", [("content", "O")])]), "content"),
    "no unit": (np.dtype([("content", "M8")]), "content"),
    "a unit of months": (np.dtype([("content", "m8[M]")]), "content"),
    "25 seconds": (np.dtype([("content", "M8[25s]")]), "content"),
    "a long double": (np.dtype([("content", "longdouble")]), "content"),
    "a long complex": (np.dtype([("content", "clongdouble")]), "content"),
    "an Arrow interval": (pa.schema([("content", pa.month_day_nano_interval())]), "content"),
    "an Arrow union": (pa.schema([("content", pa.struct([("x", pa.dense_union([pa.field("x", pa.int8())]))]))]), "x"),
    "an extension of Arrow's": (pa.schema([("content", pa.bool8())]), "content"),
    "optional, but not nullable": (
        pa.schema([pa.field("content", pa.int8(), nullable=False, metadata={"optional": "true"})]),
        "content",
    ),
    "a name twice": (pa.schema([("content", pa.int8()), ("content", pa.int16())]), "content"),
}
