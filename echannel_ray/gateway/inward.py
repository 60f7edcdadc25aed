"""Records from a gateway's clients: what has no form in msgpack comes as a text or a number, as `outward` writes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from echannel_ray.schemas import schema

Make: TypeAlias = Callable[[Any], Any]


def inward(record: schema.RecordType) -> Make | None:
    """What makes such records of maps; None where they are that already. What does not fit is left as it came: who
    encodes the record says what it should be.
    """
    makes = {field.name: each for field in record.fields if (each := _make_of(field.type)) is not None}
    if not makes:
        return None

    def make(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {**value, **{name: each(value[name]) for name, each in makes.items() if name in value}}

    return make


def _make_of(type_: Any) -> Make | None:
    match type_:
        case schema.Decimal():
            return _of(str, Decimal)
        case schema.Timestamp():
            return _of(str, datetime.fromisoformat)
        case schema.Date():
            return _of(str, date.fromisoformat)
        case schema.Time():
            return _of(str, time.fromisoformat)
        case schema.Duration():
            return _of((int, float), lambda value: timedelta(seconds=value))
        case schema.Complex():
            return _of(list, lambda value: complex(*value))
        case schema.Optional():
            return _make_of(type_.item)
        case schema.List() | schema.Set() | schema.Array():
            items = _make_of(type_.item)
            return items and _of(list, lambda value: [items(each) for each in value])
        case schema.Map():
            values = _make_of(type_.value)
            return values and _of(dict, lambda value: {key: values(each) for key, each in value.items()})
        case schema.RecordType():
            return inward(type_)
    return None


def _of(kind: type | tuple[type, ...], make: Make) -> Make:
    def made(value: Any) -> Any:
        try:
            return make(value) if isinstance(value, kind) else value
        except (ValueError, TypeError, OverflowError, InvalidOperation):
            return value

    return made
