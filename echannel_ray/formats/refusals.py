"""What to say when an event can't be serialised: where inside it, why, and what to do instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats import by_value

# Each level pickles every child until one fails: this is the path of an error, but not one without an end.
_MAX_DEPTH: Final = 32


def refusal(event: object, error: Exception) -> NotSerialisable:
    """The `NotSerialisable` to raise for this event, because of this error."""
    if _is_too_deep(error):
        return _error(
            type(event),
            "it is nested too deeply for the pickler's recursion limit",
            None,
            "Publish a flat form of it, such as a list of its nodes with indices in place of references.",
        )
    path, culprit = _locate(event)
    if by_value.is_object_ref(culprit) or isinstance(error, by_value.ObjectRefInside):
        return _error(
            type(event),
            f"it holds a Ray ObjectRef (at {path}), which outside a Ray call would pin its object for good",
            path,
            "Publish the value (`ray.get(ref)`), or pass the ref through a Ray call (events may hold actor handles).",
        )
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    where = f" (at {path}, a {_name(type(culprit))})" if path != "event" else ""
    return _error(
        type(event),
        reason + where,
        path,
        "Publish its data without the live parts (locks, sockets, files, threads, generators), "
        "or give the class a `__getstate__` or `__reduce__` that leaves them out.",
    )


def _error(cls: type, reason: str, path: str | None, advice: str) -> NotSerialisable:
    name = _name(cls)
    return NotSerialisable(f"a {name} can't be an event: {reason}. {advice}", type=name, reason=reason, path=path)


def _is_too_deep(error: BaseException | None) -> bool:
    # Cloudpickle reports a RecursionError as a PicklingError that it caused.
    return isinstance(error, RecursionError) or (error is not None and isinstance(error.__cause__, RecursionError))


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _locate(event: object) -> tuple[str, object]:
    """The innermost part that fails by itself, and how to get to it from `event`."""
    path, culprit = "event", event
    for _ in range(_MAX_DEPTH):
        for step, child in _children(culprit):
            if _fails(child):
                path, culprit = path + step, child
                break
        else:
            break
    return path, culprit


def _fails(value: object) -> bool:
    try:
        by_value.dumps(value, lambda buffer: False)
    except Exception:
        return True
    return False


def _children(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield f"[{key!r}]", child
            yield f".key({key!r})", key
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f".element({child!r})", child) for child in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif hasattr(value, "__struct_fields__") and not isinstance(value, type):
        yield from ((f".{name}", getattr(value, name, None)) for name in value.__struct_fields__)
    elif hasattr(value, "__getstate__") and type(value).__getstate__ is not getattr(object, "__getstate__", None):
        return  # what it pickles is its own affair, and its attributes may never be part of it
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f".{name}", child) for name, child in vars(value).items())
