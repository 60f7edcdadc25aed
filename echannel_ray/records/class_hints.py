"""What annotations say beside a schema that was made of them: of which classes values are."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any, Final

from echannel_ray.schemas import schema
from echannel_ray.schemas.members import kind_of, members_of

GENERIC: Final = object()  # in the place of an annotation: there is no class, values are of the plainest kind

_TRANSPARENT: Final = frozenset({"Required", "ReadOnly", "Final", "ClassVar"})


def hints_of(cls: Any) -> dict[str, Any]:
    """The annotations of the fields of an event's class, by name; none for `GENERIC`."""
    return {} if kind_of(cls) is None else {member.name: member.annotation for member in members_of(cls)}


def stripped(annotation: Any) -> Any:
    """The annotation without what says nothing of its values' class: `Annotated`, `NewType`, `Final` and aliases."""
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated or getattr(origin, "_name", "") in _TRANSPARENT:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif type(origin).__name__ == "TypeAliasType":
            annotation = origin.__value__[typing.get_args(annotation)]
        else:
            return annotation


def class_of(annotation: Any) -> Any:
    """The class that values of this annotation have (`list` of `list[int]`); `GENERIC` where it names none."""
    annotation = stripped(annotation)
    origin = typing.get_origin(annotation) or annotation
    return origin if isinstance(origin, type) else GENERIC


def record_class(annotation: Any) -> Any:
    """The class of a nested record; `GENERIC` where it has none."""
    cls = class_of(annotation)
    return GENERIC if kind_of(cls) is None else cls


def within(annotation: Any, type_: schema.Type) -> Sequence[Any]:
    """The annotations of what values of this type are made of: of an optional's item, of a map's keys and values, …"""
    annotation = stripped(annotation)
    arguments = typing.get_args(annotation)
    match type_:
        case schema.Optional():
            others = _alternatives(annotation)
            return (typing.Union[tuple(others)] if others else annotation,)  # noqa: UP007 (known at run time only)
        case schema.Union():
            return _fitting(_alternatives(annotation), len(type_.items))
        case schema.Map():
            return _fitting(arguments, 2)
        case schema.Tuple():
            return _fitting(arguments, len(type_.items))
    is_array = class_of(annotation) not in (list, tuple) and hasattr(class_of(annotation), "tobytes")
    return (GENERIC,) if is_array or not arguments else arguments[:1]


def _fitting(arguments: Sequence[Any], count: int) -> Sequence[Any]:
    return arguments if len(arguments) == count else [GENERIC] * count


def _alternatives(annotation: Any) -> list[Any]:
    """What a union is of, None apart; nothing where it is no union."""
    annotation = stripped(annotation)
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return []
    found: list[Any] = []
    for each in typing.get_args(annotation):
        if each is not type(None):
            found += _alternatives(each) or [each]
    return found
