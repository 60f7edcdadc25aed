"""The fields that a class declares, whichever library it belongs to: names, annotations and defaults.

Each library is asked for the fields that it knows itself, so class variables, private attributes, computed fields and
`InitVar`s are none, and the base classes' come where the library puts them. Aliases don't count: fields are attributes.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from typing_extensions import Format, get_annotations

from echannel_ray.formats import plain


class Member(NamedTuple):
    """A declared field. `default` and `is_optional` are those of `schema.Field`."""

    name: str
    annotation: Any
    default: bytes | None
    is_optional: bool


Kind = typing.Literal["pydantic", "dataclass", "struct", "named tuple", "typed dict"]

# What these make is the same each time; any other factory may have effects, or make something new (`uuid4`).
_PURE_FACTORIES: Final[tuple[Any, ...]] = (
    list, dict, set, frozenset, tuple, str, int, float, complex, bool, bytes, bytearray, deque,
)  # fmt: skip
_NO_DEFAULT: Final = object()


def kind_of(cls: Any) -> Kind | None:
    """What declares the fields of this class; None where it has none."""
    if not isinstance(cls, type):
        return None
    # `pydantic.main`: the package itself would import its parts when they are asked for.
    pydantic = sys.modules.get("pydantic.main")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        # A RootModel is a value without a name, and no record.
        return None if getattr(cls, "__pydantic_root_model__", False) else "pydantic"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "named tuple"
    # Not `typing.is_typeddict`: it does not know those of typing_extensions.
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
        return "typed dict"
    return None


def members_of(cls: Any) -> list[Member]:
    """The fields of a class of any such kind, in order; TypeError where an annotation can't be read."""
    kind = kind_of(cls)
    # Also pydantic's own dataclasses, whose defaults the standard library does not see.
    if kind == "pydantic" or hasattr(cls, "__pydantic_fields__"):
        return list(_of_pydantic(cls))
    hints = _hints(cls)
    if kind == "struct" or kind == "dataclass":
        fields: Any = msgspec.structs.fields(cls) if kind == "struct" else dataclasses.fields(cls)
        return [_member(each.name, hints[each.name], each.default, each.default_factory) for each in fields]
    if kind == "named tuple":
        defaults = cls._field_defaults
        # Those of `collections.namedtuple` have no annotations.
        return [_member(name, hints.get(name, Any), defaults.get(name, _NO_DEFAULT)) for name in cls._fields]
    return [_of_typed_dict(cls, name, annotation) for name, annotation in hints.items()]


def _of_pydantic(cls: Any) -> Iterator[Member]:
    if not cls.__pydantic_complete__:  # some annotation named what was not there yet
        try:
            if hasattr(cls, "model_rebuild"):
                cls.model_rebuild()
            else:
                sys.modules["pydantic.dataclasses"].rebuild_dataclass(cls)
        except Exception as error:
            raise _unreadable(cls, error) from error
    fields = cls.model_fields if hasattr(cls, "model_fields") else cls.__pydantic_fields__
    for name, field in fields.items():
        annotation = field.annotation
        for mark in field.metadata:  # which pydantic has taken off the annotation
            annotation = typing.Annotated[annotation, mark]
        if field.is_required():
            yield _member(name, annotation, _NO_DEFAULT)
        else:
            yield _member(name, annotation, field.default, field.default_factory or _NO_DEFAULT)


def _of_typed_dict(cls: Any, name: str, annotation: Any) -> Member:
    # By name: typing's and typing_extensions' are not the same. `__required_keys__` alone sees no annotation in text.
    is_marked = getattr(typing.get_origin(annotation), "_name", "") == "NotRequired"
    if is_marked or name not in cls.__required_keys__:
        raise TypeError(
            f"the field {name!r} of {cls.__qualname__} is not required, and records have all their fields: "
            "make it required, and `| None` where it may have no value"
        )
    return Member(name, annotation, None, False)


def _member(name: str, annotation: Any, default: Any, factory: Any = _NO_DEFAULT) -> Member:
    if not is_missing(factory):
        default = factory() if factory in _PURE_FACTORIES else _Unwritten
    if is_missing(default):
        return Member(name, annotation, None, False)
    return Member(name, annotation, _written(default), True)


class _Unwritten:
    """Stands for what a factory would make."""


def is_missing(default: Any) -> bool:
    """Whether a declaration has no default. Of `dataclasses.MISSING`, a class that travelled by value has a copy."""
    return default is _NO_DEFAULT or isinstance(default, type(dataclasses.MISSING)) or default is msgspec.NODEFAULT


def _written(value: Any) -> bytes | None:
    try:
        return plain.encode(_in_record_form(value, 0))
    except plain.NotPlain:
        return None


def _in_record_form(value: Any, depth: int) -> Any:
    """Records as dicts of their fields, members of enums as their values, UUIDs as text; all else as it is."""
    if depth > plain.MAX_DEPTH:
        raise plain.NotPlain("nested in itself")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return str(value)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_in_record_form(each, depth + 1) for each in value)
    if type(value) is deque:
        return [_in_record_form(each, depth + 1) for each in value]
    if type(value) is dict:
        return {_in_record_form(key, depth + 1): _in_record_form(each, depth + 1) for key, each in value.items()}
    if kind_of(type(value)) is not None:
        names = [member.name for member in members_of(type(value))]
        return {name: _in_record_form(getattr(value, name), depth + 1) for name in names}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind in "biufc":
        return value.tolist()
    return value


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise _unreadable(cls, error) from error


def _unreadable_field(cls: Any) -> str:
    for base in reversed(cls.__mro__):
        namespace = vars(sys.modules.get(base.__module__, typing))
        for name, annotation in get_annotations(base, format=Format.FORWARDREF).items():
            alone = type(name, (), {"__annotations__": {name: annotation}, "__module__": base.__module__})
            try:
                typing.get_type_hints(alone, dict(namespace))
            except Exception:
                return name
    return "?"


def _unreadable(cls: Any, error: Exception) -> TypeError:
    reason = str(error).partition("\n")[0]
    return TypeError(
        f"the annotation of the field {_unreadable_field(cls)!r} of {cls.__qualname__} can't be read: {reason}. Import "
        "what it names when the program runs, not only for type checkers, and define such classes outside functions"
    )
