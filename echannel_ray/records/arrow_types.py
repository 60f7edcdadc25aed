"""The Arrow schema that records of a schema have, where the consumer names none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import RecordType

_UNITS: Final = ("s", "ms", "us", "ns")


def schema_of_record(record: RecordType) -> Any:
    """The Arrow schema of records of this schema; `ValueError` naming a field that Arrow has no type for."""
    import pyarrow as pa

    return pa.schema([_field(field.name, field.type, field.name) for field in record.fields])


def _field(name: str, type_: schema.Type, path: str) -> Any:
    import pyarrow as pa

    if isinstance(type_, schema.Optional):
        return pa.field(name, _arrow_type(type_.item, path), metadata={"optional": "true"})
    return pa.field(name, _arrow_type(type_, path), nullable=type_ == schema.Enum((("None", None),)))


def _arrow_type(type_: schema.Type, path: str) -> Any:
    import pyarrow as pa

    match type_:
        case schema.Array():
            made = _field("item", type_.item, path)
            for length in reversed(type_.shape):
                made = pa.field("item", pa.list_(made, length), nullable=False)
            return made.type
        case schema.List() | schema.Set():
            return pa.list_(_field("item", type_.item, path))
        case schema.Map():
            return pa.map_(_arrow_type(type_.key, path), _field("value", type_.value, path))
        case schema.RecordType():
            return pa.struct([_field(each.name, each.type, f"{path}.{each.name}") for each in type_.fields])
        case schema.Enum():
            return _enum_type(type_, path)
    make = _ARROW.get(type(type_))
    if make is None or (isinstance(type_, schema.Decimal) and type_.precision is None):
        raise ValueError(
            f"field {path!r} has no Arrow type: ask for a type without it, or for events instead of batches"
        )
    return make(pa, type_)


def _enum_type(type_: schema.Enum, path: str) -> Any:
    import pyarrow as pa

    kinds = {type(value) for _, value in type_.members}
    by_kind = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), type(None): pa.null()}
    if len(kinds) != 1:
        raise ValueError(f"field {path!r} has no Arrow type: its enum's values are of several")
    return by_kind[kinds.pop()]


_ARROW: Final[dict[type, Callable[[Any, Any], Any]]] = {
    schema.Bool: lambda pa, type_: pa.bool_(),
    schema.Int: lambda pa, type_: getattr(pa, f"{'' if type_.signed else 'u'}int{type_.bits}")(),
    schema.Float: lambda pa, type_: getattr(pa, f"float{type_.bits}")(),
    schema.Text: lambda pa, type_: pa.string(),
    schema.Bytes: lambda pa, type_: pa.binary() if type_.size is None or type_.padded else pa.binary(type_.size),
    # Of Python's dates those with a zone: a column has one kind only.
    schema.Timestamp: lambda pa, type_: pa.timestamp(*_timestamp(type_)),
    schema.Duration: lambda pa, type_: pa.duration(type_.unit if type_.unit in _UNITS else "s"),
    schema.Date: lambda pa, type_: pa.date32(),
    schema.Time: lambda pa, type_: (pa.time32 if type_.unit in ("s", "ms") else pa.time64)(type_.unit),
    schema.Decimal: lambda pa, type_: (pa.decimal128 if type_.precision <= 38 else pa.decimal256)(
        type_.precision, type_.scale or 0
    ),
    schema.Uuid: lambda pa, type_: pa.binary(16),
}


def _timestamp(type_: schema.Timestamp) -> tuple[str, str | None]:
    return type_.unit if type_.unit in _UNITS else "s", "UTC" if type_.zone is None else type_.zone or None
