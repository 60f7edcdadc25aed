"""Blocks of records as NumPy arrays: the columns that a program reads, and the outputs that it makes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy
import numpy.typing as npt
from typing_extensions import override

from echannel_ray.programs import tree
from echannel_ray.programs.field_copy import check_copy
from echannel_ray.programs.outputs import MISSING, first_values, program_outputs, zero_of
from echannel_ray.programs.places import Place, default_at, missing_value, place_of, place_of_leaf, terminals
from echannel_ray.programs.program import Leaf, Program, Trap, Type
from echannel_ray.programs.tree import copies
from echannel_ray.schemas.schema import Field, Layout, RecordType

Array = npt.NDArray[Any]
Path = tuple[str, ...]
Block = bytes | bytearray | memoryview

_LAST_CHARACTER: Final = 0x10FFFF
_REPLACEMENT: Final = 0xFFFD
_WIDE: Final = {Type.BOOL: numpy.bool_, Type.INT: numpy.int64, Type.UNSIGNED: numpy.uint64, Type.FLOAT: numpy.float64}


class Trapped(Exception):
    """A program had no result for the record at `index`; `done` is the result for those before it."""

    def __init__(self, index: int, trap: Trap, done: Any) -> None:
        super().__init__(index, trap, done)
        self.index, self.trap, self.done = index, trap, done

    @override
    def __str__(self) -> str:
        return f"record {self.index}: {self.trap}"


class LeafSource(NamedTuple):
    """A leaf in a block: its place, or what all records have instead."""

    leaf: Leaf
    place: Place | None
    default: Any

    def column(self, block: Array, itemsize: int, count: int) -> Array:
        """The leaf's values in all records, widened; NULs at the end of texts stay."""
        wide = _WIDE.get(self.leaf.type)
        if self.place is None:
            value = numpy.array(self.default, wide)
            return numpy.broadcast_to(value, (count, *value.shape))
        values = view(block, self.place, itemsize, count)
        kind = self.place.dtype.kind
        if kind == "b":
            values = values.view(numpy.uint8) != 0
        elif kind in "mM":
            values = values.view(self.place.dtype.str.replace(kind, "i")[:3])
        elif kind == "V":
            values = values.view(f"S{self.place.dtype.itemsize}")
        elif kind == "U":
            values = _valid(values)
        with numpy.errstate(invalid="ignore"):  # for NaNs of any kind
            return values if wide is None else values.astype(wide, copy=False)


def sources(program: Program, layout: Layout) -> list[LeafSource]:
    """Where the leaves of a program are, in its order."""
    found = []
    for leaf in program.leaves:
        place = place_of_leaf(layout, leaf)
        found.append(LeafSource(leaf, place, None if place else missing_value(program.input, leaf)))
    return found


def _valid(texts: Array) -> Array:
    """Texts without what is no character: Python could not read them."""
    characters = numpy.ascontiguousarray(texts).view(texts.dtype.str[0] + "u4")
    wrong = characters > _LAST_CHARACTER
    return (
        numpy.where(wrong, _REPLACEMENT, characters).astype(characters.dtype).view(texts.dtype).reshape(texts.shape)
        if wrong.any()
        else texts
    )


def as_array(block: Block, size: int) -> Array:
    """The bytes of a block, which is at least as long."""
    array = numpy.frombuffer(block, numpy.uint8) if len(block) else numpy.empty(0, numpy.uint8)
    if len(array) < size:
        raise ValueError(f"a block of {len(array)} bytes can't hold records of {size} bytes together")
    return array


def view(block: Array, place: Place, itemsize: int, count: int) -> Array:
    """The scalars at a place in all records; writable if the block is."""
    shape, strides = (count, *place.shape), (itemsize, *place.strides)
    data, offset = (block.data, place.offset) if count else (None, 0)  # else there is none of either
    values: Array = numpy.ndarray(shape, place.dtype, data, offset, strides)
    return values


def template(record: RecordType | None, layout: Layout | None) -> bytes:
    """An output as it is before a program runs: defaults and zeros."""
    if record is None or layout is None:
        return b""
    block = numpy.zeros(layout.itemsize, numpy.uint8)
    for path in terminals(layout, ()):
        place = place_of(layout, path)
        value = first_value(record, path)
        if place is not None and value is not MISSING and value is not None:
            view(block, place, layout.itemsize, 1)[0] = value
    for leaf, value in zip(program_outputs(record), first_values(record), strict=True):
        place = place_of_leaf(layout, leaf)
        if place is not None:
            view(block, place, layout.itemsize, 1)[0] = numpy.array(value, place.dtype)
    return block.tobytes()


def first_value(record: RecordType, path: Path) -> Any:
    """What a field of an output is that a program does not set."""
    value = default_at(record, path)
    if value is not None:
        return value
    type_: Any = record
    for name in path:
        field: Field | None = type_.field(name) if isinstance(type_, RecordType) else None
        if field is None:
            return MISSING
        type_, value = field.type, zero_of(field)
    return value if not isinstance(value, dict) else MISSING


def copiers(program: Program, layout: Layout, output: Layout | None) -> dict[tree.Copy, Copier]:
    """The copiers of all fields that a program copies whole."""
    if output is None:
        return {}
    return {copy: Copier(program.input, layout, output, copy.source, copy.target) for copy in copies(program.body)}


class Copier:
    """Fields that are copied whole from events to outputs."""

    def __init__(self, record: RecordType, layout: Layout, output: Layout, source: Path, target: Path) -> None:
        self._sizes = (layout.itemsize, output.itemsize)
        self._pairs: list[tuple[Place | None, Place, Any]] = []
        for path in terminals(output, target):
            into = place_of(output, path)
            assert into is not None
            below = source + path[len(target) :]
            found = place_of(layout, below)
            if found is not None:
                check_copy(found, into, ".".join(below))
            self._pairs.append((found, into, default_at(record, below)))

    def copy(self, block: Array, rows: Array, out: Array, out_rows: Array, counts: tuple[int, int]) -> None:
        """Copy the field from these records of the block to those of the output."""
        for found, into, default in self._pairs:
            target = view(out, into, self._sizes[1], counts[1])
            if found is None:
                target[out_rows] = numpy.zeros((), into.dtype) if default is None else default
                continue
            values = view(block, found, self._sizes[0], counts[0])[rows]
            if values.dtype.kind == "f" and values.dtype.itemsize != into.dtype.itemsize:
                values = numpy.where(numpy.isnan(values), numpy.nan, values.astype(numpy.float64))
            target[out_rows] = values
