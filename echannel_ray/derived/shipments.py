"""How a modulator becomes bytes that are alike in each process, and go to processes that lack its module.

What is not installed everywhere goes by value: `__main__`, notebooks, the program's own modules. File names and line
numbers are left out, so that the same class, defined at two places, is the same code.

This is PyPI's cloudpickle, not Ray's copy of it as for events: sandboxes don't import Ray.
"""

from __future__ import annotations

import io
import site
import sys
import sysconfig
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle

from echannel_ray.core.messages import MAX_SHIPPED_BYTES, SharedRef, Shipment
from echannel_ray.errors import ModulatorRefused, NotSerialisable
from echannel_ray.formats import plain
from echannel_ray.modulation.fingerprint import identity_of
from echannel_ray.modulation.modulator import Modulator, overrides
from echannel_ray.modulation.services import service_name

_FILE_NAME = "<modulator>"
# Attributes of classes that are no part of what they do: where they are defined, and what pickling has left there.
_INCIDENTAL = ("__firstlineno__", "__static_attributes__", "__slotnames__")
_BY_VALUE_LENGTH = 6  # of cloudpickle's reduction of a class; one by reference is a name
_lock = threading.Lock()


def ship(modulator: Modulator, tier: str) -> Shipment:
    """The modulator as the shipment that producers get."""
    given: Any = modulator
    if isinstance(given, str):
        raise ModulatorRefused(
            f"E-code derives a channel, and is no modulator: channel.derive({given[:80]!r}).subscribe(…)",
            reason="E-code derives a channel",
        )
    if not isinstance(given, Modulator):
        hint = "derive its class from it"
        if isinstance(given, type):
            hint = "give an instance, not the class itself"
        elif isinstance(given, types.FunctionType):
            hint = "derive its class from it, or have channel.derive(echannel_ray.ecode(function)) if it is E-code"
        raise TypeError(f"a modulator is an echannel_ray.Modulator, not {given!r}: {hint}")
    cls = type(modulator)
    if not (overrides(modulator, "enqueue") or overrides(modulator, "period")):
        raise ModulatorRefused(
            f"{cls.__qualname__} overrides neither enqueue nor period, and would pass nothing on: derive it from "
            "FIFOModulator, or write one of them",
            reason="it would pass nothing on",
        )
    period = modulator.period_seconds
    if period is not None and not (isinstance(period, int | float) and period > 0):
        raise ValueError(
            f"period_seconds of {cls.__qualname__} is a number of seconds above 0, or None; not {period!r}"
        )
    requires = tuple(dict.fromkeys(service_name(service) for service in modulator.requires))
    key = _key_of(modulator) if overrides(modulator, "key") else None
    with io.BytesIO() as file, _by_value():
        pickler = _ShippingPickler(file)
        try:
            pickler.dump((cls, modulator))
        except Exception as error:
            raise NotSerialisable(
                f"the modulator {cls.__qualname__} can't be shipped: {error}; make what it needs in its first "
                "`enqueue`, or have a service do it",
                path=cls.__qualname__,
            ) from error
        code = file.getvalue()
        if len(code) > MAX_SHIPPED_BYTES:
            raise ModulatorRefused(
                f"the modulator {cls.__qualname__} has {len(code):,} bytes of code and state: the limit is "
                f"{MAX_SHIPPED_BYTES:,}; have it get what is large from a service of its producer",
                reason="it is too large to be shipped",
                modulator=cls.__qualname__,
            )
        return Shipment(cls.__qualname__, tier, code, requires, tuple(pickler.shared), key)


def identity_of_other(thing: Any) -> str:
    """The identity of what is not shipped, a demodulator: members of a group have equal ones."""
    with io.BytesIO() as file, _by_value():
        pickler = _ShippingPickler(file)
        try:
            pickler.dump((type(thing), thing))
        except Exception:  # it holds something of this process: its class has to do
            return f"{type(thing).__module__}.{type(thing).__qualname__}"
        masters = [(ref.node, ref.endpoint, ref.number) for ref in pickler.shared]
        return identity_of(file.getvalue(), None, masters)


def _key_of(modulator: Modulator) -> bytes:
    key = modulator.key()
    try:
        return plain.canonical(key)
    except plain.NotPlain as error:
        raise ModulatorRefused(
            f"key() of {type(modulator).__qualname__} returns what is no plain data: {error}",
            reason="its key is no plain data",
        ) from None


class _ShippingPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.shared: list[SharedRef] = []
        self._shared_at: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """Shared objects stay where they are; what travels is which ones."""
        ref = getattr(type(obj), "_echannel_ref", None)
        if ref is None:
            return None
        index = self._shared_at.get(id(obj))
        if index is None:
            index = self._shared_at[id(obj)] = len(self.shared)
            self.shared.append(obj._echannel_ref())
        return ("shared", index, type(obj))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.CodeType):
            reduce = self.dispatch_table[types.CodeType]
            return reduce(obj.replace(co_filename=_FILE_NAME, co_firstlineno=1, co_linetable=_lines_of(obj)))
        if isinstance(obj, types.FunctionType):
            # Cloudpickle would add the file's name. What is there already it takes as it is.
            names = obj.__globals__
            self.globals_ref.setdefault(id(names), {"__name__": names.get("__name__")})
            return super().reducer_override(obj)
        if isinstance(obj, type):
            return self._reduce_class(obj)
        return super().reducer_override(obj)

    def _reduce_class(self, cls: type) -> Any:
        reduction = super().reducer_override(cls)
        if reduction is NotImplemented or len(reduction) < _BY_VALUE_LENGTH:
            return reduction
        shared = getattr(cls, "_echannel_reduction", None)
        if shared is not None:
            # What pydantic has made of the class differs from process to process.
            return shared()
        make, arguments, (attributes, slots), *rest = reduction
        # Last but one is the number by which cloudpickle finds a class again; random in each process.
        *first, tracker_id, extra = arguments
        arguments = (*first, None if isinstance(tracker_id, str) else tracker_id, extra)
        attributes = {name: each for name, each in attributes.items() if name not in _INCIDENTAL}
        return make, arguments, (attributes, slots), *rest


def _lines_of(code: types.CodeType) -> bytes:
    """A table of lines and columns that has none: tracebacks of modulators say which function it was, not which line.

    Each entry stands for up to eight instructions "without a location". Python 3.10 notes no columns, and keeps its
    lines.
    """
    if not hasattr(code, "co_positions"):
        return code.co_linetable
    whole, rest = divmod(len(code.co_code) // 2, 8)
    return b"\xff" * whole + (bytes((0xF8 | (rest - 1),)) if rest else b"")


@contextmanager
def _by_value() -> Iterator[None]:
    """Have cloudpickle take the program's own modules by value. It knows of no other way than to be told for all."""
    with _lock:
        known = cloudpickle.list_registry_pickle_by_value()
        # By their own names: one that is there under two is registered once.
        registered = {each.__name__: each for each in _modules_of_program() if each.__name__ not in known}.values()
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in registered:
                cloudpickle.unregister_pickle_by_value(module)


# Modules by the names under which they were looked at, and those of them that are the program's: a process has a
# thousand, and most have not changed since the last shipment.
_looked_at: dict[str, Any] = {}
_of_program: dict[str, Any] = {}


def _modules_of_program() -> list[Any]:
    for name, module in [*sys.modules.items()]:
        if _looked_at.get(name, _looked_at) is not module:
            _looked_at[name] = module
            _of_program.pop(name, None)
            if "." not in name and _is_program(name, module):
                _of_program[name] = module
    return [module for name, module in _of_program.items() if sys.modules.get(name) is module]


def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    return tuple(f"{folder.rstrip('/')}/" for folder in folders)


_INSTALLED = _installed_folders()
_OURS = __name__.split(".", 1)[0]


def _is_program(name: str, module: Any) -> bool:
    """Whether a top-level module is the program's own: neither Python's, nor installed, nor ours."""
    if name in sys.stdlib_module_names or name == _OURS or name == "__main__":
        return False  # `__main__` goes by value anyhow
    if not isinstance(module, types.ModuleType) or sys.modules.get(module.__name__) is not module:
        return False
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    known = [place for place in places if isinstance(place, str)]
    return bool(known) and not any(place.startswith(_INSTALLED) for place in known)
