"""What msgpack has in the place of each kind of value, as types by which msgspec checks what comes in."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

import msgspec

from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import RecordType


@functools.lru_cache(1024)
def decoder_of(type_: schema.Type) -> Callable[[Any], Any]:
    """What reads a value of this type from msgpack, or raises `msgspec.DecodeError`; records become tuples."""
    return msgspec.msgpack.Decoder(_wire_type(type_)).decode


def _wire_type(type_: schema.Type) -> Any:
    match type_:
        case schema.Bool():
            return bool
        case schema.Int():
            return _int(type_)
        case schema.Float():
            return float
        case schema.Complex():
            return tuple[float, float]
        case schema.Text():
            return str if type_.chars is None else Annotated[str, msgspec.Meta(max_length=type_.chars)]
        case schema.Bytes():
            return _bytes(type_)
        case schema.Timestamp():
            return datetime if type_.zone is None else _int(schema.Int())
        case schema.Duration():
            return _int(schema.Int())
        case schema.Date():
            return date
        case schema.Time():
            return time
        case schema.Decimal():
            return Decimal
        case schema.Uuid():
            return uuid.UUID
        case schema.Enum():
            return bool | int | float | str | None
        case schema.Anything():
            return Any
    return _wire_type_of_many(type_)


def _wire_type_of_many(type_: schema.Type) -> Any:
    match type_:
        case schema.Array():
            inner = _wire_type(type_.item)
            for length in reversed(type_.shape):
                inner = Annotated[list[inner], msgspec.Meta(min_length=length, max_length=length)]  # type: ignore[valid-type]
            return inner
        case schema.List() | schema.Set():
            return list[_wire_type(type_.item)]  # type: ignore[misc]
        case schema.Tuple():
            return tuple[tuple(_wire_type(item) for item in type_.items)]  # type: ignore[misc]
        case RecordType():
            return tuple[tuple(_wire_type(field.type) for field in type_.fields)]  # type: ignore[misc]
        case schema.Map():
            return dict[_hashable(type_.key), _wire_type(type_.value)]  # type: ignore[misc]
        case schema.Optional():
            # A raw value could be none of its own: an optional optional is the inner one.
            return _wire_type(type_.item) | None
        case schema.Union():
            return tuple[int, msgspec.Raw]
    raise TypeError(f"there is no such type as {type_!r}")


def _int(type_: schema.Int) -> Any:
    if type_.bits == 64:
        return Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1) if type_.signed else msgspec.Meta(ge=0)]
    low = -(2 ** (type_.bits - 1)) if type_.signed else 0
    return Annotated[int, msgspec.Meta(ge=low, le=low + 2**type_.bits - 1)]


def _bytes(type_: schema.Bytes) -> Any:
    if type_.size is None:
        return bytes
    return Annotated[bytes, msgspec.Meta(min_length=0 if type_.padded else type_.size, max_length=type_.size)]


def _hashable(type_: schema.Type) -> Any:
    """The Python type for this type where it is a key: sequences are tuples."""
    match type_:
        case schema.List() | schema.Set() | schema.Array():
            return tuple[_hashable(type_.item), ...]  # type: ignore[misc]
        case schema.Tuple():
            return tuple[tuple(_hashable(item) for item in type_.items)]  # type: ignore[misc]
        case RecordType():
            return tuple[tuple(_hashable(field.type) for field in type_.fields)]  # type: ignore[misc]
    return _wire_type(type_)
