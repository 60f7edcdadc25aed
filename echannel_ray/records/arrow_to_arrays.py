"""Arrow's record batches as structured arrays, column by column.

The same comes out as by way of rows, except that columns have place for times before the year 1 and after 9999. What
fills arrays is made once for each pair of schemas. All that has a fixed size in Arrow has a column path: numbers,
flags, times, days, binary of a fixed size, fixed lists and structs. Text and binary of any length have no fixed place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from echannel_ray.records import layouts
from echannel_ray.records.arrays_to_arrow import rescaled
from echannel_ray.records.arrow import Batch, Column
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.makers import maker_of
from echannel_ray.records.sources import array_of
from echannel_ray.records.writer import Writer
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import RecordType

Places: TypeAlias = Any  # a numpy.ndarray, or a field of one
Fill: TypeAlias = Callable[[Places, Column], None]
Read: TypeAlias = Callable[[Column], Any]


def array_maker(source: RecordType, target: RecordType, dtype: Any) -> Callable[[Batch], Any]:
    """What makes arrays of `dtype`, which stands for `target`, of record batches whose columns are those of `source`.

    `source` is what the columns are by their Arrow types, not what somebody says of them.
    """
    import numpy as np

    fill = _record_filler(source, target)

    def make(batch: Batch) -> Any:
        made = np.zeros(batch.num_rows, dtype)
        fill(made, batch.columns)
        return made

    return make


def _record_filler(source: RecordType, target: RecordType) -> Callable[[Places, Sequence[Column]], None]:
    places = {name: index for index, name in enumerate(source.names)}
    fills = []
    for field in target.fields:
        given = source.field(field.name)
        if given is not None:
            fills.append((field.name, places[field.name], _filler(given.type, field.type, field.name)))
    absent = RecordType(tuple(field for field in target.fields if field.name not in places))
    defaults = _defaults(absent) if absent.fields else {}

    def fill(places: Places, columns: Sequence[Column]) -> None:
        for name, index, fill_field in fills:
            fill_field(places[name], columns[index])
        for name in absent.names:
            places[name][...] = defaults[name]

    return fill


def _defaults(absent: RecordType) -> Any:
    """A record of the defaults of the fields that do not come; `ValueError` where one has none."""
    for field in absent.fields:
        if field.default is None:
            raise ValueError(f"field {field.name!r} is missing, and has no default that can be written down")
    write = Writer(None, absent)
    (defaults,) = array_of(layouts.natural(absent), write(maker_of(RecordType(()), absent, GENERIC)(())), 1)
    return defaults


def _filler(source: schema.Type, target: Any, name: str) -> Fill:
    if isinstance(source, RecordType):
        fill_record = _record_filler(source, target)
        return lambda places, column: fill_record(places, _checked(column, name).flatten())
    if isinstance(source, schema.Array):
        fill_items = _filler(schema.row_of(source), schema.row_of(target), f"{name}[]")
        # The places have the shape already, and the innermost items are put into it all at once.
        return lambda places, column: fill_items(places, _checked(column, name).flatten())
    read = _reader(source, target, name)

    def fill(places: Places, column: Column) -> None:
        places[...] = read(_checked(column, name)).reshape(places.shape)

    return fill


def _checked(column: Column, name: str) -> Column:
    if column.null_count:
        raise ValueError(f"field {name!r} has {column.null_count} nulls, where none may be")
    return column


def _reader(source: schema.Type, target: Any, name: str) -> Read:
    match source:
        case schema.Timestamp() | schema.Duration():
            return _times(source, target, name)
        case schema.Date():
            return lambda column: rescaled(_days(column), f"M8[{target.unit}]", name)
        case schema.Bytes(size=int()):
            return _fixed_bytes
        case schema.Bool() | schema.Int() | schema.Float():
            return lambda column: column.to_numpy(zero_copy_only=False)
    raise ValueError(f"field {name!r} comes as Arrow's {source}, which has no fixed place")


def _times(source: schema.Timestamp | schema.Duration, target: Any, name: str) -> Read:
    import numpy as np
    import pyarrow as pa

    kind = "M8" if isinstance(source, schema.Timestamp) else "m8"
    # NaT has a place among nanoseconds, which stay NumPy's.
    is_kept = (target if kind == "M8" else source).unit == "ns"

    def read(column: Column) -> Any:
        times = column.cast(pa.int64()).to_numpy().view(f"{kind}[{source.unit}]")
        if not is_kept and np.isnat(times).any():
            raise ValueError(f"field {name!r} has what is not a time (NaT)")
        return rescaled(times, f"{kind}[{target.unit}]", name)

    return read


def _days(column: Column) -> Any:
    import pyarrow as pa

    return column.cast(pa.date32()).cast(pa.int32()).to_numpy().astype("i8").view("M8[D]")


def _fixed_bytes(column: Column) -> Any:
    import numpy as np

    size = column.type.byte_width
    if not size or not len(column):
        return np.zeros(len(column), f"V{size}")
    return np.frombuffer(column.buffers()[1], f"V{size}", len(column), column.offset * size)
