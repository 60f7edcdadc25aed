"""What NumPy's dtypes and Arrow's types mean as types of a schema.

Byte order, offsets and titles of a dtype are no part of it: they belong to a format's layout.

Every Arrow field may be null unless somebody says otherwise, so that says nothing of what was meant: fields are taken
as they are declared, without None, and a null that comes all the same is refused where it is published. One that means
it says so in its metadata, `pa.field("size", pa.int64(), metadata={"optional": "true"})`: it is `int | None`, and None
is its default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.formats import plain
from echannel_ray.schemas import schema

_NUMPY_UNITS: Final = frozenset({"W", "D", "h", "m", "s", "ms", "us", "ns"})
_MAX_FLOAT_BYTES: Final = 8


class NoType(TypeError):
    """Raised where there is no type of a schema; the text says why, and whoever catches it says where."""


def record_of_dtype(dtype: Any) -> schema.RecordType:
    """The schema of a structured dtype; TypeError naming the field that has none."""
    fields = []
    for name in dtype.names:
        try:
            fields.append(schema.Field(name, type_of_dtype(dtype.fields[name][0])))
        except NoType as error:
            raise NoType(f"the field {name!r} of the dtype {dtype} has no type that can travel: {error}") from None
    return schema.RecordType(tuple(fields))


def type_of_dtype(dtype: Any) -> schema.Type:
    """What one item of a dtype is."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return schema.Array(type_of_dtype(base), tuple(shape))
    if dtype.names is not None:
        return record_of_dtype(dtype)
    read = _BY_KIND.get(dtype.kind)
    if read is None:
        raise NoType(f"NumPy's {dtype} has no place of fixed size; use a dataclass, or a type of fixed size")
    return read(dtype)


def _float(dtype: Any) -> schema.Type:
    if dtype.itemsize > _MAX_FLOAT_BYTES:
        raise NoType(f"{dtype} differs from machine to machine; use float64")
    return schema.Float(8 * dtype.itemsize)


def _complex(dtype: Any) -> schema.Type:
    if dtype.itemsize > 2 * _MAX_FLOAT_BYTES:
        raise NoType(f"{dtype} differs from machine to machine; use complex128")
    return schema.Complex(8 * dtype.itemsize)


def _unit(dtype: Any) -> Any:
    unit, count = sys.modules["numpy"].datetime_data(dtype)
    if unit not in _NUMPY_UNITS or count != 1:
        raise NoType(f"{dtype} has none of the units W, D, h, m, s, ms, us and ns; use one, as in {dtype.kind}8[us]")
    return unit


_BY_KIND: Final[dict[str, Callable[[Any], schema.Type]]] = {
    "b": lambda dtype: schema.Bool(),
    "i": lambda dtype: schema.Int(8 * dtype.itemsize, True),
    "u": lambda dtype: schema.Int(8 * dtype.itemsize, False),
    "f": _float,
    "c": _complex,
    "M": lambda dtype: schema.Timestamp(_unit(dtype), ""),
    "m": lambda dtype: schema.Duration(_unit(dtype)),
    "S": lambda dtype: schema.Bytes(dtype.itemsize, True),
    "U": lambda dtype: schema.Text(dtype.itemsize // 4),
    "V": lambda dtype: schema.Bytes(dtype.itemsize),
}


def record_of_arrow(fields: Any, whole: str = "the schema") -> schema.RecordType:
    """The schema of Arrow's fields; TypeError naming the one that has none."""
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise NoType(f"{whole} has two fields {name!r}: fields are found by name, so give one another name")
    return schema.RecordType(tuple(_arrow_field(field) for field in fields))


def _arrow_field(field: Any) -> schema.Field:
    try:
        type_ = _nullable(field)
    except NoType as error:
        raise NoType(f"the Arrow field {field.name!r} has no type that can travel: {error}") from None
    if isinstance(type_, schema.Optional):
        return schema.Field(field.name, type_, plain.encode(None), True)
    return schema.Field(field.name, type_)


def _nullable(field: Any) -> schema.Type:
    """What a field, or the items of a list or map, may be."""
    type_ = _of_arrow(field.type)
    mark = (field.metadata or {}).get(b"optional")
    if mark is None:
        return type_
    if mark != b"true" or not field.nullable:
        raise NoType('its metadata has an "optional" that is no "true", or it is not nullable; use both or none')
    return type_ if isinstance(type_, schema.Optional) else schema.Optional(type_)


def _of_arrow(type_: Any) -> schema.Type:
    pyarrow = sys.modules["pyarrow"]
    is_a = pyarrow.types
    if isinstance(type_, pyarrow.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            return schema.Uuid()
        raise NoType(f"{type_} is an extension type; use its storage type, {type_.storage_type}")
    if is_a.is_dictionary(type_) or is_a.is_run_end_encoded(type_):
        return _of_arrow(type_.value_type)
    if is_a.is_fixed_size_list(type_):
        return _array(_nullable(type_.value_field), type_.list_size)
    if is_a.is_struct(type_):
        return record_of_arrow(list(type_), "a struct")
    if is_a.is_map(type_):
        return schema.Map(_of_arrow(type_.key_type), _nullable(type_.item_field))
    # Its views and large ones too, of which older releases know fewer.
    if hasattr(type_, "value_field"):
        return schema.List(_nullable(type_.value_field))
    return _simple(type_, str(type_))


def _array(item: schema.Type, size: int) -> schema.Type:
    if isinstance(item, schema.Array):
        return schema.Array(item.item, (size, *item.shape))
    return schema.Array(item, (size,))


_BY_NAME: Final[dict[str, schema.Type]] = {
    "null": schema.Enum((("None", None),)),
    "bool": schema.Bool(),
    "halffloat": schema.Float(16),
    "float": schema.Float(32),
    "double": schema.Float(64),
    **dict.fromkeys(["string", "large_string", "string_view"], schema.Text()),
    **dict.fromkeys(["binary", "large_binary", "binary_view"], schema.Bytes()),
}


def _simple(type_: Any, name: str) -> schema.Type:
    """A type without types inside."""
    is_a = sys.modules["pyarrow"].types
    if name in _BY_NAME:
        return _BY_NAME[name]
    if is_a.is_integer(type_):
        return schema.Int(type_.bit_width, not name.startswith("u"))
    if is_a.is_fixed_size_binary(type_):
        return schema.Bytes(type_.byte_width)
    if is_a.is_timestamp(type_):
        return schema.Timestamp(type_.unit, type_.tz or "")
    if is_a.is_date(type_):
        return schema.Date()
    if is_a.is_time(type_):
        return schema.Time(type_.unit)
    if is_a.is_duration(type_):
        return schema.Duration(type_.unit)
    if is_a.is_decimal(type_):
        return schema.Decimal(type_.precision, type_.scale)
    raise NoType(f"Arrow's {name}; use numbers, text, binary, dates and times, lists, maps and structs of such")
