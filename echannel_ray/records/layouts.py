"""Where the fields of fixed records lie, and how records of one layout become those of another.

A sender's records travel as they lie in its memory. Whoever receives them converts where its own layout differs, by a
plan that is made once for each pair of layouts: fields that keep their distance move together, as raw bytes, so a
field that nobody expects costs one copy of the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from echannel_ray.formats import plain
from echannel_ray.schemas import schema
from echannel_ray.schemas.column_types import type_of_dtype
from echannel_ray.schemas.extension import lossless
from echannel_ray.schemas.schema import Format, LaidOut, Layout, RecordType

if TYPE_CHECKING:
    import numpy as np

    Records: TypeAlias = np.ndarray[Any, Any]

# No objects: their bytes would be addresses, of whoever's choice.
_KINDS: Final = "biufcMmSUV"
_MIN_MERGED: Final = 6


def layout_of(dtype: np.dtype[Any]) -> Layout:
    """Where the fields of this structured dtype lie."""
    assert dtype.fields is not None
    assert dtype.names is not None
    fields = []
    for name in dtype.names:
        inner, offset = dtype.fields[name][:2]
        nested = layout_of(inner.base) if inner.base.names is not None else None
        fields.append(LaidOut(name, int(offset), "" if nested else inner.base.str, tuple(inner.shape), nested))
    return Layout(dtype.itemsize, tuple(fields))


@functools.lru_cache(1024)
def dtype_of(layout: Layout) -> np.dtype[Any]:
    """The structured dtype of this layout; `ValueError` where it makes no sense, since layouts come from outside."""
    import numpy as np

    formats: list[Any] = []
    for field in layout.fields:
        base = np.dtype(field.code) if field.layout is None else dtype_of(field.layout)
        if field.layout is None and (base.kind not in _KINDS or base.names is not None or base.str != field.code):
            raise ValueError(f"field {field.name!r} has the code {field.code!r}, which no layout may have")
        if field.offset < 0 or field.offset + base.itemsize * math.prod(field.shape) > layout.itemsize:
            raise ValueError(f"field {field.name!r} does not lie within its record of {layout.itemsize} bytes")
        formats.append((base, field.shape) if field.shape else base)
    return np.dtype(
        {
            "names": [field.name for field in layout.fields],
            "formats": formats,
            "offsets": [field.offset for field in layout.fields],
            "itemsize": layout.itemsize,
        }
    )


@functools.lru_cache(1024)
def natural(record: RecordType) -> np.dtype[Any]:
    """How C would lay out these records here: natural alignment, the machine's byte order."""
    import numpy as np

    return np.dtype([(field.name, _natural(field.type)) for field in record.fields], align=True)


def _natural(type_: schema.Type) -> Any:
    match type_:
        case schema.Bool():
            return "?"
        case schema.Int():
            return f"{'i' if type_.signed else 'u'}{type_.bits // 8}"
        case schema.Float():
            return f"f{type_.bits // 8}"
        case schema.Complex():
            return f"c{type_.bits // 8}"
        case schema.Enum():
            return "i8"
        case schema.Text(chars=int()):
            return f"U{type_.chars}"
        case schema.Bytes(size=int()):
            return f"{'S' if type_.padded else 'V'}{type_.size}"
        case schema.Timestamp(zone=""):
            return f"M8[{type_.unit}]"
        case schema.Duration():
            return f"m8[{type_.unit}]"
        case schema.Array():
            return (_natural(type_.item), type_.shape)
        case RecordType():
            return natural(type_)
    raise ValueError(f"values of {type_} have no fixed size")


def format_of_dtype(dtype: np.dtype[Any], record: RecordType) -> Format:
    """The format of records that lie as this dtype says."""
    return Format(record, schema.LAYOUT, layout_of(dtype))


def source_dtype(format: Format) -> np.dtype[Any]:  # noqa: A002
    """The dtype of records in this format; `ValueError` where its layout and its schema speak of different things."""
    if format.layout is None:
        raise ValueError("a format lacks its layout")
    dtype = dtype_of(format.layout)
    if not dtype.itemsize:
        raise ValueError("records of no bytes can't be counted")
    if not _is_same_apart_from_order(dtype, natural(format.record)):
        raise ValueError("a format's layout does not fit its schema")
    return dtype


def _is_same_apart_from_order(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    if one.names is None or other.names is None:
        return bool(one.newbyteorder("=") == other.newbyteorder("="))
    return one.names == other.names and all(
        one[name].shape == other[name].shape and _is_same_apart_from_order(one[name].base, other[name].base)
        for name in one.names
    )


class _Step(NamedTuple):
    """Items to copy from one place of each record to another: a field's, then those of neighbours together."""

    path: str
    source: np.dtype[Any]
    target: np.dtype[Any]
    source_offset: int
    target_offset: int
    items: int


def conversion(
    source: Format, target: np.dtype[Any], defaults: RecordType | None = None
) -> Callable[[Records], Records]:
    """What makes records of `target` of records in the format `source`; those of the same layout stay what they are.

    A field that the source does not have gets its default by the schema `defaults`, else zero. `ValueError` where a
    field can't be converted, or (in the conversion itself) `OverflowError` where a value has no place in the target.
    """
    return _conversion(source_dtype(source), target, defaults)


@functools.lru_cache(1024)
def _conversion(
    source: np.dtype[Any], target: np.dtype[Any], defaults: RecordType | None
) -> Callable[[Records], Records]:
    import numpy as np

    if layout_of(source) == layout_of(target):
        return lambda array: array
    blank = np.zeros((), target)
    has_defaults = _fill(blank, source, defaults)
    steps = [step for run in _runs(_leaves(source, target, "", 0, 0)) for step in _merged(run)]
    is_covered = _covers(steps, target.itemsize)
    taken = _view([(step.source, step.items, step.source_offset) for step in steps], source.itemsize)
    put = _view([(step.target, step.items, step.target_offset) for step in steps], target.itemsize)
    copies = [(f"f{i}", _copier(step, defaults)) for i, step in enumerate(steps)]

    def convert(array: Records) -> Records:
        if is_covered:
            made = np.empty(len(array), target)
        elif has_defaults:
            made = np.full(len(array), blank, target)
        else:
            made = np.zeros(len(array), target)
        places, values = made.view(put), array.view(taken)
        for name, copy in copies:
            copy(places[name], values[name])
        return made

    return convert


def _covers(steps: list[_Step], itemsize: int) -> bool:
    """Whether every byte of a record is written, each once."""
    end = 0
    for step in steps:
        if step.target_offset != end or step.target.names is not None:  # in which there may be padding
            return False
        end += step.target.itemsize * step.items
    return end == itemsize


def _view(places: list[tuple[np.dtype[Any], int, int]], itemsize: int) -> np.dtype[Any]:
    """Records seen as these places only, each a type, how many of it, and where: "f0", "f1", …"""
    import numpy as np

    return np.dtype(
        {
            "names": [f"f{i}" for i in range(len(places))],
            "formats": [(dtype, (items,)) if items > 1 else dtype for dtype, items, _ in places],
            "offsets": [offset for _, _, offset in places],
            "itemsize": itemsize,
        }
    )


def _leaves(source: np.dtype[Any], target: np.dtype[Any], path: str, taken: int, put: int) -> Iterator[_Step]:
    """The innermost fields that both have, in the order of the target's memory."""
    assert source.fields is not None
    assert target.fields is not None
    for name, (inner, offset, *_) in sorted(target.fields.items(), key=lambda each: each[1][1]):
        if name not in source.fields or not inner.itemsize:
            continue
        mine, my_offset, *_ = source.fields[name]
        here = f"{path}{name}"
        if mine.shape != inner.shape:
            raise ValueError(f"field {here!r} has the shape {mine.shape} where it comes from, and {inner.shape} here")
        if (mine.base.names is None) != (inner.base.names is None):
            raise ValueError(f"field {here!r} is a record on one side, and none on the other")
        if inner.base.names is not None and not inner.shape:
            yield from _leaves(mine, inner, f"{here}.", taken + my_offset, put + offset)
        else:
            _check_kinds(here, mine.base, inner.base)
            dtypes = _swapped(mine.base, inner.base)
            yield _Step(here, *dtypes[:2], taken + my_offset, put + offset, math.prod(inner.shape) * dtypes[2])


def _check_kinds(path: str, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    if source.names is not None:
        _conversion(source, target, None)
        return
    misfit = lossless(type_of_dtype(source), type_of_dtype(target))
    if misfit is not None:
        raise ValueError(f"field {path!r} can't become {target} of {source}: {misfit}")


def _swapped(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any], int]:
    """Whole numbers of the same size in their place, and how many, where the order of their bytes is all that differs.

    So fields of several kinds can be copied together.
    """
    import numpy as np

    size = {"U": 4, "c": target.itemsize // 2}.get(target.kind, target.itemsize)
    if source == target or source.newbyteorder("=") != target.newbyteorder("=") or target.names is not None:
        return source, target, 1
    number = np.dtype(f"u{size}")
    is_native = target.isnative
    swapped = number.newbyteorder("S")
    return (swapped, number, target.itemsize // size) if is_native else (number, swapped, target.itemsize // size)


def _runs(leaves: Iterator[_Step]) -> Iterator[list[_Step]]:
    """Neighbours that can be copied together."""
    run: list[_Step] = []
    for leaf in leaves:
        if run and not _continues(run[-1], leaf):
            yield run
            run = []
        run.append(leaf)
    if run:
        yield run


def _is_raw(leaf: _Step) -> bool:
    return leaf.source == leaf.target


def _continues(last: _Step, leaf: _Step) -> bool:
    if _is_raw(last) and _is_raw(leaf):
        # What lies between is padding of the target: what gets there does not matter.
        distance = leaf.target_offset - leaf.source_offset
        return distance == last.target_offset - last.source_offset and leaf.source_offset >= _source_end(last)
    return (
        (last.source, last.target) == (leaf.source, leaf.target)
        and leaf.source.names is None  # records have defaults of their own
        and leaf.source_offset == _source_end(last)
        and leaf.target_offset == last.target_offset + last.target.itemsize * last.items
    )


def _source_end(leaf: _Step) -> int:
    return leaf.source_offset + leaf.source.itemsize * leaf.items


def _merged(run: list[_Step]) -> list[_Step]:
    """A single step for all, unless they are so few that NumPy is faster with each by itself."""
    import numpy as np

    first = run[0]
    if _is_raw(first):
        raw = np.dtype(f"V{_source_end(run[-1]) - first.source_offset}")
        return [first._replace(source=raw, target=raw, items=1)]
    items = sum(leaf.items for leaf in run)
    if items >= _MIN_MERGED or len(run) == 1:
        return [first._replace(path=", ".join(leaf.path for leaf in run), items=items)]
    return run


def _copier(step: _Step, defaults: RecordType | None) -> Callable[[Any, Any], None]:
    if step.source.names is not None:
        inner = _conversion(step.source, step.target, _inside(step.path, defaults))

        def copy_records(places: Any, values: Any) -> None:
            places[...] = inner(values.reshape(-1)).reshape(places.shape)

        return copy_records
    if step.source.kind in "Mm" and step.source.newbyteorder("=") != step.target.newbyteorder("="):
        return functools.partial(_copy_times, step)

    def copy(places: Any, values: Any) -> None:
        places[...] = values

    return copy


def _inside(path: str, defaults: RecordType | None) -> RecordType | None:
    """What the defaults say of the records of an array."""
    type_: Any = defaults
    for name in path.split(".") if defaults is not None else ():
        field = type_.field(name)
        type_ = field.type if field is not None else None
        type_ = type_.item if isinstance(type_, schema.Array) else type_
        if not isinstance(type_, RecordType):
            return None
    return type_  # type: ignore[no-any-return]


def _copy_times(step: _Step, places: Any, values: Any) -> None:
    """NumPy lets what a finer unit has no place for wrap around; from 2.5 on it refuses that, but not by field."""
    import numpy as np

    try:
        converted = values.astype(step.target)
        back = converted.astype(step.source)
        is_same = (back == values) | (np.isnat(values) & np.isnat(converted))
    except OverflowError:
        is_same = np.zeros(1, bool)
    if not is_same.all():
        raise OverflowError(f"field {step.path!r} has a value that {step.target} has no place for")
    places[...] = converted


def _fill(blank: Any, source: np.dtype[Any], defaults: RecordType | None) -> bool:
    """Put the defaults of what the source lacks into a record of the target; whether there are any."""
    is_filled = False
    for field in defaults.fields if defaults is not None else ():
        place = blank[field.name]
        if field.name not in (source.names or ()):
            if field.default is not None:
                _assign(place, plain.decode(field.default))
                is_filled = True
        elif place.dtype.names is not None and not place.shape:
            assert isinstance(field.type, RecordType)
            is_filled |= _fill(place, source[field.name], field.type)
    return is_filled


def _assign(place: Any, value: Any) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _assign(place[name], each)
    elif place.dtype.names is not None:  # an array of records
        for index, each in enumerate(value):
            _assign(place[index : index + 1].reshape(place.shape[1:]), each)
    else:
        place[...] = value
