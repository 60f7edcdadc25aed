"""Types of a schema as people write them: "float", "list[int32]", "{x: float, y: float}"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from echannel_ray.schemas import schema


def type_text(type_: Any) -> str:
    """A type as text, for people to read."""
    match type_:
        case schema.Int(bits=64, signed=True):
            return "int"
        case schema.Int():
            return f"{'' if type_.signed else 'u'}int{type_.bits}"
        case schema.Float():
            return "float" if type_.bits == 64 else f"float{type_.bits}"
        case schema.Complex():
            return "complex" if type_.bits == 128 else f"complex{type_.bits}"
        case schema.Text():
            return _with("str", type_.chars)
        case schema.Bytes():
            return _with("bytes", type_.size, "padded" if type_.padded else None)
        case schema.Timestamp(zone=None):
            return _with("datetime", None if type_.unit == "us" else type_.unit)
        case schema.Timestamp():
            return _with("datetime64", type_.unit, type_.zone or None)
        case schema.Time():
            return _with("time", None if type_.unit == "us" else type_.unit)
        case schema.Duration():
            return _with("timedelta", None if type_.unit == "us" else type_.unit)
        case schema.Decimal():
            return _with("decimal", type_.precision, type_.scale)
        case schema.Enum():
            return " | ".join(dict.fromkeys(repr(value) for _, value in type_.members))
        case schema.Anything():
            return "Any"
        case schema.Bool() | schema.Date() | schema.Uuid():
            return type(type_).__name__.lower()
    return _nested_text(type_)


def _nested_text(type_: Any) -> str:
    match type_:
        case schema.Array():
            item = type_text(type_.item)
            return f"{f'({item})' if '|' in item and item[0] != '{' else item}{list(type_.shape)}"
        case schema.List():
            return f"list[{type_text(type_.item)}]"
        case schema.Set():
            return f"set[{type_text(type_.item)}]"
        case schema.Tuple():
            return f"tuple[{', '.join(map(type_text, type_.items)) or '()'}]"
        case schema.Map():
            return f"dict[{type_text(type_.key)}, {type_text(type_.value)}]"
        case schema.Optional():
            return f"{type_text(type_.item)} | None"
        case schema.Union():
            return " | ".join(map(type_text, type_.items))
        case schema.RecordType():
            return "{" + ", ".join(f"{field.name}: {type_text(field.type)}" for field in type_.fields) + "}"
    raise TypeError(f"{type_!r} is no type of a schema")


def _with(name: str, *limits: object) -> str:
    given = ", ".join(str(limit) for limit in limits if limit is not None)
    return f"{name}[{given}]" if given else name


# What `type_named` knows: as `type_text` writes them.
_NAMED: Final[dict[str, Any]] = {
    type_text(type_): type_
    for type_ in (
        schema.Bool(), schema.Text(), schema.Bytes(), schema.Timestamp(), schema.Date(), schema.Time(),
        schema.Duration(), schema.Decimal(), schema.Uuid(), schema.Anything(), schema.Float(), schema.Float(32),
        *(schema.Int(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    )
}  # fmt: skip
_OPTIONAL: Final = " | None"
_MAX_NESTED: Final = 8


def type_named(text: str) -> Any:
    """The type that is written so; `ValueError` where it is none of those that can be declared by a text."""
    text = text.strip()
    if text.endswith(_OPTIONAL):
        return schema.Optional(type_named(text[: -len(_OPTIONAL)]))
    if text.startswith("list[") and text.endswith("]") and text.count("[") <= _MAX_NESTED:
        return schema.List(type_named(text[5:-1]))
    if text not in _NAMED:
        raise ValueError(
            f"{text[:80]!r} is no type that can be declared by its name: take one of {', '.join(_NAMED)}, a list[…] of "
            "one, or one with ' | None' behind it"
        )
    return _NAMED[text]


def record_named(fields: Mapping[str, str]) -> schema.RecordType:
    """A record of fields with such types."""
    return schema.RecordType(tuple(schema.Field(name, type_named(text)) for name, text in fields.items()))
