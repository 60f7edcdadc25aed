"""How all modulators read events, whatever these are: dicts, NumPy's structured arrays, or objects with attributes.

A field is named by a text ("price", or "order.price" for the price of the order) or computed by a function of one
event. Names are better where they do: they compare equal in every process, and functions have to be shipped.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

Read: TypeAlias = Callable[[Any], Any]
# None is the event itself where a value is meant, and "all events alike" where a key is.
Field: TypeAlias = str | Read | None
Key: TypeAlias = str | Read | Sequence[str] | None


def checked_field(name: str, field: Any) -> Field:
    """The argument `name`, if it can be read from an event."""
    if field is None or callable(field):
        return field  # type: ignore[no-any-return]
    if isinstance(field, str):
        if not all(field.split(".")):
            raise ValueError(f'{name} is a name, or a path such as "order.price", not {field!r}')
        return field
    raise TypeError(f"{name} is the name of a field or a function of one event, not {field!r}")


def checked_names(name: str, fields: Any) -> tuple[str, ...]:
    """Several names, at least one."""
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    if not names:
        raise ValueError(f"{name}: name at least one field")
    for field in names:
        if not isinstance(field, str):
            raise TypeError(f"{name} are names of fields, not {field!r}")
        checked_field(name, field)
    return names


def checked_key(name: str, key: Any) -> Key:
    """The argument `name`, if it says which events belong together."""
    if key is None or isinstance(key, str) or callable(key):
        return checked_field(name, key)
    if isinstance(key, list | tuple):
        return checked_names(name, key)
    raise TypeError(f"{name} is the name of a field, several names, or a function of one event, not {key!r}")


def reader(field: Field) -> Read:
    """A function that reads the field; None reads the event itself."""
    if field is None:
        return _itself
    if not isinstance(field, str):
        return field
    first, *rest = field.split(".")
    if not rest:
        return lambda event: read(event, first)

    def follow(event: Any) -> Any:
        value = read(event, first)
        for name in rest:
            value = read(value, name)
        return value

    return follow


def key_reader(key: Key) -> Read:
    """A function that tells which events belong together: those it gives equal values. None: all do."""
    if key is None:
        return _nothing
    if isinstance(key, str) or callable(key):
        return reader(key)
    readers = [reader(name) for name in key]
    return lambda event: tuple([each(event) for each in readers])


def read(event: Any, name: str) -> Any:
    """One field of one event."""
    try:
        # NumPy's arrays have attributes that fields may be called like, as "size".
        return event[name] if isinstance(event, dict) or is_structured(event) else getattr(event, name)
    except (KeyError, ValueError, AttributeError):
        names = list(event) if isinstance(event, dict) else names_of(event)
        has = f"; it has {', '.join(map(str, names[:20]))}" if names else ""
        raise LookupError(f"an event, a {type(event).__qualname__}, has no field {name!r}{has}") from None


def names_of(event: Any) -> list[str] | None:
    """The fields of an object with declared ones: a dataclass, a pydantic model, a Struct, a named tuple or a NumPy
    record. None for anything else.
    """
    kind = type(event)
    if is_structured(event):
        return list(event.dtype.names)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):  # a named tuple
        return list(kind._fields)
    # Whose event is a pydantic model has imported pydantic; `main`, since the package imports its parts when asked.
    pydantic = sys.modules.get("pydantic.main")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return list(kind.model_fields)
    return None


def as_number(value: Any) -> Any:
    """The value; if it is a number of NumPy's, as one of Python's, which can't overflow."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def is_structured(event: Any) -> bool:
    """Whether this is an array of NumPy records, or one record."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(event, numpy.ndarray | numpy.void) and event.dtype.names is not None


def as_plain(value: Any) -> Any:
    """The value with each object that declares its fields as a dict of them: what may be put into an event.

    An isolated modulator may pass on objects of classes only as the events that they came as, not inside a new one.
    """
    kind = type(value)
    if kind is dict:
        return {key: as_plain(each) for key, each in value.items()}
    if kind is list or kind is tuple:
        return kind([as_plain(each) for each in value])
    names = names_of(value)
    if names is None:
        return value
    return {name: as_plain(read(value, name)) for name in names}


def as_made(make: Callable[..., Any] | None, event: Any) -> Any:
    """`make(**event)` for a dict of fields: the opposite of `as_plain` for events of one class."""
    return event if make is None or not isinstance(event, dict) else make(**event)


def checked_make(make: Any) -> Callable[..., Any] | None:
    """The argument `make` of a demodulator."""
    if make is not None and not callable(make):
        raise TypeError(f"make is the events' class, or a function of their fields, not {make!r}")
    return make  # type: ignore[no-any-return]


def _itself(event: Any) -> Any:
    return event


def _nothing(event: Any) -> None:
    return None
