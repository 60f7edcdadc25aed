"""What a channel's type is, as plain data that managers keep, compare and extend without having the class.

It is `{"kind", "name", "fields": {name: text}, "schema", "extensions"}`. The last two count: what the channel was
defined with, and what its producers' types have added since, each as `schema.as_bytes` writes it; the others are for
people.
"""

from __future__ import annotations

from typing import Any, Final

from echannel_ray.errors import TypeMismatch
from echannel_ray.schemas import opening_rules, schema
from echannel_ray.schemas.declarations import schema_of, source_of
from echannel_ray.schemas.type_texts import type_text

__all__ = [
    "certain_of", "check_consumer", "check_producer", "compare", "describe", "described", "opened", "readable_of",
    "record_of", "schema_of", "with_defaults_of",
]  # fmt: skip

_NAMES: Final = {"numpy": "numpy:dtype", "arrow": "pyarrow:Schema"}
_NOTHING: Final = schema.as_bytes(schema.RecordType(()))


def describe(event_type: Any) -> dict[str, Any] | None:
    """The declaration of a channel's type; None for an untyped channel, TypeError for what can't be a type."""
    if event_type is None:
        return None
    kind = source_of(event_type)
    # ":" as in entry points: a qualified name may have dots of its own.
    name = _NAMES.get(kind) or f"{event_type.__module__}:{event_type.__qualname__}"
    return {**described(schema_of(event_type)), "kind": kind, "name": name}


def described(record: schema.RecordType) -> dict[str, Any]:
    """The declaration of a record's schema, whoever has declared it."""
    return {
        "kind": "record",
        "name": "Record",
        "fields": _texts(record),
        "schema": schema.as_bytes(record),
        "extensions": _NOTHING,
    }


def opened(channel: str, defined: dict[str, Any] | None, asked: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a channel that was `defined` so has from then on, opened as `asked`; `TypeMismatch` where it can't be.

    What the type has besides extends the channel.
    """
    compare(channel, defined, asked)
    if defined is None or asked is None:
        return defined
    record, extensions = _parts(defined)
    theirs = schema.record_from(asked["schema"])
    try:
        extensions = opening_rules.extended(record, theirs, extensions)
    except ValueError as error:
        message = f"channel {channel!r} can't be opened so: it would have {error} beyond those that it was created with"
        raise TypeMismatch(message, channel=channel, field=None) from None
    texts = {**defined["fields"], **_texts(extensions)}
    return {**defined, "fields": texts, "extensions": schema.as_bytes(extensions)}


def compare(channel: str, defined: dict[str, Any] | None, asked: dict[str, Any] | None) -> None:
    """Raise `TypeMismatch` where a channel that was `defined` so can't be opened as `asked`; None asks for nothing."""
    if asked is None:
        return
    record, extensions = _parts(_typed(channel, defined, asked["name"]))
    opening_rules.check_opening(channel, record, schema.record_from(asked["schema"]), extensions)


def check_producer(channel: str, defined: dict[str, Any] | None, event_type: Any) -> None:
    """Raise `TypeMismatch` where events of a type can't be published to a channel that was `defined` so."""
    theirs = schema_of(event_type)
    record, extensions = _parts(_typed(channel, defined, event_type))
    opening_rules.check_producer(channel, record, theirs, extensions)


def check_consumer(channel: str, defined: dict[str, Any] | None, event_type: Any) -> None:
    """Raise `TypeMismatch` where a channel that was `defined` so has no events of a type."""
    theirs = schema_of(event_type)
    record, extensions = _parts(_typed(channel, defined, event_type))
    opening_rules.check_consumer(channel, record, theirs, extensions)


def record_of(defined: dict[str, Any] | None) -> schema.RecordType:
    """The record of a channel that was `defined` so: the fields of its definition first, then what extends it."""
    record, extensions = _parts(defined) if defined is not None else (schema.RecordType(()), schema.RecordType(()))
    return schema.RecordType((*record.fields, *extensions.fields))


def certain_of(defined: dict[str, Any] | None) -> schema.RecordType:
    """The record of those fields that each event has, or that have a default to be used where one lacks them."""
    return _certain(record_of(defined))


def readable_of(defined: dict[str, Any]) -> schema.RecordType:
    """The same, but without what extends the channel: what E-code may read. So equal texts stay equal, whoever adds to
    the channel's type meanwhile.
    """
    return _certain(_parts(defined)[0])


def _certain(record: schema.RecordType) -> schema.RecordType:
    return schema.RecordType(tuple(each for each in record.fields if each.default is not None or not each.is_optional))


def with_defaults_of(defined: dict[str, Any] | None, record: schema.RecordType) -> schema.RecordType:
    """A consumer's record, with the channel's defaults where it has none of its own."""
    channel = record_of(defined)
    fields = []
    for field in record.fields:
        there = channel.field(field.name)
        if there is not None and there.default is not None and not field.is_optional:
            field = schema.Field(field.name, field.type, there.default, True)
        fields.append(field)
    return schema.RecordType(tuple(fields))


def _parts(defined: dict[str, Any]) -> tuple[schema.RecordType, schema.RecordType]:
    return schema.record_from(defined["schema"]), schema.record_from(defined["extensions"])


def _typed(channel: str, defined: dict[str, Any] | None, asked: Any) -> dict[str, Any]:
    if defined is not None:
        return defined
    name = asked if isinstance(asked, str) else (describe(asked) or {}).get("name")
    message = (
        f"channel {channel!r} is untyped, and can't be opened with the type {name}: "
        "open it without a type, or delete it and create it with one"
    )
    raise TypeMismatch(message, channel=channel, field=None, expected=None, got=name)


def _texts(record: schema.RecordType) -> dict[str, str]:
    return {field.name: type_text(field.type) for field in record.fields}
