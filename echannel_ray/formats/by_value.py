"""Pickling for another process what only this one has: classes and functions of `__main__`, lambdas, local classes.

It is Ray's own copy of cloudpickle, not the one from PyPI: each keeps a table of its own of the classes that it made
again in other processes. With Ray's, a class that came to a process inside an event is the one that came there inside a
task or an actor, and `isinstance` holds; with the other it is not.

A class is pickled once and travels as (identity, definition) in each event. Cloudpickle alone would take it apart for
every event, at many times the cost of the event, and would set the attributes of the receiver's class again with each
that arrives, also in the process where it was defined. So a class is what it was when its first instance was published.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Final

# Weak, so that classes made in a function for one event don't pile up; the most recently met ones are held all
# the same, since a receiver often drops the last instance before the next comes, and making a class again is slow.
_definitions: weakref.WeakKeyDictionary[type, tuple[str, bytes]] = weakref.WeakKeyDictionary()
_classes: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
_recent: Final[deque[type]] = deque(maxlen=256)

# A cloudpickle reduction of a class by value has a state setter; one that names a built-in type has not.
_BY_VALUE_LENGTH: Final = 6


def dumps(event: object, buffer_callback: Callable[[pickle.PickleBuffer], Any]) -> bytes:
    """Pickle what the C pickler alone can't or may not; raises whatever stands in the way."""
    with io.BytesIO() as file:
        _pickler()(file, protocol=5, buffer_callback=buffer_callback).dump(event)
        return file.getvalue()


def class_from(identity: str, definition: bytes) -> type:
    """The class of this identity: this process's own, the one made earlier, or a new one. Pickles of events call it."""
    known = _classes.get(identity)
    if known is None:
        # Two threads may both come here: cloudpickle gives both the same class.
        known = pickle.loads(definition)
        _remember(known, identity, definition)
    return known


def class_named(module: str, name: str) -> type | None:
    """A class that came to this process inside an event, a task or an actor, or left it so."""
    from ray.cloudpickle import cloudpickle

    # Its table of the classes that it made again: there is no public way to ask for one.
    by_ray: dict[str, type] = dict(getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {}))
    for known in [*_classes.values(), *by_ray.values()]:
        if (known.__module__, known.__qualname__) == (module, name):
            return known
    return None


def memory_from(data: bytes, item_format: str, shape: tuple[int, ...]) -> memoryview:
    """A memoryview again. Cloudpickle alone would turn it into bytes."""
    if not data:  # `cast` takes no shape with a 0 in it
        return memoryview(data).cast(item_format)  # type: ignore[call-overload,no-any-return]
    return memoryview(data).cast(item_format, shape)  # type: ignore[call-overload,no-any-return]


def _remember(cls: type, identity: str, definition: bytes) -> tuple[str, bytes]:
    # Of two threads that get here with one class, both end with the identity of the first, and either is understood.
    entry = _definitions.setdefault(cls, (identity, definition))
    _classes[identity] = cls
    _classes[entry[0]] = cls
    _recent.append(cls)
    return entry


@cache
def _pickler() -> Callable[..., Any]:
    # Here, not above: importing Ray takes seconds, and whoever publishes bytes only never needs it.
    from ray import ObjectRef, cloudpickle

    base: Any = cloudpickle.CloudPickler
    pickle_definition: Callable[[type], bytes] = cloudpickle.dumps

    class ByValuePickler(base):  # type: ignore[misc]
        """Pickles one event with classes and functions that other processes lack."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type):
                return self._reduce_class(obj)
            if isinstance(obj, ObjectRef):
                raise ObjectRefInside
            if isinstance(obj, types.FunctionType):
                return super().reducer_override(obj)
            if isinstance(obj, memoryview):
                parts = (obj.tobytes(), obj.format, obj.shape or ())
                memory_from(*parts)  # fails here rather than at every consumer, where a format is not a native one
                return memory_from, parts
            if isinstance(obj, io.TextIOWrapper):
                # Cloudpickle would send the text of a file in place of the file.
                raise TypeError("cannot pickle an open file")
            return NotImplemented

        def _reduce_class(self, cls: type) -> Any:
            entry = _definitions.get(cls)
            if entry is None:
                reduction = super().reducer_override(cls)
                if reduction is NotImplemented or len(reduction) < _BY_VALUE_LENGTH:
                    return reduction
                entry = _remember(cls, uuid.uuid4().hex, pickle_definition(cls))
            return class_from, entry

    return ByValuePickler


class ObjectRefInside(Exception):
    """A Ray ObjectRef was met: pickled outside a Ray call it would pin its object for good, or lose it."""


def is_object_ref(value: object) -> bool:
    """Whether this is a Ray ObjectRef, without importing Ray to say no."""
    ray = sys.modules.get("ray")
    return ray is not None and isinstance(value, ray.ObjectRef)
