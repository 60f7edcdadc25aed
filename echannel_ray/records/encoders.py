"""Values of fields as they travel: each checked against its type, with whatever is inside.

The slow part of writing: what is of the usual class never gets here (`writer.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from echannel_ray.formats import plain
from echannel_ray.records import class_hints, flat
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.scalars import Encoder, UnfitValue, scalar_encoder
from echannel_ray.schemas import schema
from echannel_ray.schemas.members import kind_of

RecordEncoders: TypeAlias = Callable[[schema.RecordType, Any], Encoder]

WIRE_ENCODE: Final = msgspec.msgpack.Encoder(uuid_format="bytes").encode


def encoder_of(type_: schema.Type, annotation: Any, record_encoder: RecordEncoders) -> Encoder:
    """What makes the msgpack form of values of this type; `record_encoder` does so for nested records."""

    def nested(inner: schema.Type, its_annotation: Any) -> Encoder:
        return encoder_of(inner, its_annotation, record_encoder)

    inside = class_hints.within(annotation, type_)
    match type_:
        case schema.RecordType():
            return record_encoder(type_, class_hints.record_class(annotation))
        case schema.Optional():
            return _optional(nested(type_.item, inside[0]))
        case schema.List():
            return _items(nested(type_.item, inside[0]), _is_sequence, "a list", type_.item)
        case schema.Set():
            # Generic records have lists of what has no hash.
            is_set = _is_set if class_hints.class_of(annotation) is not GENERIC else _is_set_or_list
            return _items(nested(type_.item, inside[0]), is_set, "a set", type_.item)
        case schema.Array():
            return _array(nested(type_.item, _innermost(annotation, type_)), type_.shape)
        case schema.Tuple():
            return _tuple([nested(item, each) for item, each in zip(type_.items, inside, strict=True)])
        case schema.Map():
            return _map(nested(type_.key, inside[0]), nested(type_.value, inside[1]))
        case schema.Union():
            classes = [_kind(item, each) for item, each in zip(type_.items, inside, strict=True)]
            return _union(classes, [nested(item, each) for item, each in zip(type_.items, inside, strict=True)])
    return scalar_encoder(type_)


def _innermost(annotation: Any, type_: schema.Array) -> Any:
    for _ in type_.shape:
        annotation = class_hints.within(annotation, type_)[0]
    return annotation


def _optional(item: Encoder) -> Encoder:
    def encode(value: Any) -> Any:
        return None if value is None else item(value)

    return encode


# Items of which C can say for all at once that nothing is to be done.
_PLAINEST: Final[dict[schema.Type, type]] = {
    schema.Bool(): bool, schema.Text(): str, schema.Bytes(): bytes, schema.Float(): float,
}  # fmt: skip


def _items(item: Encoder, is_fine: Callable[[Any], bool], needed: str, type_: schema.Type) -> Encoder:
    usual = {_PLAINEST[type_]} if type_ in _PLAINEST else None
    is_text = isinstance(type_, schema.Text)

    def encode(value: Any) -> Any:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not is_fine(value):
            raise UnfitValue(needed, value)
        if usual is not None and usual.issuperset(map(type, value)) and not (is_text and _has_surrogates(value)):
            return value if type(value) in (list, tuple, set, frozenset) else list(value)
        return _each(item, value)

    return encode


def _has_surrogates(texts: Any) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_set(value: Any) -> bool:
    return isinstance(value, set | frozenset)


def _is_set_or_list(value: Any) -> bool:
    return isinstance(value, set | frozenset | list)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | deque) and not isinstance(value, str | bytes | bytearray | memoryview)


def _each(item: Encoder, values: Any) -> list[Any]:
    made: list[Any] = []
    try:
        for value in values:
            made.append(item(value))  # noqa: PERF401 (its length says where it stopped)
    except UnfitValue as unfit:
        raise unfit.inside(f"[{len(made)}]") from None
    return made


def _array(item: Encoder, shape: tuple[int, ...]) -> Encoder:
    inner = item if len(shape) == 1 else _array(item, shape[1:])
    length = shape[0]
    needed = f"a list of {length} items" if len(shape) == 1 else f"an array of the shape {shape}"

    def encode(value: Any) -> Any:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not _is_sequence(value) or len(value) != length:
            raise UnfitValue(needed, value)
        return _each(inner, value)

    return encode


def _tuple(items: list[Encoder]) -> Encoder:
    def encode(value: Any) -> Any:
        if not _is_sequence(value) or len(value) != len(items):
            raise UnfitValue(f"a tuple of {len(items)} items", value)
        made: list[Any] = []
        try:
            for item, each in zip(items, value, strict=True):
                made.append(item(each))
        except UnfitValue as unfit:
            raise unfit.inside(f"[{len(made)}]") from None
        return made

    return encode


def _map(key: Encoder, value: Encoder) -> Encoder:
    def encode(mapping: Any) -> Any:
        if not isinstance(mapping, Mapping):
            raise UnfitValue("a dict", mapping)
        made: dict[Any, Any] = {}
        for name, each in mapping.items():
            try:
                made[_hashable(key(name))] = value(each)
            except UnfitValue as unfit:
                raise unfit.inside(f"[{name!r}]") from None
        return made

    return encode


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if type(value) in (list, tuple) else value


def _union(classes: list[Any], items: list[Encoder]) -> Encoder:
    """[which of them, the value]: a reader could otherwise not tell a date from a text."""

    def encode(value: Any) -> Any:
        exact = [i for i, cls in enumerate(classes) if type(value) is cls]
        for index in [*exact, *(i for i in range(len(items)) if i not in exact)]:
            try:
                return index, items[index](value)
            except UnfitValue:
                pass  # the next one may have a place for it
        names = ", ".join(getattr(cls, "__name__", "a record") for cls in classes)
        raise UnfitValue(f"one of {names}", value)

    return encode


_KINDS: Final[dict[type, type]] = {
    schema.Bool: bool, schema.Int: int, schema.Float: float, schema.Complex: complex, schema.Text: str,
    schema.Bytes: bytes, schema.Timestamp: datetime, schema.Date: date, schema.Time: time, schema.Duration: timedelta,
    schema.Decimal: Decimal, schema.Uuid: UUID, schema.Array: list, schema.List: list, schema.Set: set,
    schema.Tuple: tuple, schema.Map: dict, schema.RecordType: dict,
}  # fmt: skip


def _kind(type_: schema.Type, annotation: Any) -> Any:
    """The class that values of this type mostly have."""
    cls = class_hints.class_of(annotation)
    return _KINDS.get(type(type_)) if cls is GENERIC else cls


def record_encoder(record: schema.RecordType, cls: Any, nested: RecordEncoders | None = None) -> Encoder:
    """What makes the msgpack form of records of a class (of mappings, for `GENERIC`), checking each field."""
    hints = class_hints.hints_of(cls)
    encoders = [
        (field, encoder_of(field.type, hints.get(field.name, GENERIC), nested or record_encoder))
        for field in record.fields
    ]
    values_of = _attributes(cls, record) if has_attributes(cls) else _given(record)

    def encode(event: Any) -> list[Any]:
        made = []
        for (field, encode_field), value in zip(encoders, values_of(event), strict=True):
            try:
                made.append(encode_field(value))
            except UnfitValue as unfit:
                raise unfit.inside(field.name) from None
        return made

    return encode


def _attributes(cls: type, record: schema.RecordType) -> Callable[[Any], list[Any]]:
    getters = [(name, attrgetter(name)) for name in record.names]

    def values(event: Any) -> list[Any]:
        made = []
        for name, get in getters:
            try:
                made.append(get(event))
            except AttributeError:
                if isinstance(event, cls):
                    raise UnfitValue("set, since it has no value", None, name) from None
                raise UnfitValue(f"a {cls.__qualname__}", event) from None
        return made

    return values


def _given(record: schema.RecordType) -> Callable[[Any], list[Any]]:
    names = frozenset(record.names)

    def values(event: Any) -> list[Any]:
        if isinstance(event, Mapping):
            keys: Any = event
        elif getattr(getattr(event, "dtype", None), "names", None) and not event.shape:  # a record of NumPy's
            keys = event.dtype.names
        else:
            raise UnfitValue("a mapping of field names to values", event)
        for key in keys:
            if key not in names:
                needed = f"left out, since there is no such field (there are {', '.join(record.names)})"
                raise UnfitValue(needed, event[key], str(key))
        made = []
        for field in record.fields:
            if field.name in keys:
                made.append(event[field.name])
            elif field.default is not None:
                made.append(plain.decode(field.default))
            else:
                raise UnfitValue("given, since it has no default", None, field.name)
        return made

    return values


def has_attributes(cls: Any) -> bool:
    """Whether records of this class have their fields as attributes; as items otherwise."""
    return kind_of(cls) not in (None, "typed dict")


def flattened(type_: schema.Type, value: Any) -> Sequence[Any]:
    """The values that `struct` takes for one in its msgpack form, all of a fixed type."""
    match type_:
        case schema.Text():
            return (flat.from_text(value),)
        case schema.Complex():
            return tuple(value)
        case schema.Array():
            for _ in type_.shape[1:]:
                value = [each for row in value for each in row]
            return [each for item in value for each in flattened(type_.item, item)]
        case schema.RecordType():
            return [
                each for field, item in zip(type_.fields, value, strict=True) for each in flattened(field.type, item)
            ]
    return (value,)
