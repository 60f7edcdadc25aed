"""What a channel's declared type is, as plain data that managers keep and compare without having the class.

Nothing here imports NumPy, pyarrow or pydantic: who passes one of their types has imported them.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable
from typing import Any

import msgspec

from echannel_ray.errors import TypeMismatch

_ADVICE = (
    "an event type is a pydantic model, a dataclass, a msgspec.Struct, a NumPy structured dtype or a pyarrow.Schema; "
    "for any other events leave it out, and the channel is untyped"
)


def describe(event_type: Any) -> dict[str, Any] | None:
    """The declaration of a channel's type, `{"kind", "name", "fields": {name: type}}`; None for an untyped channel."""
    if event_type is None:
        return None
    if isinstance(event_type, type):
        return _describe_class(event_type)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(event_type, numpy.dtype):
        return _describe_dtype(event_type)
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(event_type, pyarrow.Schema):
        return _describe_schema(event_type)
    raise TypeError(f"{event_type!r} can't be an event type: {_ADVICE}")


def compare(channel: str, defined: dict[str, Any] | None, asked: dict[str, Any] | None) -> None:
    """Raise `TypeMismatch` where a channel that was `defined` so can't be opened as `asked`; None asks for nothing.

    Fields match by name, whatever their order. Of the type's name only the class counts, not its module: the same file
    is `__main__` for the process that runs it, and a module for those that import it.
    """
    if asked is None:
        return
    if defined is None:
        message = (
            f"channel {channel!r} is untyped, and can't be opened with the type {asked['name']}: "
            "open it without a type, or delete it and create it with one"
        )
        raise TypeMismatch(message, channel=channel, field=None, expected=None, got=asked["name"])
    # The fields first: two classes with unequal fields mostly have unequal names too, and a field says what to change.
    expected: dict[str, str] = defined["fields"]
    got: dict[str, str] = asked["fields"]
    for name in [*expected, *(name for name in got if name not in expected)]:
        if expected.get(name) != got.get(name):
            raise _mismatch(channel, name, expected.get(name), got.get(name))
    if defined["kind"] != asked["kind"]:
        raise _mismatch(channel, None, f"{defined['kind']} {defined['name']}", f"{asked['kind']} {asked['name']}")
    if _class_name(defined) != _class_name(asked):
        raise _mismatch(channel, None, defined["name"], asked["name"])


def _mismatch(channel: str, field: str | None, expected: str | None, got: str | None) -> TypeMismatch:
    if field is None:
        difference = f"its type is {expected}, not {got}"
    elif expected is None:
        difference = f"its type has no field {field!r} (here: {got})"
    elif got is None:
        difference = f"its type has a field {field!r} ({expected}) that is missing here"
    else:
        difference = f"its field {field!r} is {expected}, not {got}"
    advice = "Use the type that it was created with, or another channel"
    message = f"channel {channel!r} can't be opened so: {difference}. {advice}"
    return TypeMismatch(message, channel=channel, field=field, expected=expected, got=got)


def _class_name(declaration: dict[str, Any]) -> str:
    return str(declaration["name"]).rpartition(":")[2]


def _describe_class(cls: type) -> dict[str, Any]:
    # `pydantic.main`: the package itself would import its parts when they are asked for.
    pydantic = sys.modules.get("pydantic.main")
    fields: Iterable[tuple[str, Any]]
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        kind = "pydantic"
        fields = [(name, field.annotation) for name, field in cls.model_fields.items()]  # type: ignore[attr-defined]
    elif issubclass(cls, msgspec.Struct):
        kind = "struct"
        hints = _hints(cls)
        fields = [(name, hints[name]) for name in cls.__struct_fields__]
    elif dataclasses.is_dataclass(cls):
        kind = "dataclass"
        hints = _hints(cls)
        fields = [(field.name, hints.get(field.name, field.type)) for field in dataclasses.fields(cls)]
    else:
        raise TypeError(f"the class {cls.__qualname__} can't be an event type: {_ADVICE}")
    return {
        "kind": kind,
        # ":" as in entry points: a qualified name may have dots of its own.
        "name": f"{cls.__module__}:{cls.__qualname__}",
        "fields": {name: type_text(annotation) for name, annotation in fields},
    }


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:
        # A name that only a type checker can see: the annotations as they were written then.
        hints: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            hints.update(inspect.get_annotations(base))
        return hints


def type_text(annotation: Any) -> str:
    """An annotation as text, equal for equal types however they were spelled (`Optional[int]` is `int | None`)."""
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(map(type_text, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None and arguments:
        return f"{type_text(origin)}[{', '.join(map(type_text, arguments))}]"
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(type_text, annotation))}]"
    if isinstance(annotation, type):
        return annotation.__qualname__
    return str(annotation).removeprefix("typing.")


def _describe_dtype(dtype: Any) -> dict[str, Any]:
    if dtype.names is None:
        raise TypeError(f"the dtype {dtype} can't be an event type, since it has no fields: {_ADVICE}")
    if dtype.hasobject:
        raise TypeError(
            f"the dtype {dtype} can't be an event type: object fields have no fixed layout; use a dataclass"
        )
    return {"kind": "numpy", "name": "numpy:dtype", "fields": _dtype_fields(dtype)}


def _dtype_fields(dtype: Any) -> dict[str, str]:
    return {name: _dtype_text(dtype.fields[name][0]) for name in dtype.names}


def _dtype_text(dtype: Any) -> str:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{_dtype_text(base)}{list(shape)}"
    if dtype.names is not None:
        return "{" + ", ".join(f"{name}: {text}" for name, text in _dtype_fields(dtype).items()) + "}"
    return str(dtype.str)


def _describe_schema(schema: Any) -> dict[str, Any]:
    if len(set(schema.names)) != len(schema.names):
        raise TypeError("a pyarrow.Schema with two fields of one name can't be an event type: fields are found by name")
    fields = {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}
    return {"kind": "arrow", "name": "pyarrow:Schema", "fields": fields}
