"""Plain data as bytes, type for type: what may come from code that nobody trusts, and what calls of services carry.

Reading it makes None, bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset, complex, dates and
times, and NumPy arrays of numbers: no class of anybody else's, and no code runs. `pickle` would do both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 100

_TUPLE, _SET, _FROZENSET, _INT, _COMPLEX, _BYTEARRAY, _ARRAY, _NAIVE, _DATE, _TIME, _DURATION, _DECIMAL, _ESCAPED = (
    range(1, 14)
)
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1
_AS_THEY_ARE: Final = frozenset({type(None), bool, float, str, bytes})
_MAX_INT_BYTES: Final = 4096
# Of NumPy's kinds those that are numbers, flags, times or fixed text: none holds an object.
_ARRAY_KINDS: Final = "biufcmMSU"


class NotPlain(ValueError):
    """A value that is no plain data; `.path` says where inside."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{reason}{' at ' + path if path else ''}")
        self.reason = reason
        self.path = path


_encoder: Final = msgspec.msgpack.Encoder()


def encode(value: object) -> bytes:
    """The value as bytes; `NotPlain` where it is none."""
    try:
        return _encoder.encode(_prepare(value, "", 0))
    except UnicodeEncodeError:
        raise NotPlain("a text with a lone surrogate, which UTF-8 has no place for") from None


def decode(data: bytes | memoryview) -> Any:
    """The value again; `NotPlain` where the bytes are no such value, whoever made them."""
    try:
        return _decoder.decode(data)
    except NotPlain:
        raise
    except RecursionError:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}") from None
    except Exception as error:  # of an extension's own reading too
        raise NotPlain(f"malformed: {error}") from None


def canonical(value: object) -> bytes:
    """Bytes that are the same for equal values, however their dicts and sets were filled; `NotPlain` as `encode`."""
    return encode(_ordered(decode(encode(value))))


def _ordered(value: Any) -> Any:
    if type(value) is dict:
        return {key: _ordered(value[key]) for key in sorted(value, key=canonical)}
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_ordered, value))
    return value


def _prepare(value: Any, path: str, depth: int) -> Any:
    """The value with everything that msgpack has no type for as an extension."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        if _MIN_INT <= value <= _MAX_INT:
            return value
        size = (value.bit_length() + 8) // 8
        if size > _MAX_INT_BYTES:
            raise NotPlain(f"an int of {size} bytes: the limit is {_MAX_INT_BYTES}", path)
        return msgspec.msgpack.Ext(_INT, value.to_bytes(size, "little", signed=True))
    if depth >= MAX_DEPTH:
        raise NotPlain(f"nested deeper than {MAX_DEPTH}, or in itself", f"{path[:30]}…")
    if kind is list:
        return [_prepare(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
    if kind is dict:
        return _prepare_dict(value, path, depth)
    prepare = _OTHERS.get(kind)
    if prepare is not None:
        return prepare(value, path, depth)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _prepare_array(value, path, kind is not numpy.ndarray)
    raise NotPlain(f"{kind.__module__}.{kind.__qualname__} is no plain data", path)


def _prepare_dict(value: dict[Any, Any], path: str, depth: int) -> Any:
    if all(type(key) is str for key in value):
        return {key: _prepare(each, f"{path}[{key!r}]", depth + 1) for key, each in value.items()}
    # Keys that are no text: a list of pairs, since msgpack's readers don't all take every key.
    pairs = [
        [_prepare(key, f"{path} (key {key!r})", depth + 1), _prepare(each, f"{path}[{key!r}]", depth + 1)]
        for key, each in value.items()
    ]
    return _extension(_ESCAPED, pairs)


def _prepare_array(value: Any, path: str, is_scalar: bool) -> Any:
    if value.dtype.kind not in _ARRAY_KINDS or value.dtype.hasobject or value.dtype.subdtype is not None:
        raise NotPlain(f"a NumPy array of {value.dtype} is no plain data", path)
    return _extension(_ARRAY, [value.dtype.str, list(value.shape), value.tobytes(), is_scalar])


def _extension(code: int, content: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encoder.encode(content))


def _sequence(code: int) -> Callable[[Any, str, int], Any]:
    def prepare(value: Any, path: str, depth: int) -> Any:
        return _extension(code, [_prepare(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)])

    return prepare


def _unordered(code: int) -> Callable[[Any, str, int], Any]:
    def prepare(value: Any, path: str, depth: int) -> Any:
        members = [_prepare(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
        return _extension(code, sorted(members, key=_encoder.encode))  # equal sets are equal bytes

    return prepare


_OTHERS: Final[dict[type, Callable[[Any, str, int], Any]]] = {
    tuple: _sequence(_TUPLE),
    set: _unordered(_SET),
    frozenset: _unordered(_FROZENSET),
    complex: lambda value, path, depth: _extension(_COMPLEX, [value.real, value.imag]),
    bytearray: lambda value, path, depth: msgspec.msgpack.Ext(_BYTEARRAY, bytes(value)),
    datetime: lambda value, path, depth: value if value.tzinfo else _extension(_NAIVE, value.isoformat()),
    date: lambda value, path, depth: _extension(_DATE, value.isoformat()),
    time: lambda value, path, depth: _extension(_TIME, value.isoformat()),
    timedelta: lambda value, path, depth: _extension(_DURATION, [value.days, value.seconds, value.microseconds]),
    Decimal: lambda value, path, depth: _extension(_DECIMAL, str(value)),
}


def _read_array(data: bytes) -> Any:
    import numpy

    text, shape, content, is_scalar = _nested(data)
    dtype = numpy.dtype(text)
    if dtype.kind not in _ARRAY_KINDS or dtype.hasobject:
        raise NotPlain(f"an array of {text!r} is no plain data")
    array = numpy.frombuffer(content, dtype).reshape(shape).copy()
    return array[()] if is_scalar else array


def _read_dict(data: bytes) -> dict[Any, Any]:
    return {key: each for key, each in _nested(data)}  # noqa: C416 (a list of two that is no pair must not pass)


def _nested(data: bytes) -> Any:
    return _decoder.decode(data)


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    _TUPLE: lambda data: tuple(_nested(data)),
    _SET: lambda data: set(_nested(data)),
    _FROZENSET: lambda data: frozenset(_nested(data)),
    _INT: lambda data: int.from_bytes(data[: _MAX_INT_BYTES + 1], "little", signed=True),
    _COMPLEX: lambda data: complex(*_nested(data)),
    _BYTEARRAY: bytearray,
    _ARRAY: _read_array,
    _NAIVE: lambda data: datetime.fromisoformat(_nested(data)),
    _DATE: lambda data: date.fromisoformat(_nested(data)),
    _TIME: lambda data: time.fromisoformat(_nested(data)),
    _DURATION: lambda data: timedelta(*_nested(data)),
    _DECIMAL: lambda data: Decimal(_nested(data)),
    _ESCAPED: _read_dict,
}


def _read_extension(code: int, data: memoryview) -> Any:
    reader = _READERS.get(code)
    if reader is None:
        raise NotPlain(f"there is no extension {code}")
    return reader(bytes(data))


_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_read_extension)
