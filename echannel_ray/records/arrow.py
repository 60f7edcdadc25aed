"""Arrow's record batches as blocks that travel, and as the columns of another schema."""

from __future__ import annotations

import functools
from typing import Any, Final, TypeAlias

from echannel_ray.errors import NotSerialisable
from echannel_ray.schemas import schema
from echannel_ray.schemas.column_types import record_of_arrow
from echannel_ray.schemas.schema import Format, RecordType

Block: TypeAlias = bytes | bytearray | memoryview
Batch: TypeAlias = Any  # a pyarrow.RecordBatch
Column: TypeAlias = Any  # a pyarrow.Array

_NESTED: Final = (schema.RecordType, schema.List, schema.Array, schema.Map)


def batch_format(pa_schema: Any, record: RecordType) -> Format:
    """The format of record batches of this schema, whose dictionaries are decoded on their way."""
    return Format(record, schema.ARROW, arrow=_plain_schema(pa_schema).serialize().to_pybytes())


def batch_block(batch: Batch, format: Format | None = None) -> Any:  # noqa: A002
    """A record batch (its slice only) as a block; `NotSerialisable` where a field without `None` has a null. `format`
    is that of such batches, where it is known already.
    """
    return plain_batch(batch, format).serialize()


def plain_batch(batch: Batch, format: Format | None = None) -> Batch:  # noqa: A002
    """The batch that a block has: without dictionaries, and with nulls only where they may be."""
    import pyarrow as pa

    if format is not None:
        plain, fields = arrow_schema(format.arrow), format.record.fields
    else:
        plain, fields = _plain_schema(batch.schema), record_of_arrow(batch.schema).fields
    columns = [_cast(column, field.type) for column, field in zip(batch.columns, plain, strict=True)]
    for field, column in zip(fields, columns, strict=True):
        _check_nulls(column, field.type, field.name)
    return pa.RecordBatch.from_arrays(columns, schema=plain)


def _plain_schema(pa_schema: Any) -> Any:
    """Without dictionaries, which Arrow sends apart, and without metadata but those that say what may be null."""
    import pyarrow as pa

    return pa.schema([_plain_field(each) for each in pa_schema])


def _plain_field(field: Any) -> Any:
    import pyarrow as pa

    mark = (field.metadata or {}).get(b"optional")
    metadata = None if mark is None else {b"optional": mark}
    return pa.field(field.name, plain_type(field.type), field.nullable, metadata)


def plain_type(type_: Any) -> Any:
    """The type without dictionaries, here and inside."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_) or str(type_).startswith("run_end_encoded"):
        return plain_type(type_.value_type)
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(each) for each in type_])
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if pa.types.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    return type_


def _cast(column: Column, type_: Any) -> Column:
    if str(column.type).startswith("run_end_encoded"):
        import pyarrow.compute as pc

        column = pc.run_end_decode(column)
    return column if column.type == type_ else column.cast(type_)


def _check_nulls(column: Column, type_: schema.Type, path: str) -> None:
    """Refuse nulls where there is no place for None, inside of structs and lists too."""
    if isinstance(type_, schema.Optional):
        if not isinstance(type_.item, _NESTED):
            return None  # most columns: to drop their nulls would copy them
        if column.null_count:
            column = column.drop_null()
        return _check_nulls(column, type_.item, path)
    if isinstance(type_, schema.Enum):
        return None  # the column of nulls
    if column.null_count:
        raise NotSerialisable(
            f"a record batch can't be published: field {path!r} has to have a value in every row, and has "
            f"{column.null_count} nulls. Fill them in, or declare the field with metadata={{'optional': 'true'}}",
            path=path,
        )
    if isinstance(type_, schema.RecordType):
        for field, inner in zip(type_.fields, column.flatten(), strict=True):
            _check_nulls(inner, field.type, f"{path}.{field.name}")
    elif isinstance(type_, schema.Map):
        # `keys` and `items` take no account of a slice.
        pairs = column.cast(pairs_type(column.type)).flatten()
        _check_nulls(pairs.field(1), type_.value, f"{path}[]")
    elif isinstance(type_, schema.List | schema.Array):
        _check_nulls(column.flatten(), schema.row_of(type_), f"{path}[]")
    return None


def pairs_type(type_: Any) -> Any:
    """A map's type as that of a list of pairs."""
    import pyarrow as pa

    return pa.list_(pa.struct([pa.field("key", type_.key_type, False), pa.field("value", type_.item_type)]))


@functools.lru_cache(256)
def arrow_schema(serialised: bytes) -> Any:
    """The schema that a format has as bytes."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(serialised))


def read_batch(format: Format, block: Block | Batch, count: int) -> Batch:  # noqa: A002
    """The record batch of a block, whose columns lie in it; `ValueError` where it is none of so many rows.

    One that this process has made itself (of a file, say) need not become bytes first.
    """
    import pyarrow as pa

    if isinstance(block, pa.RecordBatch):
        return block
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(block), arrow_schema(format.arrow))
        # The buffers are the sender's: lengths and offsets inside may point anywhere.
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"a block is no record batch of its format: {error}") from None
    if batch.num_rows != count:
        raise ValueError(f"a block of {count} records is a record batch of {batch.num_rows} rows")
    if batch.schema.names != list(format.record.names):
        raise ValueError("a format's Arrow schema does not fit its schema")
    for field, column in zip(format.record.fields, batch.columns, strict=True):
        try:
            _check_nulls(column, field.type, field.name)
        except NotSerialisable as error:
            raise ValueError(f"a block has nulls in its field {error.facts['path']!r}, where none may be") from None
    return batch


def adopted(batch: Batch, pa_schema: Any) -> Batch | None:
    """The batch with this schema, its columns as they are; None where that takes more than to leave out some."""
    import pyarrow as pa

    columns = []
    for field in pa_schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0 or batch.schema.field(index).type != field.type:
            return None
        columns.append(batch.column(index))
    return pa.RecordBatch.from_arrays(columns, schema=pa_schema)
