"""What Spark's types are as Arrow's, on a channel and back.

A column that may be null says so in a field's metadata, as Arrow's schemas do on all typed channels. Times with a zone
travel in UTC: a session's zone is how its people see an instant, not what the instant is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type

from echannel_ray.errors import NotSerialisable, TypeMismatch

ZONE: Final = "UTC"
_CARRIED: Final = (
    spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.FloatType,
    spark.DoubleType, spark.DecimalType, spark.StringType, spark.BinaryType, spark.DateType, spark.TimestampType,
    spark.TimestampNTZType, spark.DayTimeIntervalType, spark.TimeType, spark.NullType,
)  # fmt: skip
_MAX_DECIMAL_DIGITS: Final = 38


def travelling(schema: spark.StructType, channel: str) -> pa.Schema:
    """The type of a channel for rows of this schema; `TypeMismatch` names the column that can't travel."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise TypeMismatch(
                f"two columns are called {name!r}, and a channel's fields are found by name: rename one of them "
                "(`withColumnRenamed`, `alias`)",
                channel=channel,
                field=name,
            )
    return pa.schema([_field(each.name, each.dataType, each.nullable, each.name, channel) for each in schema.fields])


def _field(name: str, type_: spark.DataType, may_be_null: bool, path: str, channel: str) -> pa.Field:
    metadata = {"optional": "true"} if may_be_null else None
    return pa.field(name, _type(type_, path, channel), nullable=may_be_null, metadata=metadata)


def _type(type_: spark.DataType, path: str, channel: str) -> pa.DataType:
    if isinstance(type_, spark.ArrayType):
        return pa.list_(_field("item", type_.elementType, type_.containsNull, f"{path}[]", channel))
    if isinstance(type_, spark.MapType):
        key = _type(type_.keyType, f"{path}[key]", channel)
        return pa.map_(key, _field("value", type_.valueType, type_.valueContainsNull, f"{path}[value]", channel))
    if isinstance(type_, spark.StructType):
        return pa.struct(
            [_field(each.name, each.dataType, each.nullable, f"{path}.{each.name}", channel) for each in type_.fields]
        )
    if isinstance(type_, _CARRIED):
        return to_arrow_type(type_, timezone=ZONE)
    raise TypeMismatch(
        f"column {path!r} is {type_.simpleString()}, which can't travel: leave it out, or cast it to a number, text, "
        "binary, a day-time interval or an array, map or struct of such (intervals of months: to their number)",
        channel=channel,
        field=path,
        got=type_.simpleString(),
    )


def spark_schema(schema: pa.Schema, channel: str) -> spark.StructType:
    """What rows of a channel are in Spark: of types that Spark hasn't, the next wider that it has."""
    fields = []
    for field in schema:
        try:
            fields.append(_widened_field(field))
        except TypeError as error:
            raise TypeMismatch(
                f"field {field.name!r} of channel {channel!r} has no type in Spark: {error}. Read the channel without "
                "it: give a schema with the other fields (`.schema(...)`)",
                channel=channel,
                field=field.name,
            ) from None
    return from_arrow_schema(pa.schema(fields))


def _widened_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _widened(field.type), field.nullable)


def _widened(type_: pa.DataType) -> pa.DataType:
    is_a = pa.types
    if is_a.is_struct(type_):
        return pa.struct([_widened_field(each) for each in type_])
    if is_a.is_map(type_):
        return pa.map_(_widened(type_.key_type), _widened_field(type_.item_field))
    if hasattr(type_, "value_field"):
        return pa.list_(_widened_field(type_.value_field))
    for is_kind, widen in _WIDER:
        if is_kind(type_):
            return widen(type_)
    return type_


def _decimal(type_: pa.DataType) -> pa.DataType:
    if type_.precision > _MAX_DECIMAL_DIGITS:
        raise TypeError(f"{type_} has more than {_MAX_DECIMAL_DIGITS} digits")
    return pa.decimal128(type_.precision, type_.scale)


_Is = Callable[[pa.DataType], bool]
_WIDER: Final[list[tuple[_Is, Callable[[pa.DataType], pa.DataType]]]] = [
    (pa.types.is_uint8, lambda type_: pa.int16()),
    (pa.types.is_uint16, lambda type_: pa.int32()),
    (pa.types.is_uint32, lambda type_: pa.int64()),
    (pa.types.is_uint64, lambda type_: pa.decimal128(20, 0)),
    (pa.types.is_float16, lambda type_: pa.float32()),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_fixed_size_binary, lambda type_: pa.binary()),
    (pa.types.is_date, lambda type_: pa.date32()),
    (pa.types.is_time, lambda type_: pa.time64("ns")),
    # Of nanoseconds those that are whole microseconds: `cast` refuses others rather than to round them.
    (pa.types.is_timestamp, lambda type_: pa.timestamp("us", ZONE if type_.tz else None)),
    (pa.types.is_duration, lambda type_: pa.duration("us")),
]


def declared(schema: spark.StructType) -> pa.Schema:
    """What Spark wants batches of this schema to be, to the letter."""
    return to_arrow_schema(schema, timezone=ZONE)


def check_readable(schema: pa.Schema, wanted: pa.Schema, channel: str) -> None:
    """`TypeMismatch` where a channel's rows can't be read as what somebody has declared."""
    for field in wanted:
        index = schema.get_field_index(field.name)
        given = schema.field(index).type if index >= 0 else None
        if given is None or not _is_castable(given, field.type):
            has = "no such field" if given is None else str(given)
            raise TypeMismatch(
                f"channel {channel!r} can't be read so: column {field.name!r} is declared as {field.type}, and the "
                f"channel has {has}. Leave `.schema(...)` out, or declare what the channel has",
                channel=channel,
                field=field.name,
            )


def _is_castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    # Arrow would take a time without a zone for one in UTC.
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and bool(given.tz) != bool(wanted.tz):
        return False
    try:
        pa.array([], given).cast(wanted)
    except pa.ArrowException:
        return False
    return True


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with this schema: columns by name, nulls for one that is missing. Nothing is rounded or cut off."""
    if batch.schema.equals(schema, check_metadata=True):  # which say what may be null
        return batch
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    column = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, field.type)
    reason = None
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            reason = f"not every value of it is a {field.type} ({error})"
    if column.null_count and not field.nullable:
        reason = f"it has {column.null_count} nulls, where none may be"
    if reason is not None:
        raise NotSerialisable(
            f"column {field.name!r} can't be converted: {reason}. Convert it before, or declare another type for it",
            path=field.name,
            reason=reason,
        )
    return column
