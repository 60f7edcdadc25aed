"""Events as a gateway's clients get them: what msgpack has a form for, and what else they are told of the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from echannel_ray.formats.plain import MAX_DEPTH, NotPlain
from echannel_ray.formats.sealed_events import Sealed
from echannel_ray.gateway.event_frames import Opaque
from echannel_ray.records.generic import as_plain

_AS_THEY_ARE: Final = frozenset({type(None), bool, float, str, bytes})
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def outward(event: Any) -> Any:
    """The event as plain data, or `Opaque`."""
    if type(event) in _AS_THEY_ARE:
        return event
    try:
        return _plain(event.opened() if isinstance(event, Sealed) else as_plain(event), 0)
    except (NotPlain, OverflowError):
        if isinstance(event, Sealed):
            return Opaque(event.type_name(), event.size_bytes)
        return Opaque(f"{type(event).__module__}.{type(event).__qualname__}", 0)


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        if _MIN_INT <= value <= _MAX_INT:
            return value
        raise NotPlain("a number of more than 64 bits")
    if depth >= MAX_DEPTH:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {_key(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth + 1) for each in value]
    for cls, form in _FORMS.items():
        if isinstance(value, cls):
            return form(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _plain(value.tolist(), depth + 1)
    raise NotPlain(f"{kind.__qualname__} has no form in msgpack")


def _key(key: Any) -> str | int:
    if isinstance(key, str):
        return key
    if type(key) is int and _MIN_INT <= key <= _MAX_INT:
        return key
    return str(key)


# In the order in which they are looked at: a datetime is a date.
_FORMS: Final[dict[type, Callable[[Any], Any]]] = {
    Enum: lambda value: _plain(value.value, 0),
    bytearray: bytes,
    memoryview: bytes,
    datetime: lambda value: value if value.tzinfo else value.isoformat(),
    date: date.isoformat,
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    Decimal: str,
    UUID: str,
    complex: lambda value: [value.real, value.imag],
}
