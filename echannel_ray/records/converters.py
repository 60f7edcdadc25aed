"""Values of one type of a schema as those of another, in the terms of who asked: its enums, containers and classes.

What comes in is what `struct` and msgpack make of a value (`flat.py`, `wire.py`): numbers for dates, lists for sets,
tuples for records. A converter is made once for each pair of types; it is None where there is nothing to do.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import datetime, time
from typing import Any, Final, TypeAlias

from echannel_ray.records import class_hints, moments, wire_types
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.schemas import schema
from echannel_ray.schemas.extension import lossless
from echannel_ray.schemas.type_texts import type_text

Convert: TypeAlias = Callable[[Any], Any]
Makers: TypeAlias = Callable[[schema.RecordType, schema.RecordType, Any], Convert]

_ONLY_NONE: Final = schema.Enum((("None", None),))
_SCALARS: Final = (
    schema.Bool | schema.Int | schema.Float | schema.Text | schema.Bytes | schema.Date | schema.Time
    | schema.Timestamp | schema.Duration | schema.Decimal | schema.Uuid | schema.Enum
)  # fmt: skip


def converter_of(source: schema.Type, target: schema.Type, annotation: Any, makers: Makers) -> Convert | None:
    """What makes values of `target` of those of `source`; `makers` makes what makes nested records."""
    if isinstance(target, schema.Anything):
        return None if source == target else converter_of(source, source, GENERIC, makers)
    if isinstance(source, schema.Optional):
        return _of_optional(source, target, annotation, makers)
    if isinstance(source, schema.Union):
        return _of_union(source, target, annotation, makers)
    if isinstance(target, schema.Optional):
        inner = converter_of(source, target.item, class_hints.within(annotation, target)[0], makers)
        return _none_for_no_time(inner) if isinstance(source, schema.Timestamp | schema.Duration) else inner
    if isinstance(target, schema.Union):
        index = _best(source, target)
        return converter_of(source, target.items[index], class_hints.within(annotation, target)[index], makers)
    if isinstance(source, schema.Enum):
        return _of_enum(source, target, annotation)
    if isinstance(source, schema.RecordType) and isinstance(target, schema.RecordType):
        return makers(source, target, class_hints.record_class(annotation))
    if isinstance(source, schema.Map) and isinstance(target, schema.Map):
        return _of_map(source, target, annotation, makers)
    if isinstance(target, schema.List | schema.Array | schema.Set | schema.Tuple):
        return _of_items(source, target, annotation, makers)
    return _of_scalar(source, target, annotation)


def _of_optional(source: schema.Optional, target: schema.Type, annotation: Any, makers: Makers) -> Convert | None:
    inner = converter_of(source.item, target, annotation, makers)
    # Without a place for None the target may still be an enum that has it as a member.
    nothing = None if isinstance(target, schema.Optional) else converter_of(_ONLY_NONE, target, annotation, makers)
    if inner is None and nothing is None:
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None if nothing is None else nothing(None)
        return value if inner is None else inner(value)

    return convert


def _none_for_no_time(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda value: None if moments.is_no_time(value) else inner(value)


def _of_union(source: schema.Union, target: schema.Type, annotation: Any, makers: Makers) -> Convert:
    items = [(wire_types.decoder_of(item), converter_of(item, target, annotation, makers)) for item in source.items]

    def convert(value: Any) -> Any:
        index, raw = value
        if not 0 <= index < len(items):
            raise ValueError(f"a union has no item {index}")
        decode, inner = items[index]
        item = decode(raw)
        return item if inner is None else inner(item)

    return convert


def _best(source: schema.Type, target: schema.Union) -> int:
    if source in target.items:
        return target.items.index(source)
    fitting = (i for i, item in enumerate(target.items) if lossless(source, item) is None)
    index = next(fitting, None)
    if index is None:
        raise ValueError(f"{type_text(source)} is no {type_text(target)}")
    return index


def _of_enum(source: schema.Enum, target: schema.Type, annotation: Any) -> Convert:
    cls = class_hints.class_of(annotation)
    if isinstance(target, schema.Enum) and isinstance(cls, type) and issubclass(cls, enum.Enum):
        members = {(type(member.value), member.value): member for member in cls}
        table: dict[Any, Any] = {(type(value), value): members[type(value), value] for _, value in source.members}
    else:
        make = _of_scalar(source, target, annotation) if not isinstance(target, schema.Enum) else None
        table = {(type(value), value): value if make is None else make(value) for _, value in source.members}

    def convert(value: Any) -> Any:
        try:
            return table[type(value), value]
        except KeyError:
            raise ValueError(f"{value!r} is no member of {type_text(source)}") from None

    return convert


def _of_map(source: schema.Map, target: schema.Map, annotation: Any, makers: Makers) -> Convert | None:
    inside = class_hints.within(annotation, target)
    key = converter_of(source.key, target.key, inside[0], makers)
    value = converter_of(source.value, target.value, inside[1], makers)
    cls = class_hints.class_of(annotation)
    if isinstance(cls, type) and issubclass(cls, defaultdict):
        make: Any = lambda items: defaultdict(None, items)  # noqa: E731
    else:
        make = OrderedDict if cls is OrderedDict else dict
    if key is None and value is None:
        return None if make is dict else make
    return lambda found: make(
        (name if key is None else key(name), each if value is None else value(each)) for name, each in found.items()
    )


def _of_items(source: schema.Type, target: Any, annotation: Any, makers: Makers) -> Convert | None:
    make = _container(target, annotation)
    inside = class_hints.within(annotation, target)
    if isinstance(target, schema.Tuple):
        assert isinstance(source, schema.Tuple)
        pairs = zip(source.items, target.items, inside, strict=True)
        converters = [converter_of(*each, makers) for each in pairs]
        return lambda values: make(
            value if convert is None else convert(value) for convert, value in zip(converters, values, strict=True)
        )
    wanted = schema.row_of(target)
    if isinstance(source, schema.Tuple):
        each_own = [converter_of(item, wanted, inside[0], makers) for item in source.items]
        return lambda values: make(
            value if convert is None else convert(value) for convert, value in zip(each_own, values, strict=True)
        )
    assert isinstance(source, schema.List | schema.Array | schema.Set)
    inner = converter_of(schema.row_of(source), wanted, inside[0], makers)
    if inner is None:
        return None if make is list else make
    return lambda values: make(map(inner, values))


def _container(target: Any, annotation: Any) -> Callable[[Iterable[Any]], Any]:
    """What makes a container of the class that the annotation asks for."""
    cls = class_hints.class_of(annotation)
    if cls in (tuple, frozenset, deque):
        return cls  # type: ignore[no-any-return]
    if hasattr(cls, "tobytes"):
        return _arrays(target)
    if isinstance(target, schema.Tuple):
        return tuple
    if isinstance(target, schema.Set):
        # Records and lists have no hash.
        return set if cls is not GENERIC or isinstance(target.item, _SCALARS) else list
    return list


def _arrays(target: Any) -> Callable[[Iterable[Any]], Any]:
    import numpy as np

    from echannel_ray.records.layouts import natural

    row = schema.row_of(target)
    while isinstance(row, schema.Array):
        row = row.item
    dtype = natural(schema.RecordType((schema.Field("item", row),)))["item"] if schema.is_fixed(row) else None
    return lambda values: np.array(list(values), dtype)


def _of_scalar(source: schema.Type, target: schema.Type, annotation: Any) -> Convert | None:
    cls = class_hints.class_of(annotation)
    if hasattr(cls, "newbyteorder") or (isinstance(cls, type) and cls.__module__ == "numpy"):
        return cls  # type: ignore[no-any-return]
    match target:
        case schema.Float():
            return None if isinstance(source, schema.Float) else float
        case schema.Complex():
            return lambda value: value if type(value) is complex else complex(*value)
        case schema.Bytes():
            return bytearray if cls is bytearray else None
        case schema.Timestamp():
            return _moment(source, target, cls is GENERIC)
        case schema.Date():
            return None if isinstance(source, schema.Date) else _day(source)
        case schema.Duration():
            return _span(source, cls is GENERIC)
    return None


def _moment(source: schema.Type, target: schema.Timestamp, is_generic: bool) -> Convert | None:
    if isinstance(source, schema.Date):
        return lambda value: datetime.combine(value, time())
    assert isinstance(source, schema.Timestamp)
    if source.zone is None:
        return None
    if is_generic and target.unit == "ns":
        return _numpy_times("datetime64", source.unit)
    zoned = schema.Timestamp(source.unit, target.zone if target.zone is not None else source.zone)
    return lambda value: moments.moment_of(value, zoned)


def _day(source: schema.Type) -> Convert:
    assert isinstance(source, schema.Timestamp)
    return lambda value: moments.moment_of(value, source).date()


def _span(source: schema.Type, is_generic: bool) -> Convert:
    assert isinstance(source, schema.Duration)
    if is_generic and source.unit == "ns":
        return _numpy_times("timedelta64", source.unit)
    return lambda value: moments.span_of(value, source.unit)


def _numpy_times(kind: str, unit: str) -> Convert:
    """Nanoseconds, which Python's own dates and times have no place for."""
    import numpy as np

    make = getattr(np, kind)
    nanoseconds = np.dtype(f"{kind}[ns]")
    return lambda value: make(moments.rescaled(value, unit, "ns"), "ns").astype(nanoseconds)
