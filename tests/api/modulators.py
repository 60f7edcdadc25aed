"""Modulators and demodulators that the tests of eager handlers ship. They go by value: sandboxes have no `tests`."""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

import echannel_ray as ec


class Above(ec.Modulator):
    """Passes on what is greater."""

    def __init__(self, low: int) -> None:
        self.low = low

    def enqueue(self, event: Any) -> None:
        if event > self.low:
            self.emit(event)


class Tagged(ec.Modulator):
    """Says who it is with each event, and how many it has seen."""

    def __init__(self, label: Any) -> None:
        self.label = label
        self.seen = 0

    def enqueue(self, event: Any) -> None:
        self.seen += 1
        self.emit((self.label, self.seen, event))


class Untag:
    """The other half of `Tagged`: takes its own events only."""

    def __init__(self, label: Any) -> None:
        self.label = label

    def receive(self, event: Any) -> list[Any]:
        label, _, original = event
        assert label == self.label, f"{label!r} came to the pair of {self.label!r}"
        return [original]


class Repeat(ec.Modulator):
    """Emits each event so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def enqueue(self, event: Any) -> None:
        for _ in range(self.times):
            self.emit(event)


class Raising(ec.FIFOModulator):
    """Raises at some events."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def enqueue(self, event: Any) -> None:
        if event in self.at:
            raise ValueError(f"no {event!r} here")
        self.emit(event)


class Looping(ec.FIFOModulator):
    """Never comes back from an event."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def enqueue(self, event: Any) -> None:
        while event == self.at:
            pass
        self.emit(event)


class Pairs(ec.Modulator):
    """Holds events back until there are two."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def enqueue(self, event: Any) -> None:
        self.held.append(event)
        if len(self.held) == 2:
            self.flush()

    def flush(self) -> None:
        if self.held:
            self.emit([*self.held])
            self.held.clear()


class Waiting(ec.Modulator):
    """Asks a service that takes its time."""

    requires = ("tests.Gate",)

    def enqueue(self, event: Any) -> None:
        self.services["tests.Gate"].wait()
        self.emit(event)


class Gate:
    """Grants what `Waiting` asks for: returns when it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()

    def wait(self) -> None:
        self.entered.set()
        self.opened.wait(20)


class Ticking(ec.Modulator):
    """A source of its own."""

    period_seconds = 0.02

    def __init__(self) -> None:
        self.count = 0

    def period(self) -> None:
        self.count += 1
        self.emit(self.count)


class Newest(ec.FIFOModulator):
    """Keeps the newest event only, while the transport is not ready."""

    def __init__(self) -> None:
        self.newest: Any = None

    def enqueue(self, event: Any) -> None:
        self.newest = event
        self.emit(event)

    def dequeue(self, event: Any) -> Any:
        newest, self.newest = self.newest, None
        return newest


class Directory(Protocol):
    """A service of the tests."""

    def lookup(self, name: str) -> dict[str, Any]:
        """What is known of a name."""


class Looking(ec.Modulator):
    """Asks its producer's directory."""

    requires = (Directory, ec.Clock, ec.ProducerInfo)

    def enqueue(self, event: Any) -> None:
        found = self.services[Directory].lookup(event)
        assert abs(self.services[ec.Clock].time() - time.time()) < 60
        self.emit({**found, "producer": self.services[ec.ProducerInfo].name()})


class Book:
    """Grants `Directory`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def lookup(self, name: str) -> dict[str, Any]:
        self.asked.append(name)
        return {"name": name, "length": len(name)}

    def _secret(self) -> str:
        return "not for modulators"


class Keyed(Tagged):
    """Equal to others of its label, whatever they have seen."""

    def __init__(self, label: str, noise: int) -> None:
        super().__init__(label)
        self.noise = noise

    def key(self) -> str:
        return str(self.label)
