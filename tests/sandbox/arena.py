"""Sandboxes for tests, an owner that writes down what it is told, and modulators that try what they must not."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle

from echannel_ray.formats import events
from echannel_ray.modulation.admission import Admission
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.sandbox.process import Sandbox
from echannel_ray.sandbox.warden import Warden

PATIENCE_SECONDS = 60
MODULES = ("numpy", "ctypes", "mmap", "resource", "fcntl", "re", "heapq")


def limits_of(seconds: float, max_memory_bytes: int, modules: tuple[str, ...] = MODULES) -> Admission:
    return Admission(max_seconds_per_event=seconds, max_memory_bytes=max_memory_bytes, modules=modules)


LIMITS = limits_of(0.2, 64 << 20)


def ship(modulator: Modulator) -> bytes:
    """As consumers do: classes by value, as if they were made in a script."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tests.sandbox")]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((type(modulator), modulator)))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class Recorder:
    """An owner: each call as a tuple in a queue."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[Any, ...]] = queue.Queue()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.calls.put((name, *args))

    def next(self) -> tuple[Any, ...]:
        return self.calls.get(timeout=PATIENCE_SECONDS)


class Guest:
    """One sandbox with what its owner was told."""

    def __init__(self, warden: Warden, limits: Admission) -> None:
        self.owner = Recorder()
        self.sandbox = Sandbox(self.owner, warden, limits, "guest")
        self.pid = self.sandbox.pid
        self._number = 0

    def install(self, modulator: Modulator, services: Any = None, shared: Any = (), wants_key: bool = False) -> Any:
        return self.sandbox.install(ship(modulator), services or {}, shared, wants_key, PATIENCE_SECONDS)

    def send(self, batch: Sequence[Any]) -> int:
        kinds, payloads, _ = zip(*map(events.encode, batch), strict=True)
        self._number += 1
        self.sandbox.submit(self._number, bytes(kinds), payloads)
        return self._number

    def outcome(self, batch: Sequence[Any]) -> tuple[Any, ...]:
        """What the owner is told of this batch, with outputs decoded."""
        number = self.send(batch)
        told = self.owner.next()
        while told[:3] == ("emitted", 0, []):  # its timer was faster
            told = self.owner.next()
        assert told[0] == "ended" or told[1] == number, str(told)[:1000]
        return decoded(told)

    def work(self, batch: Sequence[Any]) -> list[Any]:
        told = self.outcome(batch)
        assert told[0] == "emitted", str(told)[:1000]
        return told[2]  # type: ignore[no-any-return]


def decoded(told: tuple[Any, ...]) -> tuple[Any, ...]:
    at = {"emitted": 2, "failed": 3}.get(told[0])
    if at is None:
        return told
    outputs = [
        events.decode(kind, b"".join(payload) if type(payload) is list else payload) for kind, payload in told[at]
    ]
    return *told[:at], outputs, *told[at + 1 :]


class Arena:
    """All sandboxes of a module of tests."""

    def __init__(self) -> None:
        self.warden = Warden()
        self.guests: list[Guest] = []
        self.pids: set[int] = set()

    def guest(self, modulator: Modulator | None = None, limits: Admission = LIMITS, **more: Any) -> Guest:
        guest = Guest(self.warden, limits)
        self.guests.append(guest)
        self.pids.add(guest.pid)
        if modulator is not None:
            guest.install(modulator, **more)
        return guest

    def attack(self, function: Callable[..., Any], limits: Admission = LIMITS, **facts: Any) -> str:
        """Run this in a sandbox: its result, or why it had none."""
        guest = self.guest(Attacker(function, facts), limits)
        told = guest.outcome([b"go"])
        assert told[0] in ("emitted", "ended", "failed"), told
        return str(told[2][0] if told[0] == "emitted" else told[3] if told[0] == "ended" else told[5])

    def clear(self) -> None:
        for guest in self.guests:
            guest.sandbox.close()
        self.guests.clear()

    def close(self) -> None:
        self.clear()
        zygotes = [nursery._zygote.pid for nursery in self.warden._nurseries.values() if nursery._zygote is not None]
        self.warden.close()
        for pid in [*self.pids, *zygotes]:
            wait_for_the_end_of(pid)


class Attacker(Modulator):
    """Emits what a function returned, or how it was refused."""

    def __init__(self, function: Callable[..., Any], facts: dict[str, Any]) -> None:
        self.function = function
        self.facts = facts

    def enqueue(self, event: Any) -> None:
        try:
            result = f"DONE {self.function(**self.facts)!r}"
        except BaseException as error:
            result = f"refused: {type(error).__name__}: {error}"
        self.emit(result[:4000])


class Passing(Modulator):
    """Passes events on."""

    def enqueue(self, event: Any) -> None:
        self.emit(event)


def syscall(number: int, *arguments: Any) -> int:
    """A call of the kernel past Python and the C library; raises what the kernel says."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "the kernel refused")
    return int(result)


def reply(data: bytes) -> None:
    """Write to the producer past everything, as the code in a sandbox can."""
    import os

    while data:
        data = data[os.write(3, data) :]


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_the_end_of(pid: int) -> None:
    wait_until(lambda: not is_alive(pid))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
