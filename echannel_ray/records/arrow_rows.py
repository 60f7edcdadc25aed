"""Arrow's record batches as rows of values, and rows as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from echannel_ray.records.arrow import Batch, Column, pairs_type, plain_type
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import RecordType


def rows_of(batch: Batch, record: RecordType) -> Iterable[tuple[Any, ...]]:
    """The rows as tuples of values, as the decoders of records make them."""
    columns = [_values(column, field.type) for field, column in zip(record.fields, batch.columns, strict=True)]
    return zip(*columns, strict=True)


def _values(column: Column, type_: schema.Type) -> Sequence[Any]:
    import pyarrow as pa

    match type_:
        case schema.Optional():
            return _values_or_none(column, type_.item)
        case schema.Timestamp() | schema.Duration():
            return _plain_values(column.cast(pa.int64()), type_)
        case schema.Float(bits=16):
            return _plain_values(column.cast(pa.float32()), type_)  # else they may be NumPy's scalars
        case schema.RecordType():
            return list(zip(*map(_values, column.flatten(), (field.type for field in type_.fields)), strict=True))
        case schema.List() | schema.Array():
            return _lists(column, schema.row_of(type_))
        case schema.Map():
            pair = RecordType((schema.Field("key", type_.key), schema.Field("value", type_.value)))
            return [dict(each) for each in _lists(column.cast(pairs_type(column.type)), pair)]
    return _plain_values(column, type_)


def _plain_values(column: Column, type_: schema.Type) -> Sequence[Any]:
    if column.null_count and not isinstance(type_, schema.Enum):
        raise ValueError(f"a column of {type_} has nulls")
    return column.to_pylist()  # type: ignore[no-any-return]


def _values_or_none(column: Column, item: schema.Type) -> Sequence[Any]:
    if not column.null_count:
        return _values(column, item)
    given = iter(_values(column.drop_null(), item))
    return [next(given) if is_valid else None for is_valid in column.is_valid().to_pylist()]


def _lists(column: Column, item: schema.Type) -> Sequence[Any]:
    """Lists, cut out of the values of all of them."""
    import pyarrow.compute as pc

    if column.null_count:
        raise ValueError("a column of lists has nulls")
    values = iter(_values(column.flatten(), item))
    return [[next(values) for _ in range(length)] for length in pc.list_value_length(column).to_pylist()]


def batch_of_rows(rows: Sequence[dict[str, Any]], record: RecordType, pa_schema: Any) -> Batch:
    """A record batch of generic records."""
    import pyarrow as pa

    columns = []
    for field, declared in zip(record.fields, pa_schema, strict=True):
        values = [_for_arrow(row[field.name], field.type) for row in rows]
        plain = plain_type(declared.type)
        column = pa.array(values, plain)
        columns.append(column if plain == declared.type else column.cast(declared.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa_schema)


def _for_arrow(value: Any, type_: schema.Type) -> Any:
    """A generic record's value as pyarrow takes it."""
    match type_:
        case schema.Optional():
            return None if value is None else _for_arrow(value, type_.item)
        case schema.Map():
            return [(_for_arrow(name, type_.key), _for_arrow(each, type_.value)) for name, each in value.items()]
        case schema.List() | schema.Array() | schema.Set():
            return [_for_arrow(each, schema.row_of(type_)) for each in value]
        case RecordType():
            return {field.name: _for_arrow(value[field.name], field.type) for field in type_.fields}
        case schema.Uuid():
            return value.bytes
        case schema.Timestamp() | schema.Duration() if hasattr(value, "astype"):
            return int(value.astype("i8"))  # nanoseconds: NumPy's have no zone, and Arrow's may
        case schema.Timestamp(zone=None):
            if value.tzinfo is None:
                raise ValueError("a datetime without a time zone has no place in a column of those with one")
    return value
