"""What the records of a typed channel are made of: one tree of plain data for all ways to declare a type.

A *schema* (`RecordType`) says what the fields are, and is equal for equal types however they were declared. A *format*
says in which of three forms records of a schema travel, and where their fields lie. Its *token* is 8 bytes; packs carry
it, and whoever does not know it asks for the format once.

Names of records are no part of either: fields match by name, and what the class is called is nobody's business.
"""

from __future__ import annotations

import functools
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

LAYOUT: Final = "layout"  # the bytes of a NumPy structured array, as the sender has them
MSGPACK: Final = "msgpack"  # an array of the fields' values, in the schema's order
ARROW: Final = "arrow"  # record batches, as Arrow's IPC writes them; whole columns, never single records


class _Node(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """A kind of value."""


class Bool(_Node, frozen=True, tag="bool"):
    """True or False."""


class Int(_Node, frozen=True, tag="int"):
    """A whole number of so many bits; Python's `int` has 64."""

    bits: Literal[8, 16, 32, 64] = 64
    signed: bool = True


class Float(_Node, frozen=True, tag="float"):
    """A floating point number of so many bits; Python's `float` has 64."""

    bits: Literal[16, 32, 64] = 64


class Complex(_Node, frozen=True, tag="complex"):
    """Two floating point numbers, of so many bits together."""

    bits: Literal[64, 128] = 128


class Text(_Node, frozen=True, tag="str"):
    """Unicode; of at most so many characters where it has a place of fixed size (NumPy's `U`)."""

    chars: int | None = None


class Bytes(_Node, frozen=True, tag="bytes"):
    """Bytes; so many where their place has a fixed size. `padded`: NUL bytes at the end don't count (NumPy's `S`)."""

    size: int | None = None
    padded: bool = False


class Timestamp(_Node, frozen=True, tag="datetime"):
    """A date with a time. `zone` is None where each value says whether it has one (Python), "" for none."""

    unit: Literal["W", "D", "h", "m", "s", "ms", "us", "ns"] = "us"
    zone: str | None = None


class Date(_Node, frozen=True, tag="date"):
    """A day."""


class Time(_Node, frozen=True, tag="time"):
    """A time of day."""

    unit: Literal["s", "ms", "us", "ns"] = "us"


class Duration(_Node, frozen=True, tag="duration"):
    """A span of time."""

    unit: Literal["W", "D", "h", "m", "s", "ms", "us", "ns"] = "us"


class Decimal(_Node, frozen=True, tag="decimal"):
    """A decimal number; without limits unless they are declared."""

    precision: int | None = None
    scale: int | None = None


class Uuid(_Node, frozen=True, tag="uuid"):
    """A UUID."""


class Enum(_Node, frozen=True, tag="enum"):
    """One of these members, each a name and a value; values travel. A `Literal` has its values' `repr` as names."""

    members: tuple[tuple[str, bool | int | float | str | None], ...]


class Array(_Node, frozen=True, tag="array"):
    """So many items, in one or more dimensions."""

    item: Type
    shape: tuple[int, ...]


class List(_Node, frozen=True, tag="list"):
    """Any number of items."""

    item: Type


class Set(_Node, frozen=True, tag="set"):
    """Any number of items, each once, in no order."""

    item: Type


class Tuple(_Node, frozen=True, tag="tuple"):
    """One item of each of these types."""

    items: tuple[Type, ...]


class Map(_Node, frozen=True, tag="map"):
    """Values by keys."""

    key: Type
    value: Type


class Optional(_Node, frozen=True, tag="optional"):
    """An item, or None."""

    item: Type


class Union(_Node, frozen=True, tag="union"):
    """An item of one of these types."""

    items: tuple[Type, ...]


class Anything(_Node, frozen=True, tag="any"):
    """Plain data: None, numbers, text, bytes, and lists and dicts of such."""


class Field(msgspec.Struct, frozen=True, array_like=True):
    """One field of a record. `default` is its default as `plain.encode` writes it; None where it has none that can be
    written down. `is_optional`: it may be left out, since it has a default, of whatever kind.
    """

    name: str
    type: Type
    default: bytes | None = None
    is_optional: bool = False


class RecordType(_Node, frozen=True, tag="record"):
    """Fields with names, in order."""

    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """The field of this name."""
        return _by_name(self).get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its fields."""
        return tuple(field.name for field in self.fields)


Type = (
    Bool | Int | Float | Complex | Text | Bytes | Timestamp | Date | Time | Duration | Decimal | Uuid | Enum | Array
    | List | Set | Tuple | Map | Optional | Union | Anything | RecordType
)  # fmt: skip


def row_of(type_: List | Array | Set) -> Type:
    """What there is along the first dimension."""
    if isinstance(type_, Array) and len(type_.shape) > 1:
        return Array(type_.item, type_.shape[1:])
    return type_.item


class LaidOut(msgspec.Struct, frozen=True, array_like=True):
    """Where one field lies. `code` is what it is for NumPy, with its byte order ("<f8", "|S8", "<M8[ns]"); a nested
    record has a `layout` of its own instead.
    """

    name: str
    offset: int
    code: str = ""
    shape: tuple[int, ...] = ()
    layout: Layout | None = None


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """Where the fields of one record lie, and its size, padding included."""

    itemsize: int
    fields: tuple[LaidOut, ...]


class Format(msgspec.Struct, frozen=True, array_like=True):
    """How records of a schema travel. `layout` belongs to LAYOUT, `arrow` (a schema, as IPC writes it) to ARROW."""

    record: RecordType
    encoding: Literal["layout", "msgpack", "arrow"]
    layout: Layout | None = None
    arrow: bytes = b""

    @property
    def token(self) -> int:
        """Eight bytes that stand for it, as a number; never 0."""
        return _token(self)


@functools.lru_cache(4096)
def _token(format: Format) -> int:  # noqa: A002
    digest = blake2b(_encoder.encode(format), digest_size=8, person=b"ec-format").digest()
    return int.from_bytes(digest, "little") or 1


@functools.lru_cache(4096)
def _by_name(record: RecordType) -> dict[str, Field]:
    return {field.name: field for field in record.fields}


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decode_record: Final = msgspec.msgpack.Decoder(RecordType).decode
_decode_format: Final = msgspec.msgpack.Decoder(Format).decode


def as_bytes(described: RecordType | Format) -> bytes:
    """A schema or format as bytes, equal for equal ones."""
    return _encoder.encode(described)


def record_from(data: bytes) -> RecordType:
    """The schema again; `msgspec.ValidationError` where the bytes are none."""
    return _decode_record(data)


def format_from(data: bytes) -> Format:
    """The format again; `msgspec.ValidationError` where the bytes are none."""
    return _decode_format(data)


def is_fixed(type_: Any) -> bool:
    """Whether values of this type all take the same number of bytes, so that they can have a natural layout."""
    match type_:
        case Bool() | Int() | Float() | Complex() | Duration():
            return True
        case Text(chars=int()) | Bytes(size=int()) | Timestamp(zone=""):
            return True
        case Enum():
            return all(type(value) is int and -(2**63) <= value < 2**63 for _, value in type_.members)
        case Array():
            return is_fixed(type_.item)
        case RecordType():
            return bool(type_.fields) and all(is_fixed(field.type) for field in type_.fields)
    return False
