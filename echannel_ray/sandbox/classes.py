"""Which classes events in a sandbox are of: those that came with the modulator, wherever these are the same by name.

A class of a program travels by value, once with the modulator and once with events, and each unpickling would make a
class of its own. Then `isinstance(event, Trade)`, `event == Trade(1)` and `event is Color.RED` would be false in the
modulator without a word. So what comes with the modulator is put where pickles of events look for it.

Cloudpickle does not tell the qualified names of classes, only those of enums: the names of their methods have to do.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from echannel_ray.formats import by_value

_MAKERS: Final = frozenset({"_make_skeleton_class", "_make_skeleton_enum", "rebuild_class"})
_MAX_RECENT: Final = 256

Key = tuple[str, str]  # module and qualified name


class Classes:
    """The classes in one sandbox: what the modulator's code has made, and what is made for events otherwise."""

    def __init__(self) -> None:
        self._planted: dict[Key, type] = {}
        self._of_events: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
        # As in `by_value`: the last instance is often dropped before the next comes.
        self._recent: deque[type] = deque(maxlen=_MAX_RECENT)
        self._generation = 0
        by_value.class_from = self.class_from

    def plant(self, made: list[type]) -> None:
        """Have events be of these classes. Where two have one name, nobody knows which is meant: neither counts."""
        found: dict[Key, list[type]] = {}
        for cls in made:
            found.setdefault(_key_of(cls), []).append(cls)
        for key in sorted(found, key=lambda key: key[1].count(".")):  # outer classes first
            if len(found[key]) == 1:
                self._planted[key] = found[key][0]
                if "<locals>" not in key[1]:
                    _put(*key, found[key][0])

    def forget(self) -> None:
        """Remove the classes of the modulator, which is gone."""
        for (module, qualname), cls in self._planted.items():
            name = qualname.partition(".")[0]
            there = vars(sys.modules.get(module, cls)).get(name)
            if there is cls or type(there) is types.SimpleNamespace:
                delattr(sys.modules[module], name)
        self._planted.clear()
        self._of_events.clear()
        self._recent.clear()
        self._generation += 1

    def class_from(self, identity: str, definition: bytes) -> type:
        """The class of an event, in place of `by_value.class_from`, which pickles of events call."""
        cls = self._of_events.get(identity)
        if cls is None:
            made: type = _DefinitionUnpickler(definition, self).load()
            cls = self._of_events[identity] = self.planted(made)
            self._recent.append(cls)
        return cls

    def planted(self, cls: type) -> type:
        """The modulator's class of this name, if it has one."""
        return self._planted.get(_key_of(cls), cls)

    def translated(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        """The modulator's classes in the place of those that the class of an event is derived from."""
        return tuple(map(self.planted, bases))

    def renumbered(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """With a number by which cloudpickle finds no class that was derived from one of an earlier modulator."""
        *first, tracker_id, extra = arguments
        return *first, tracker_id and f"{self._generation} {tracker_id}", extra


# Python 3.10 does not look for garbage among what an unpickler has found. So `find_class` returns nothing that refers
# to the unpickler: all that it has ever made would stay.
class CodeUnpickler(pickle.Unpickler):
    """Writes down the classes that it makes; `copy` makes those of shared objects, which stay where they are."""

    def __init__(self, code: bytes, copy: Callable[[int, Any], Any]) -> None:
        super().__init__(io.BytesIO(code))
        self._copy = copy
        self.made: list[type] = []

    @override
    def find_class(self, module: str, name: str) -> Any:
        """The class or function of this name; one that makes classes tells which it makes."""
        found = super().find_class(module, name)
        return _telling(found, self.made) if name in _MAKERS else found

    @override
    def persistent_load(self, pid: Any) -> Any:
        kind, index, cls = pid
        if kind != "shared":
            raise pickle.UnpicklingError(f"there is no {kind!r} to be loaded")
        return self._copy(index, cls)


class _DefinitionUnpickler(pickle.Unpickler):
    """Has the class of an event be derived from those of the modulator."""

    def __init__(self, definition: bytes, classes: Classes) -> None:
        super().__init__(io.BytesIO(definition))
        self._classes = classes

    @override
    def find_class(self, module: str, name: str) -> Any:
        """The class or function of this name; one that makes classes derives them from the modulator's."""
        found, classes = super().find_class(module, name), self._classes
        if name == "_make_skeleton_class":
            return lambda kind, name, bases, *rest: found(
                kind, name, classes.translated(bases), *classes.renumbered(rest)
            )
        if name == "_make_skeleton_enum":
            return lambda bases, *rest: found(classes.translated(bases), *classes.renumbered(rest))
        return found


class _Stub(types.ModuleType):
    """A module that is not here, but for some of its classes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package, so that those inside it are missed by their own names

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"No module named {self.__name__!r}", name=self.__name__)


def _telling(make: Callable[..., type], made: list[type]) -> Callable[..., type]:
    def tell(*arguments: Any) -> type:
        cls = make(*arguments)
        made.append(cls)
        return cls

    return tell


def _key_of(cls: type) -> Key:
    return str(cls.__module__), _qualname_of(cls)


def _qualname_of(cls: type) -> str:
    """The qualified name that the class had where it was defined, as far as that can be known."""
    name = cls.__name__
    if "." in cls.__qualname__:
        return cls.__qualname__
    for value in vars(cls).values():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType) and function.__module__ == cls.__module__:
            outer, _, _ = function.__qualname__.rpartition(".")
            if outer.endswith(f".{name}"):
                return outer
    return name


def _put(module: str, qualname: str, cls: type) -> None:
    """Make the class what a pickle finds under this name."""
    for end in [at for at, each in enumerate(module) if each == "."] + [len(module)]:
        sys.modules.setdefault(module[:end], _Stub(module[:end]))
    place: Any = sys.modules[module]
    *outer, name = qualname.split(".")
    for each in outer:
        if each not in vars(place):
            setattr(place, each, types.SimpleNamespace())
        place = vars(place)[each]
    if vars(place).get(name) is not cls:
        setattr(place, name, cls)
