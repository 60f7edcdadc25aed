"""`Copy` as LLVM IR: a whole field of the output becomes that of the event, however each of them is laid out."""

from __future__ import annotations

from typing import Final

import numpy

from echannel_ray.programs.emitter import Emitter
from echannel_ray.programs.places import Place, UnfitLayout, default_at, place_of, strides_of, terminals
from echannel_ray.programs.program import Type
from echannel_ray.schemas.schema import Layout, RecordType

Path = tuple[str, ...]
_TYPES: Final = {"i": Type.INT, "u": Type.UNSIGNED, "f": Type.FLOAT}


def copy_field(emitter: Emitter, record: RecordType, source: tuple[Layout, Path], target: tuple[Layout, Path]) -> None:
    """Write the steps, one loop for each field that is no record itself."""
    for path in terminals(*target):
        into = place_of(target[0], path)
        assert into is not None
        below = source[1] + path[len(target[1]) :]
        base, found = "%data", place_of(source[0], below)
        if found is None:
            base, found = _default(emitter, record, below, into)
        check_copy(found, into, ".".join(below))
        _copy_items(emitter, base, found, into)


def check_copy(source: Place, target: Place, name: str) -> None:
    """Raise `UnfitLayout` where the one is not another form of the same field."""
    one, other = source.dtype, target.dtype
    same = one.newbyteorder("=") == other.newbyteorder("=")
    if source.shape != target.shape or one.kind != other.kind or not (same or one.kind in "iufSU"):
        raise UnfitLayout(
            f"{name} is {source.shape} {one.str} in the event and {target.shape} {other.str} in the output"
        )


def _default(emitter: Emitter, record: RecordType, path: Path, into: Place) -> tuple[str, Place]:
    """What a producer leaves out has its default, or zeros: a constant that looks like the output."""
    filled = numpy.zeros(into.shape, into.dtype)
    value = default_at(record, path)
    if value is not None:
        filled[...] = value
    place = Place(0, into.shape, strides_of(into.shape, into.dtype.itemsize), into.dtype)
    return emitter.module.constant(filled.tobytes()), place


def _copy_items(emitter: Emitter, base: str, source: Place, target: Place) -> None:
    if source.dtype == target.dtype and _is_dense(source) and _is_dense(target):
        size = source.dtype.itemsize * source.items
        _copy_bytes(emitter, emitter.shifted(base, source.offset), emitter.shifted("%out", target.offset), size)
        return

    def copy(indices: tuple[str, ...]) -> None:
        if len(indices) < len(source.shape):
            emitter.repeat(source.shape[len(indices)], lambda index: copy((*indices, index)))
            return
        one = emitter.shifted(base, source.offset, list(zip(indices, source.strides, strict=True)))
        other = emitter.shifted("%out", target.offset, list(zip(indices, target.strides, strict=True)))
        _copy_item(emitter, one, source, other, target)

    copy(())


def _copy_item(emitter: Emitter, one: str, source: Place, other: str, target: Place) -> None:
    kind, size, size_out = source.dtype.kind, source.dtype.itemsize, target.dtype.itemsize
    if source.dtype == target.dtype:
        _copy_bytes(emitter, one, other, size)
    elif kind in "iufmM" and size == size_out:  # as bits: a NaN stays the NaN that it is
        emitter.move(one, other, size, is_swapped=True)
    elif kind in _TYPES:
        emitter.store(emitter.load(one, source, _TYPES[kind]), _TYPES[kind], other, target)
    elif kind == "S":
        _copy_bytes(emitter, one, other, min(size, size_out))
        _fill_up(emitter, other, min(size, size_out), size_out)
    elif kind == "U":
        _fill_up(emitter, other, min(size, size_out), size_out)
        swapped = source.is_foreign != target.is_foreign
        emitter.repeat(
            min(size, size_out) // 4,
            lambda i: emitter.move(emitter.shifted(one, 0, [(i, 4)]), emitter.shifted(other, 0, [(i, 4)]), 4, swapped),
        )
    else:
        raise UnfitLayout(f"{source.dtype.str} can't be copied to {target.dtype.str}")


def _copy_bytes(emitter: Emitter, one: str, other: str, size: int) -> None:
    emitter.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {other}, ptr {one}, i64 {size}, i1 false)")


def _fill_up(emitter: Emitter, pointer: str, start: int, end: int) -> None:
    if end > start:
        rest = emitter.shifted(pointer, start)
        emitter.do(f"call void @llvm.memset.p0.i64(ptr {rest}, i8 0, i64 {end - start}, i1 false)")


def _is_dense(place: Place) -> bool:
    return place.strides == strides_of(place.shape, place.dtype.itemsize)
