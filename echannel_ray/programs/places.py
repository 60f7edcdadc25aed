"""Where the leaves of a program lie in a block of records, and what takes the place of those that a producer lacks."""

from __future__ import annotations

import sys
from math import prod
from typing import Any, Final, NamedTuple

import numpy

from echannel_ray.formats import plain
from echannel_ray.programs.program import ZEROS, Leaf, Type
from echannel_ray.schemas.schema import Array, Field, LaidOut, Layout, RecordType

# Which of NumPy's kinds a leaf of each type can be read from.
_KINDS: Final = {
    Type.BOOL: "b",
    Type.INT: "biuMm",
    Type.UNSIGNED: "bu",
    Type.FLOAT: "biuf",
    Type.TEXT: "U",
    Type.BYTES: "SV",
}

_SIZES: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "M": (8,), "m": (8,)}


class UnfitLayout(ValueError):
    """Records of this layout are none that the program was checked for."""


class Place(NamedTuple):
    """The scalars of one field in each record: the first lies at `offset`, `strides` lead to the others."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: numpy.dtype[Any]

    @property
    def is_foreign(self) -> bool:
        """Whether its bytes are in the other order than this machine's."""
        return self.dtype.byteorder == (">" if sys.byteorder == "little" else "<")

    @property
    def items(self) -> int:
        """How many scalars there are."""
        return prod(self.shape)


def place_of(layout: Layout, path: tuple[str, ...]) -> Place | None:
    """The place of the field that these names lead to; None where the layout has none."""
    offset = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    for depth, name in enumerate(path, 1):
        field = next((each for each in layout.fields if each.name == name), None)
        if field is None or (field.layout is None and depth < len(path)):
            return None
        dtype = None if field.layout else _dtype(field)
        item_size = field.layout.itemsize if field.layout else dtype.itemsize if dtype else 0
        if min(field.offset, *field.shape, 0) < 0 or field.offset + item_size * prod(field.shape) > layout.itemsize:
            raise UnfitLayout(
                f"{'.'.join(path[:depth])} does not lie within its record, which has {layout.itemsize} bytes"
            )
        offset, shape = offset + field.offset, shape + field.shape
        strides += strides_of(field.shape, item_size)
        if field.layout is not None:
            layout = field.layout
        elif dtype is not None:
            return Place(offset, shape, strides, dtype)
    raise UnfitLayout(f"{'.'.join(path)} is a record here")


def place_of_leaf(layout: Layout, leaf: Leaf) -> Place | None:
    """The place of a leaf, which has been compared with what the program takes it for; None where there is none."""
    place = place_of(layout, leaf.path)
    if place is None:
        return None
    name = ".".join(leaf.path)
    if place.shape != leaf.shape:
        raise UnfitLayout(f"{name} has the shape {place.shape} here, and {leaf.shape} in the schema")
    if place.dtype.kind not in _KINDS[leaf.type] or not _is_as_narrow(place.dtype, leaf):
        raise UnfitLayout(f"{name} is {place.dtype.str} here, which is no {leaf.type.value} of {leaf.bits} bits")
    return place


def _is_as_narrow(dtype: numpy.dtype[Any], leaf: Leaf) -> bool:
    """Whether all whole numbers that can stand there can stand in the leaf: indices go unchecked for that reason."""
    if leaf.type is not Type.INT or dtype.kind == "b":
        return True
    if dtype.kind == "u":
        return 8 * dtype.itemsize + leaf.signed <= leaf.bits
    return leaf.signed and 8 * dtype.itemsize <= leaf.bits


def terminals(layout: Layout, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The paths of all fields that are no records themselves, at or below this one."""
    fields: tuple[LaidOut, ...] = layout.fields
    found: LaidOut | None = None
    for name in path:
        found = next((each for each in fields if each.name == name), None)
        if found is None:
            return []
        fields = found.layout.fields if found.layout else ()
    if found is not None and found.layout is None:
        return [path]
    return [below for each in fields for below in terminals(layout, (*path, each.name))]


def missing_value(record: RecordType, leaf: Leaf) -> Any:
    """What a leaf has where a producer's records lack it: its default, or zeros. Nested lists for an array."""
    return _shaped(default_at(record, leaf.path), leaf.shape, leaf)


def _dtype(field: LaidOut) -> numpy.dtype[Any]:
    """What a field is. It comes from the producer: only what machine code reads is let in."""
    try:
        dtype = numpy.dtype(field.code)
    except (TypeError, ValueError, SyntaxError):
        raise UnfitLayout(f"{field.name} has the code {field.code!r}, which NumPy does not know") from None
    sizes = _SIZES.get(dtype.kind, (dtype.itemsize or 1,))
    if dtype.itemsize not in sizes or dtype.kind not in "biufcMmSUV":
        raise UnfitLayout(f"{field.name} has the code {field.code!r}, which no record has")
    return dtype


def strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of an array whose items lie one behind the other."""
    strides: tuple[int, ...] = ()
    for length in reversed(shape):
        strides = (itemsize, *strides)
        itemsize *= length
    return strides


def default_at(record: RecordType, path: tuple[str, ...]) -> Any:
    """The default that a path leads to: of the outermost field on the way that has one; None without one."""
    type_: Any = record
    for depth, name in enumerate(path, 1):
        while isinstance(type_, Array):
            type_ = type_.item
        field: Field | None = type_.field(name) if isinstance(type_, RecordType) else None
        if field is None:
            return None
        if field.default is not None:
            return _entered(plain.decode(field.default), path[depth:])
        type_ = field.type
    return None


def _entered(value: Any, path: tuple[str, ...]) -> Any:
    """The value that names lead to, in each item of an array."""
    if not path:
        return value
    if isinstance(value, list | tuple):
        return [_entered(each, path) for each in value]
    return _entered(value.get(path[0]), path[1:]) if isinstance(value, dict) else None


def _shaped(value: Any, shape: tuple[int | None, ...], leaf: Leaf) -> Any:
    """The value as nested lists of the shape, zeros where it has nothing."""
    if isinstance(value, numpy.ndarray | numpy.generic):
        value = value.tolist()
    if not shape:
        return _scalar(value, leaf)
    items = value if isinstance(value, list | tuple) else ()
    length = shape[0] or 0
    return [_shaped(items[i] if i < len(items) else None, shape[1:], leaf) for i in range(length)]


def _scalar(value: Any, leaf: Leaf) -> Any:
    if leaf.type is Type.FLOAT and type(value) is int:
        return float(value)
    if type(value) is not type(ZEROS[leaf.type]):
        return ZEROS[leaf.type]
    if type(value) is int:  # wraps around, as it would in a field: indices go unchecked that can't be larger
        low, _ = leaf.limits
        return (value - low) % (1 << leaf.bits) + low
    return value
