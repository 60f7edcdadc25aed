"""Whether an event's values are what its class declares, constraints included: for producers that ask for it.

Writing checks that each value has its field's type. What a class demands beyond that (bounds, patterns, validators) is
known to its library only, which has looked when the event was made, and not since.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from echannel_ray.errors import NotSerialisable
from echannel_ray.schemas.members import kind_of, members_of

Validate: TypeAlias = Callable[[Any], None]
# A reason and the place that it is about, or None where all is well.
_Look: TypeAlias = Callable[[Any], "tuple[str, str] | None"]

_PLACE: Final = re.compile(r"(.*) - at `\$\.?(.*)`$", re.DOTALL)
_WITH_VALIDATION: Final = frozenset({"pydantic", "dataclass", "struct"})


def validator_of(event_class: Any) -> Validate:
    """What raises `NotSerialisable`, naming the field, for an event that its class would not let be made so."""
    if kind_of(event_class) not in _WITH_VALIDATION:
        return lambda event: None  # of a dtype's or an Arrow schema's values nothing else is declared
    return lambda event: _validate(event, event_class.__qualname__, "")


def _validate(event: Any, name: str, path: str) -> None:
    cls: Any = type(event)
    look, fields = _looking(cls)
    # Both libraries take an instance inside for valid, since it was when it was made.
    for field in fields:
        for step, inner in _instances(getattr(event, field, None), field):
            _validate(inner, name, f"{path}{step}.")
    found = look(event)
    if found is not None:
        reason, place = found
        place = (path + place).rstrip(".")
        where = f"field {place!r}: " if place else ""
        message = f"a {name} can't be an event: {where}{reason}. Publish one that its class would accept"
        raise NotSerialisable(message, type=name, reason=reason, path=place or None)


def _instances(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _instances(each, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for index, each in enumerate(value):
            yield from _instances(each, f"{path}[{index}]")
    elif kind_of(type(value)) in _WITH_VALIDATION:
        yield path, value


@functools.lru_cache(1024)
def _looking(cls: Any) -> tuple[_Look, tuple[str, ...]]:
    """What looks at the values of an instance, and its fields."""
    members = members_of(cls)
    names = tuple(member.name for member in members)
    if hasattr(cls, "__pydantic_validator__"):
        return functools.partial(_look_with_pydantic, cls), names
    # At a class of its own, so that no `__post_init__` runs.
    twin = msgspec.defstruct(cls.__name__, [(member.name, member.annotation) for member in members])
    return functools.partial(_look_with_msgspec, twin), names


def _look_with_pydantic(cls: Any, event: Any) -> tuple[str, str] | None:
    from pydantic import ValidationError

    from echannel_ray.formats.fields import key_of

    given = event.__dict__
    values = {key_of(name, field): given[name] for name, field in cls.__pydantic_fields__.items() if name in given}
    values.update(getattr(event, "__pydantic_extra__", None) or {})
    try:
        cls.__pydantic_validator__.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return first["msg"], ".".join(map(str, first["loc"]))
    return None


def _look_with_msgspec(twin: Any, event: Any) -> tuple[str, str] | None:
    try:
        msgspec.convert(event, twin, strict=True, from_attributes=True)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        return (found[1], found[2]) if found else (str(error), "")
    return None
