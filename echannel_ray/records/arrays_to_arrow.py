"""Structured arrays as Arrow's record batches, column by column.

The same comes out as by way of rows (`arrow_rows.py`), except that columns have place for times before the year 1 and
after 9999, which Python's own dates have not. What makes a batch is made once for each pair of schemas; that every
value of the source is one of the target (`lossless`) has been seen before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from echannel_ray.records.arrow import Batch, Column, plain_type
from echannel_ray.records.arrow_rows import batch_of_rows
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.makers import maker_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import RecordType

Values: TypeAlias = Any  # a numpy.ndarray
Make: TypeAlias = Callable[[Values], Column]

_MAX_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = 0xD800 >> 11
_MAX_EMPTY_ITEMS: Final = 1 << 22


def batch_maker(source: RecordType, target: RecordType, pa_schema: Any) -> Callable[[Values], Batch]:
    """What makes record batches of `pa_schema`, which stands for `target`, of structured arrays of `source`."""
    import pyarrow as pa

    make_columns = _fields_maker(source, target, pa_schema)
    return lambda array: pa.RecordBatch.from_arrays(make_columns(array), schema=pa_schema)


def _fields_maker(source: RecordType, target: RecordType, declared: Any) -> Callable[[Values], list[Column]]:
    """What makes a column for each field of the target, of the types that Arrow's fields `declared` have."""
    makers: list[Make] = []
    for field, arrow_field in zip(target.fields, declared, strict=True):
        given = source.field(field.name)
        if given is None:
            makers.append(_default_maker(field, arrow_field))
        else:
            make = _maker(given.type, field.type, arrow_field.type, field.name)
            makers.append(functools.partial(_of_field, field.name, make))
    return lambda array: [make(array) for make in makers]


def _of_field(name: str, make: Make, array: Values) -> Column:
    return make(array[name])


def _default_maker(field: schema.Field, arrow_field: Any) -> Make:
    """What repeats a field's default, where the field does not come."""
    import pyarrow as pa

    if field.default is None:
        raise ValueError(f"field {field.name!r} is missing, and its default can't be written down: publish it too")
    lone = RecordType((field,))
    row = maker_of(RecordType(()), lone, GENERIC)(())
    (default,) = batch_of_rows([row], lone, pa.schema([arrow_field])).column(0)
    # Of some types Arrow repeats nothing zero times.
    return lambda array: pa.repeat(default, max(len(array), 1)).slice(0, len(array))


def _maker(source: schema.Type, target: schema.Type, pa_type: Any, name: str) -> Make:
    can_be_none = isinstance(target, schema.Optional)
    item: Any = target.item if isinstance(target, schema.Optional) else target
    match source:
        case RecordType():
            return _structs(source, item, pa_type)
        case schema.Array():
            return _lists(source, item, pa_type, name)
        case schema.Timestamp() | schema.Duration():
            return _times(source, item, pa_type, name, can_be_none)
        case schema.Enum():
            return _members(source, pa_type, name)
        case schema.Text():
            return _texts(pa_type, name)
        case schema.Bytes():
            # Arrow itself would take the first NUL for the end.
            return lambda values: _as_declared(values.tolist(), pa_type)
        case schema.Bool():
            return lambda values: _as_declared(values.view("u1") != 0, pa_type)  # another byte than 1 may come
    return functools.partial(_numbers, pa_type)


def _as_declared(values: Any, pa_type: Any) -> Column:
    """Values without nulls as a column, in a dictionary too where one is declared."""
    import pyarrow as pa

    plain = plain_type(pa_type)
    column = pa.array(values, plain)
    return column if plain == pa_type else column.cast(pa_type)


def _numbers(pa_type: Any, values: Values) -> Column:
    # A copy in any case: aligned, in this machine's byte order, and without the rest of the block.
    return _as_declared(values.astype(plain_type(pa_type).to_pandas_dtype(), order="C"), pa_type)


def _members(source: schema.Enum, pa_type: Any, name: str) -> Make:
    members = {value for _, value in source.members if type(value) is int}

    def make(values: Values) -> Column:
        others = {*values.tolist()} - members
        if others:
            raise ValueError(f"field {name!r} has {min(others)}, which is no member of its enum")
        return _numbers(pa_type, values)

    return make


def _texts(pa_type: Any, name: str) -> Make:
    import numpy as np

    def make(values: Values) -> Column:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        points = native.view("u4") if native.dtype.itemsize else np.empty(0, "u4")
        if ((points > _MAX_CODE_POINT) | (points >> 11 == _SURROGATES)).any():
            raise ValueError(f"field {name!r} has a text with what is no character")
        return _as_declared(native.tolist(), pa_type)  # Arrow itself would take the first NUL for the end

    return make


def _times(source: schema.Timestamp | schema.Duration, target: Any, pa_type: Any, name: str, can_be_none: bool) -> Make:
    import numpy as np
    import pyarrow as pa

    kind = "M8" if isinstance(source, schema.Timestamp) else "m8"
    plain = plain_type(pa_type)
    is_day = isinstance(target, schema.Date)
    unit = "D" if is_day else plain.unit
    # NaT has a place among nanoseconds, which stay NumPy's.
    is_kept = not is_day and (target if kind == "M8" else source).unit == "ns"
    is_zoned = isinstance(target, schema.Timestamp) and target.zone is None and target.unit != "ns"

    def make(values: Values) -> Column:
        times = values.astype(values.dtype.newbyteorder("="), order="C")
        nothing = np.isnat(times)
        if not can_be_none and not is_kept and nothing.any():
            raise ValueError(f"field {name!r} has what is not a time (NaT)")
        if is_zoned and not nothing.all():
            raise ValueError(f"a datetime without a time zone has no place in field {name!r}, a column of those with")
        counts = rescaled(times, f"{kind}[{unit}]", name).view("i8")
        column = pa.array(counts, mask=nothing if can_be_none else None)
        column = column.cast(pa.int32()).view(pa.date32()).cast(plain) if is_day else column.view(plain)
        return column if plain == pa_type else column.cast(pa_type)

    return make


def rescaled(times: Values, dtype: str, name: str) -> Values:
    """Times in another unit; `ValueError` where one has no place there, which NumPy would let wrap around."""
    import numpy as np

    if times.dtype == dtype:
        return times
    try:
        converted = times.astype(dtype)
        is_same = converted.astype(times.dtype) == times
    except OverflowError:
        is_same = np.zeros(1, bool)
    if not (is_same | np.isnat(times)).all():
        raise ValueError(f"field {name!r} has a time that {dtype} has no place for")
    return converted


def _structs(source: RecordType, target: RecordType, pa_type: Any) -> Make:
    import pyarrow as pa

    make_columns = _fields_maker(source, target, list(pa_type))
    return lambda values: pa.Array.from_buffers(pa_type, len(values), [None], children=make_columns(values))


def _lists(source: schema.Array, target: schema.Array | schema.List, pa_type: Any, name: str) -> Make:
    import pyarrow as pa

    length = source.shape[0]
    make_items = _maker(schema.row_of(source), schema.row_of(target), pa_type.value_type, f"{name}[]")
    is_fixed = pa.types.is_fixed_size_list(pa_type)

    def make(values: Values) -> Column:
        if (
            not values.dtype.itemsize and values.size > _MAX_EMPTY_ITEMS
        ):  # a layout from outside costs no bytes for them
            raise ValueError(f"field {name!r} has {values.size} items of no bytes, which is too many")
        items = make_items(values.reshape(len(values) * length, *values.shape[2:]))
        if is_fixed:
            return pa.Array.from_buffers(pa_type, len(values), [None], children=[items])
        return _variable_lists(len(values), length, items, pa_type)

    return make


def _variable_lists(count: int, length: int, items: Column, pa_type: Any) -> Column:
    """Lists of the same length in a column of those of any."""
    import numpy as np
    import pyarrow as pa

    ends = np.arange(count + 1) * length
    if pa.types.is_large_list(pa_type):
        return pa.LargeListArray.from_arrays(pa.array(ends), items, type=pa_type)
    if pa.types.is_list(pa_type):
        return pa.ListArray.from_arrays(pa.array(ends).cast(pa.int32()), items, type=pa_type)
    # The views of lists, which can't be cast to.
    size = pa.int64() if pa.types.is_large_list_view(pa_type) else pa.int32()
    cls = pa.LargeListViewArray if size == pa.int64() else pa.ListViewArray
    starts, lengths = pa.array(ends[:-1]).cast(size), pa.array(np.full(count, length)).cast(size)
    return cls.from_arrays(starts, lengths, items, type=pa_type)
