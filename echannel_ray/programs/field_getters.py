"""The fields of an event that is an object, as programs take them: plain values, each as its leaf is declared."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter, index
from typing import Any, Final

from echannel_ray.programs.arithmetic import NARROWED
from echannel_ray.programs.program import Leaf, Trap, Type, Where

_START: Final = Where(1, 1)


def getter(leaves: Iterable[Leaf]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the leaves from an event by its attributes, in this order; a `Trap` where one is not as declared."""
    readers = tuple(map(_reader, leaves))
    if len(readers) == 1:
        (only,) = readers
        return lambda event: (only(event),)
    if len(readers) == 2:
        one, other = readers
        return lambda event: (one(event), other(event))
    return lambda event: tuple([read(event) for read in readers])


@functools.lru_cache(1024)
def field_getter(path: tuple[str, ...]) -> Callable[[Any], Any]:
    """What takes one field from an event, as it is."""
    if all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name) for name in path):
        return attrgetter(".".join(path))

    def get(event: Any) -> Any:
        for name in path:
            event = getattr(event, name)
        return event

    return get


def _reader(leaf: Leaf) -> Callable[[Any], Any]:
    convert, kind = _converter(leaf), _KINDS[leaf.type]
    if leaf.shape:
        return lambda event: _items(event, leaf.path, leaf.shape, leaf, convert)
    get = field_getter(leaf.path)
    if leaf.type in (Type.INT, Type.UNSIGNED) or (leaf.type is Type.FLOAT and leaf.bits < 64):
        return lambda event: convert(get(event))

    def read(event: Any) -> Any:
        value = get(event)
        return value if type(value) is kind else convert(value)

    return read


def _items(
    value: Any, path: tuple[str, ...], shape: tuple[int | None, ...], leaf: Leaf, convert: Callable[[Any], Any]
) -> Any:
    """The scalars of a leaf as nested lists: through attributes while there are names, through items where there are
    items on the way.
    """
    if hasattr(value, "tolist") and not path:
        value = value.tolist()
    if isinstance(value, list | tuple) or (shape and not path):
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not shape:
            raise _unlike(leaf, value)
        if shape[0] is not None and len(value) != shape[0]:
            raise Trap(f"{'.'.join(leaf.path)} has {len(value)} items, not {shape[0]}", _START)
        return [_items(each, path, shape[1:], leaf, convert) for each in value]
    return _items(getattr(value, path[0]), path[1:], shape, leaf, convert) if path else convert(value)


def _converter(leaf: Leaf) -> Callable[[Any], Any]:
    low, high = leaf.limits

    def convert(value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        is_text = isinstance(value, str | bytes | bytearray | memoryview)
        try:
            match leaf.type:
                case Type.BOOL if not is_text:
                    return bool(value)
                case Type.FLOAT if not is_text:
                    return NARROWED[leaf.bits](float(value))
                case Type.TEXT if isinstance(value, str):
                    return str(value)
                case Type.BYTES if is_text and not isinstance(value, str):
                    return bytes(value)
                case Type.INT | Type.UNSIGNED if low <= (whole := index(value)) <= high:
                    return whole
        except (TypeError, ValueError, OverflowError):
            pass
        raise _unlike(leaf, value)

    def convert_whole(value: Any) -> Any:
        return value if type(value) is int and low <= value <= high else convert(value)

    return convert_whole if leaf.type in (Type.INT, Type.UNSIGNED) else convert


def _unlike(leaf: Leaf, value: Any) -> Trap:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
    return Trap(f"{'.'.join(leaf.path)} is {shown}, which it is not declared to be", _START)


_KINDS: Final = {
    Type.BOOL: bool,
    Type.INT: int,
    Type.UNSIGNED: int,
    Type.FLOAT: float,
    Type.TEXT: str,
    Type.BYTES: bytes,
}
