"""Fixed records as `struct` packs them: one flat run of values, in the order of memory."""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import Layout, RecordType

_UTF_32: Final = f"utf-32-{sys.byteorder[0]}e"
_MAX_LETTERS: Final = 1 << 22
_NATIVE: Final = "<" if sys.byteorder == "little" else ">"


def struct_of(layout: Layout, record: RecordType) -> struct.Struct | None:
    """What packs records of this layout, or None where `struct` can't: unless the fields lie in the schema's order,
    in this machine's byte order.
    """
    codes = _codes(layout, record)
    return None if codes is None else struct.Struct(f"={codes}")


def _codes(layout: Layout, record: RecordType) -> str | None:
    """The record in the letters of `struct`, padding included."""
    codes = []
    end = 0
    for place, field in zip(layout.fields, record.fields, strict=True):
        if place.offset < end or place.name != field.name:
            return None
        type_ = field.type
        count = math.prod(place.shape)
        if place.layout is not None:
            item = type_.item if isinstance(type_, schema.Array) else type_
            assert isinstance(item, RecordType)
            inner = _codes(place.layout, item)
            size = place.layout.itemsize
        else:
            inner = _letters(place.code)
            size = struct.calcsize(f"={inner}") if inner is not None else 0
        if inner is None:
            return None
        if len(inner) > 1 and len(inner) * count > _MAX_LETTERS:  # a layout from outside could ask for gigabytes
            raise ValueError(f"field {field.name!r} has {count} items of several values each, which is too many")
        codes.append(f"{place.offset - end}x" if place.offset > end else "")
        codes.append(f"{count}{inner}" if len(inner) == 1 and place.shape else inner * count)
        end = place.offset + size * count
    return f"{''.join(codes)}{layout.itemsize - end}x"


def _letters(code: str) -> str | None:
    if code[0] not in f"{_NATIVE}|":
        return None
    kind, size = code[1], code[2:].partition("[")[0]
    if kind in "SV":
        return f"{size}s"
    if kind == "U":
        return f"{4 * int(size)}s"
    return {
        "b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
        "f2": "e", "f4": "f", "f8": "d", "c8": "ff", "c16": "dd", "M8": "q", "m8": "q",
    }.get(kind + size)  # fmt: skip


def from_text(value: str) -> bytes:
    """Text in a place of fixed size."""
    return value.encode(_UTF_32)


def _to_text(value: bytes) -> str:
    return value.decode(_UTF_32).rstrip("\0")


def _to_bytes(value: bytes) -> bytes:
    return value.rstrip(b"\0")


def width(type_: schema.Type) -> int:
    """How many values `struct` has for one of this type."""
    match type_:
        case schema.Complex():
            return 2
        case schema.Array():
            return math.prod(type_.shape) * width(type_.item)
        case RecordType():
            return sum(width(field.type) for field in type_.fields)
    return 1


def nester(type_: schema.Type) -> Callable[[Sequence[Any]], Any] | None:
    """What makes a value of this type of the flat values that `struct` has for it; records become tuples.

    None where it is a record whose flat values are its fields.
    """
    if isinstance(type_, RecordType):
        pool: dict[str, Any] = {}
        source, is_plain = _tuple_text(type_, 0, pool)
        return None if is_plain else eval(f"lambda v: {source}", pool)
    pool = {}
    return eval(f"lambda v: {_text(type_, 0, pool)}", pool)  # type: ignore[no-any-return]


def _tuple_text(record: RecordType, start: int, pool: dict[str, Any]) -> tuple[str, bool]:
    parts = []
    for field in record.fields:
        parts.append(_text(field.type, start, pool))
        start += width(field.type)
    return f"({', '.join(parts)},)", all(part == f"v[{i}]" for i, part in enumerate(parts))


def _text(type_: schema.Type, start: int, pool: dict[str, Any]) -> str:
    """An expression for the value that begins at `v[start]`."""
    match type_:
        case schema.Complex():
            return f"complex(v[{start}], v[{start + 1}])"
        case schema.Text():
            pool["text"] = _to_text
            return f"text(v[{start}])"
        case schema.Bytes(padded=True):
            pool["strip"] = _to_bytes
            return f"strip(v[{start}])"
        case RecordType():
            return _tuple_text(type_, start, pool)[0]
        case schema.Array():
            name = f"array{start}"
            pool[name] = functools.partial(_array, type_.shape, width(type_.item), _item(type_.item))
            return f"{name}(v[{start}:{start + width(type_)}])"
    return f"v[{start}]"


def _item(type_: schema.Type) -> Callable[[Sequence[Any]], Any] | None:
    if width(type_) == 1 and not isinstance(type_, schema.Text | schema.Bytes | schema.Array | RecordType):
        return None
    return nester(type_) or tuple


def _array(shape: tuple[int, ...], size: int, item: Callable[[Sequence[Any]], Any] | None, flat: Sequence[Any]) -> Any:
    items = list(flat) if item is None else [item(flat[i : i + size]) for i in range(0, len(flat), size)]
    for length in shape[:0:-1]:
        items = [items[i : i + length] for i in range(0, len(items), length)] if length else []
    return items
