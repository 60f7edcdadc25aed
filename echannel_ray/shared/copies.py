"""Copies of shared objects at modulators, as `shared_copies` sees them: holders, that are told of each newer version.

A copy changes between two calls of its modulator only. While the modulator waits for somebody else (it publishes, or
calls a service), whoever publishes is not kept waiting for it: it will have changed before the next call.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
from typing_extensions import override

from echannel_ray.core.messages import SharedRef, Shipment
from echannel_ray.formats.by_value import class_named
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.shared.shared_copies import Holder, Sharing

if TYPE_CHECKING:
    from echannel_ray.derived.ecode_host import EcodeHost
    from echannel_ray.derived.inline_host import InlineHost
    from echannel_ray.derived.isolated_host import IsolatedHost

ALL_VERSIONS = 1 << 62


class ModulatorCopy(Holder):
    """The copy of a shared object at one modulator, or at E-code; `state` is its version and fields."""

    def __init__(self, sharing: Sharing, ref: SharedRef) -> None:
        self._sharing = sharing
        self._ref = ref
        self.state: tuple[int, dict[str, Any]] = (0, {})

    def attach(self) -> None:
        """Have the copy told of newer versions; `state` is the newest."""
        self.state = self._sharing.attach(self._ref, self)

    def detach(self) -> None:
        """Have the copy told nothing more: it is not needed, and nobody has to wait for it."""
        self._sharing.detach(self._ref, self)


class CopyInProcess(ModulatorCopy):
    """The copy of a shared object at an inline modulator, which publishes and pulls by it."""

    def __init__(self, host: InlineHost, sharing: Sharing, ref: SharedRef) -> None:
        super().__init__(sharing, ref)
        self._host = host
        self.copies: list[Any] = []
        self._waiting: list[Callable[[], None]] = []  # who want to know that the copy has changed

    @override
    def detach(self) -> None:
        super().detach()
        self.release()

    def copy(self, cls: Any) -> Any:
        """The copy itself, for the pickle."""
        if not self.copies:
            version, fields = self.state
            self.copies.append(cls._echannel_copy(version, fields, self))
        return self.copies[0]

    @override
    def shared_changed(self, version: int, fields: dict[str, Any], applied: Callable[[], None]) -> None:
        def update() -> None:
            if version > self.state[0]:
                self.state = (version, fields)
            for copy in self.copies:
                copy._echannel_update(version, fields)
            if applied in self._waiting:
                self._waiting.remove(applied)
                applied()

        self._waiting.append(applied)
        self._host.update(update)
        if self._host.is_away:
            self.release()

    def release(self) -> None:
        """Let go who waits for the copy: it has changed, or will before the modulator's next call."""
        while self._waiting:
            try:
                applied = self._waiting.pop()
            except IndexError:
                return  # another thread was faster
            applied()

    def publish(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        """Have the master take these values; the version and fields that it has then."""
        with self._host.away():
            return self._sharing.publish(self._ref, fields, expected_version)

    def pull(self) -> tuple[int, dict[str, Any]]:
        """The newest version and fields of the master."""
        with self._host.away():
            return self._sharing.pull(self._ref)


class CopyInSandbox(ModulatorCopy):
    """The copy of a shared object at an isolated modulator."""

    def __init__(self, host: IsolatedHost, sharing: Sharing, index: int, ref: SharedRef) -> None:
        super().__init__(sharing, ref)
        self._host = host
        self._index = index
        self._lock = threading.Lock()
        self._applied: list[tuple[int, Callable[[], None]]] = []
        self._is_installed = False

    @override
    def attach(self) -> None:
        self._is_installed = False
        super().attach()

    def installed(self) -> None:
        """Send what came meanwhile: the sandbox has `state`."""
        with self._lock:
            self._is_installed = True
            late = bool(self._applied)
        if late:
            self._host.sandbox.update_shared(self._index, *self.state)

    @override
    def detach(self) -> None:
        super().detach()
        self.updated(ALL_VERSIONS)

    @override
    def shared_changed(self, version: int, fields: dict[str, Any], applied: Callable[[], None]) -> None:
        with self._lock:
            self._applied.append((version, applied))
            if version > self.state[0]:
                self.state = (version, fields)
            if not self._is_installed:
                return
        self._host.sandbox.update_shared(self._index, version, fields)
        if self._host.is_away:
            self.updated(ALL_VERSIONS)

    def updated(self, version: int) -> None:
        """Let go whoever waits for the sandbox to have this version."""
        with self._lock:
            done = [applied for known, applied in self._applied if known <= version]
            self._applied = [(known, applied) for known, applied in self._applied if known > version]
        for applied in done:
            applied()


class CopyInProgram(ModulatorCopy):
    """The copy of the shared object that steers E-code: its fields."""

    def __init__(self, host: EcodeHost, sharing: Sharing, ref: SharedRef) -> None:
        super().__init__(sharing, ref)
        self._host = host

    @override
    def shared_changed(self, version: int, fields: dict[str, Any], applied: Callable[[], None]) -> None:
        def update() -> None:
            if version > self.state[0]:
                self.state = (version, fields)
                self._host.params_changed()
            applied()

        self._host.update(update)


class _CopyUnpickler(pickle.Unpickler):
    def __init__(self, shipment: Shipment, copies: list[CopyInProcess]) -> None:
        super().__init__(io.BytesIO(shipment.code))
        self._copies = copies
        self._known: set[type] = set()

    @override
    def find_class(self, module: str, name: str) -> Any:
        """The class of this name: unless it is a modulator, this process's own where it has one."""
        found = super().find_class(module, name)
        if module == "cloudpickle.cloudpickle":
            if name in ("_make_skeleton_class", "_make_skeleton_enum"):
                # Without `self`: Python 3.10 does not look for garbage among what an unpickler has found.
                return partial(_make_class, self._known, found)
            if name == "_class_setstate":
                return partial(_fill_class, self._known)
        return found

    @override
    def persistent_load(self, pid: Any) -> Any:
        _, index, cls = pid
        return self._copies[index].copy(cls)


def _make_class(known: set[type], make: Callable[..., Any], *arguments: Any) -> Any:
    made = make(*arguments)
    there = None if issubclass(made, Modulator) else _class_named(made.__module__, made.__qualname__)
    if there is None:
        return made
    known.add(there)
    return there


def _fill_class(known: set[type], cls: Any, state: Any) -> Any:
    return cls if cls in known else cloudpickle.cloudpickle._class_setstate(cls, state)


def _class_named(module: str, name: str) -> type | None:
    """The class of this process that has this name, wherever it came from."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else class_named(module, name)


def unpickled(shipment: Shipment, copies: list[CopyInProcess]) -> Any:
    """What was shipped, a class and a modulator, with these copies in the places of its shared objects."""
    return _CopyUnpickler(shipment, copies).load()
