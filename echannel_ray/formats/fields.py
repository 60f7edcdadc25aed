"""Fields of pydantic models as plain data: how they are compared, how they travel, and how they become values again.

A *frozen* field is what nobody can change any more: an atom as it is, all else as its bytes.
"""

from __future__ import annotations

import ipaddress
import weakref
from collections import deque
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeVar
from uuid import UUID

import pydantic.dataclasses  # noqa: F401 (pydantic imports it when it first meets one: too late in a sandbox)
from pydantic import AliasChoices, BaseModel, ConfigDict, RootModel, TypeAdapter

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats import plain

M = TypeVar("M", bound=BaseModel)

ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, complex, datetime, date, time, timedelta, Decimal})
# They become text, and their annotations read them from it.
_TEXTUAL: Final = (
    UUID, PurePath, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
)  # fmt: skip
_set: Final = object.__setattr__


class _Encoded(bytes):
    """What a field that is no atom was, as plain bytes."""


class _Missing:
    """A field that had no value, or none that can be shared."""


MISSING: Final = _Missing()


def frozen_field(cls: type, name: str, value: Any) -> Any:
    """A field's value in a form that nobody can change and that can travel; `NotSerialisable` where there is none."""
    kind = type(value)
    if kind is float or kind is bool:
        return value
    try:
        if kind in ATOMS:
            is_usual = value.isascii() if kind is str else -(2**63) <= value < 2**63 if kind is int else True
            if not is_usual:
                plain.encode(value)  # text that is no Unicode, a number of thousands of digits
            return value
        return _Encoded(plain.encode(_plain(value, 0)))
    except plain.NotPlain as error:
        raise NotSerialisable(
            f"field {name!r} of {cls.__qualname__} can't be shared: {error}. Shared objects hold plain data, and "
            "models, dataclasses and enums that are made of it",
            path=name,
            field=name,
        ) from None


def frozen_or_missing(cls: type, name: str, value: Any) -> Any:
    """The value as a frozen field; `MISSING` where it can't be shared."""
    try:
        return frozen_field(cls, name, value)
    except (NotSerialisable, RuntimeError):  # such as a dict that another thread changes meanwhile
        return MISSING


def is_same(a: Any, b: Any) -> bool:
    """Whether two frozen fields are equal."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if a == b:
        return True
    if type(a) is not _Encoded:
        return bool(a != a and b != b)  # NaN
    try:
        return bool(plain.decode(a) == plain.decode(b))  # sets have no order
    except ValueError:  # arrays, which have no truth
        return False


def value_of(frozen: Any) -> Any:
    """A frozen field as plain data."""
    return plain.decode(frozen) if type(frozen) is _Encoded else frozen


def values_of(frozen: dict[str, Any]) -> dict[str, Any]:
    """Frozen fields as plain data."""
    return {name: value_of(each) for name, each in frozen.items() if each is not MISSING}


def _plain(value: Any, depth: int) -> Any:
    """Models, dataclasses, enums and the like as plain data."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if depth > plain.MAX_DEPTH:
        raise plain.NotPlain(f"nested deeper than {plain.MAX_DEPTH}, or in itself")
    depth += 1
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return kind([_plain(each, depth) for each in value])
    if isinstance(value, BaseModel):
        return _plain_model(value, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name), depth) for each in dataclass_fields(value)}
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if isinstance(value, _TEXTUAL):
        return str(value)
    if isinstance(value, tuple | deque):
        return [_plain(each, depth) for each in value]
    if isinstance(value, dict):
        return {_plain(key, depth): _plain(each, depth) for key, each in value.items()}
    return value


def _plain_model(value: BaseModel, depth: int) -> Any:
    if hasattr(type(value), "_echannel_ref"):
        raise plain.NotPlain("a shared object can't be inside another one")
    if isinstance(value, RootModel):
        return _plain(value.root, depth)
    values = {key_of(name, each): value.__dict__[name] for name, each in type(value).__pydantic_fields__.items()}
    values.update(value.__pydantic_extra__ or {})
    return {name: _plain(each, depth) for name, each in values.items()}


def key_of(name: str, field: Any) -> str:
    """The name by which validation takes this field of a nested model."""
    alias = field.validation_alias or field.alias
    if isinstance(alias, AliasChoices):
        alias = next((each for each in alias.choices if isinstance(each, str)), None)
    return alias if isinstance(alias, str) else name


_adapters: weakref.WeakKeyDictionary[type, dict[str, TypeAdapter[Any] | None]] = weakref.WeakKeyDictionary()


def rebuilt(cls: type[BaseModel], name: str, value: Any) -> Any:
    """A field's value from plain data, as its annotation says. The class's own validators have seen it before."""
    adapters = _adapters.get(cls)
    if adapters is None:
        adapters = _adapters[cls] = {}
    if name not in adapters:
        annotation: Any = cls.__pydantic_fields__[name].annotation
        needs_none = annotation in ATOMS or annotation is Any
        # In a tuple, since a model would refuse a configuration other than its own.
        adapters[name] = (
            None if needs_none else TypeAdapter(tuple[annotation], config=ConfigDict(arbitrary_types_allowed=True))
        )
    adapter = adapters[name]
    return value if adapter is None else adapter.validate_python((value,), strict=False)[0]


def validated(cls: type[BaseModel], values: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The values with these fields taken in, as validators leave them."""
    if cls.__pydantic_decorators__.model_validators:
        # All at once: set one after the other, they might contradict each other in between.
        whole = cls.__pydantic_validator__.validate_python({**values, **fields})
        return {**values, **{name: whole.__dict__[name] for name in fields}}
    scratch = bare(cls, dict(values))
    for name, value in fields.items():
        cls.__pydantic_validator__.validate_assignment(scratch, name, value)
    return {**values, **{name: scratch.__dict__[name] for name in fields}}


def bare(cls: type[M], values: dict[str, Any]) -> M:
    """An instance with these values, which are valid."""
    made = cls.__new__(cls)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", set(values))
    _set(made, "__pydantic_extra__", {} if cls.model_config.get("extra") == "allow" else None)
    _set(made, "__pydantic_private__", None)
    if cls.__private_attributes__:
        _set(
            made,
            "__pydantic_private__",
            {
                name: each.get_default()
                for name, each in cls.__private_attributes__.items()
                if each.default_factory is not None or not _is_undefined(each.default)
            },
        )
    return made


def _is_undefined(value: object) -> bool:
    return type(value).__name__ == "PydanticUndefinedType"
