"""Single values as they travel: each checked against its type, and made of what msgpack (or a layout) has.

An encoder takes one value, and raises `UnfitValue` where its type has no place for it.
"""

from __future__ import annotations

import enum
import struct
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, TypeAlias

from echannel_ray.records import moments
from echannel_ray.schemas import schema

Encoder: TypeAlias = Callable[[Any], Any]

_MAX_DEPTH: Final = 100
_FLOATS: Final = {16: struct.Struct("<e"), 32: struct.Struct("<f")}  # native ones make infinities of what is too large


class UnfitValue(Exception):
    """A value that its field has no place for: what is needed, what there was, and where inside."""

    def __init__(self, needed: str, value: Any, path: str = "") -> None:
        super().__init__(needed, value, path)
        self.needed = needed
        self.value = value
        self.path = path

    def inside(self, path: str) -> UnfitValue:
        """The same misfit, seen from further out."""
        dot = "." if self.path and self.path[0] != "[" else ""
        return UnfitValue(self.needed, self.value, f"{path}{dot}{self.path}")


def scalar_encoder(type_: schema.Type) -> Encoder:
    """What makes the msgpack form of values of this type, which has no types inside."""
    match type_:
        case schema.Bool():
            return _bool
        case schema.Int():
            low = -(2 ** (type_.bits - 1)) if type_.signed else 0
            return _int(low, low + 2**type_.bits - 1, f"{'u' if not type_.signed else ''}int{type_.bits}")
        case schema.Float():
            return _float(_FLOATS.get(type_.bits))
        case schema.Complex():
            return _complex
        case schema.Text():
            return _text(type_.chars)
        case schema.Bytes():
            return _bytes(type_)
        case schema.Timestamp():
            return _any_moment if type_.zone is None else _moment(type_)
        case schema.Duration():
            return _duration(type_.unit)
        case schema.Enum():
            return _enum(type_)
        case schema.Decimal():
            return _decimal(type_)
        case schema.Date():
            return _instance(date, "a date without a time", but_not=datetime)
        case schema.Time():
            return _instance(time, "a time of day")
        case schema.Uuid():
            return _uuid
    return _anything


def _instance(cls: type, needed: str, but_not: type | tuple[type, ...] = ()) -> Encoder:
    def encode(value: Any) -> Any:
        if not isinstance(value, cls) or isinstance(value, but_not):
            raise UnfitValue(needed, value)
        return value

    return encode


def _uuid(value: Any) -> uuid.UUID:
    # Defaults have them as text, which for mappings is fine too.
    try:
        return uuid.UUID(str(value)) if isinstance(value, str | uuid.UUID) else uuid.UUID(bytes=value)
    except (TypeError, ValueError, AttributeError):
        raise UnfitValue("a UUID", value) from None


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if getattr(getattr(value, "dtype", None), "kind", "") == "b" and not getattr(value, "shape", ()):
        return bool(value)
    raise UnfitValue("a bool", value)


def _int(low: int, high: int, name: str) -> Encoder:
    def encode(value: Any) -> int:
        try:
            # Not an enum's member, unless it is a number itself; NumPy's whole numbers too.
            number = int(value.__index__())
        except (AttributeError, TypeError):
            raise UnfitValue(f"an int ({name})", value) from None
        if not low <= number <= high:
            raise UnfitValue(f"an int within the range of {name}", value)
        return number

    return encode


def _float(narrow: struct.Struct | None) -> Encoder:
    def encode(value: Any) -> float:
        if isinstance(value, str | bytes | bytearray) or not (
            hasattr(type(value), "__float__") or hasattr(type(value), "__index__")
        ):
            raise UnfitValue("a float", value)
        try:
            number = float(value)
            return number if narrow is None else float(narrow.unpack(narrow.pack(number))[0])
        except (TypeError, ValueError):
            raise UnfitValue("a float", value) from None
        except OverflowError:
            raise UnfitValue("a float within the range of its bits", value) from None

    return encode


def _complex(value: Any) -> tuple[float, float]:
    try:
        if isinstance(value, str):
            raise UnfitValue("a complex number", value)
        number = complex(value)
    except (TypeError, ValueError, OverflowError):
        raise UnfitValue("a complex number", value) from None
    return number.real, number.imag


def _text(chars: int | None) -> Encoder:
    def encode(value: Any) -> str:
        if not isinstance(value, str):
            raise UnfitValue("a str", value)
        text = str.__str__(value)  # of a subclass too
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnfitValue("a str without lone surrogates, which Unicode has no place for", value) from None
        if chars is not None and len(text) > chars:
            raise UnfitValue(f"a str of at most {chars} characters", value)
        return text

    return encode


def _bytes(type_: schema.Bytes) -> Encoder:
    size = type_.size

    def encode(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            if getattr(getattr(value, "dtype", None), "kind", "") != "V":  # np.void, of a dtype's raw bytes
                raise UnfitValue("bytes", value)
            value = value.tobytes()
        data = bytes(value)
        if size is not None and (len(data) > size or (len(data) < size and not type_.padded)):
            raise UnfitValue(f"bytes, {'at most' if type_.padded else 'exactly'} {size} of them", value)
        return data

    return encode


def _any_moment(value: Any) -> Any:
    if not isinstance(value, datetime):
        raise UnfitValue("a datetime", value)
    if type(value) is not datetime:
        # What pandas makes of one has nanoseconds.
        if getattr(value, "nanosecond", 0):
            raise UnfitValue("a datetime without nanoseconds", value)
        value = datetime.combine(value.date(), value.timetz())
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=None)
    if not offset:
        return value
    # As text it keeps its offset. Those that are no whole minutes (before 1900, mostly) have no text.
    return value.astimezone(timezone.utc) if offset % timedelta(minutes=1) else value.isoformat()


def _moment(type_: schema.Timestamp) -> Encoder:
    needed = "a datetime with a time zone" if type_.zone else "a datetime without a time zone"

    def encode(value: Any) -> int:
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        if kind == "M":
            return _numpy_count(value, f"M8[{type_.unit}]")
        if not isinstance(value, datetime) or (value.utcoffset() is None) is bool(type_.zone):
            raise UnfitValue(needed, value)
        try:
            nanoseconds = getattr(value, "nanosecond", 0)  # pandas
            if nanoseconds and type_.unit == "ns":
                return moments.since_epoch(value.replace(nanosecond=0), type_) + nanoseconds  # type: ignore[call-arg]
            if nanoseconds:
                raise ValueError(f"a whole number of {type_.unit}")
            return moments.since_epoch(value if type_.zone else value.replace(tzinfo=None), type_)
        except ValueError as error:
            raise UnfitValue(f"{needed}, {error}", value) from None

    return encode


def _duration(unit: str) -> Encoder:
    def encode(value: Any) -> int:
        if getattr(getattr(value, "dtype", None), "kind", "") == "m":
            return _numpy_count(value, f"m8[{unit}]")
        if not isinstance(value, timedelta):
            raise UnfitValue("a timedelta", value)
        try:
            nanoseconds = getattr(value, "nanoseconds", 0)  # pandas
            if nanoseconds and unit != "ns":
                raise ValueError(f"a whole number of {unit}")
            return moments.count_of(value, unit) + nanoseconds
        except ValueError as error:
            raise UnfitValue(f"a timedelta, {error}", value) from None

    return encode


def _numpy_count(value: Any, code: str) -> int:
    try:
        converted = value.astype(code)
        # Not `converted == value`, which compares in the finer unit, where both may have wrapped around.
        is_same = converted.astype(value.dtype) == value or converted != converted
    except OverflowError:  # NumPy 2.5 does not let them wrap around
        is_same = False
    if not is_same:
        raise UnfitValue(f"a whole number within the range of {code}", value)
    return int(converted.astype("i8"))


def _enum(type_: schema.Enum) -> Encoder:
    values = {(type(value), value) for _, value in type_.members}
    needed = f"one of {', '.join(repr(value) for _, value in type_.members[:8])}"

    def encode(value: Any) -> Any:
        raw = value.value if isinstance(value, enum.Enum) else value
        try:
            if (type(raw), raw) in values:
                return raw
        except TypeError:  # what can't be hashed
            pass
        raise UnfitValue(needed, value)

    return encode


def _decimal(type_: schema.Decimal) -> Encoder:
    precision, scale = type_.precision, type_.scale

    def encode(value: Any) -> Decimal:
        if not isinstance(value, Decimal):
            raise UnfitValue("a Decimal", value)
        if precision is not None or scale is not None:
            _, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                raise UnfitValue("a finite Decimal", value)
            if scale is not None and -exponent > scale and any(digits[exponent + scale :]):
                raise UnfitValue(f"a Decimal of at most {scale} decimal places", value)
            if precision is not None and value and value.adjusted() + 1 > precision - (scale or 0):
                raise UnfitValue(f"a Decimal of at most {precision} digits, {scale or 0} of them decimal places", value)
        return value

    return encode


_any_text: Final = _text(None)


def _anything(value: Any, depth: int = 0) -> Any:
    if value is None or type(value) in (bool, float, bytes):
        return value
    if type(value) is str:
        return _any_text(value)
    if type(value) is int and -(2**63) <= value < 2**64:
        return value
    if depth < _MAX_DEPTH:
        if type(value) in (list, tuple):
            return [_anything(each, depth + 1) for each in value]
        if isinstance(value, dict) and all(type(key) in (str, int, bool, float, bytes) for key in value):
            return {_anything(key): _anything(each, depth + 1) for key, each in value.items()}
    raise UnfitValue("plain data (None, numbers, text, bytes, lists and dicts)", value)
