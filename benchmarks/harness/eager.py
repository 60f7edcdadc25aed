"""Parties with eager handlers: a producer that admits both tiers, consumers, and the modulators that they ship."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import psutil

import echannel_ray as ec
from benchmarks.harness.parties import DRAIN_SECONDS, Consumer, Producer, View, timed_publishes

ADMISSION = ec.Admission(tiers=("ecode", "isolated", "inline"), max_seconds_per_event=0.2)
TIERS = ("inline", "isolated")


class Hundred(ec.FIFOModulator):
    """Passes everything on, and has a hundred integers of state."""

    def __init__(self, number: int = 0) -> None:
        self.state = [*range(number, number + 100)]


class OneInTen(ec.Modulator):
    """Rejects about nine events of ten, by what is in them."""

    def enqueue(self, event: Any) -> None:
        if event["price"] > 90:
            self.emit(event)


class OneInTenBytes(ec.Modulator):
    """The same of random bytes."""

    def enqueue(self, event: Any) -> None:
        if event[0] > 230:
            self.emit(event)


class Steered(ec.Modulator):
    """Passes on what is above a shared number."""

    def __init__(self, view: View) -> None:
        self.view = view

    def enqueue(self, event: Any) -> None:
        if event > self.view.low:
            self.emit(event)


class Stuck(ec.FIFOModulator):
    """Never comes back from an event that says so."""

    def enqueue(self, event: Any) -> None:
        while event == b"stuck":
            pass


class EagerProducer(Producer):
    """See `Producer`."""

    def open_admitting(self, name: str) -> None:
        """Make a producer that lets modulators in."""
        self._producers[name] = ec.channel(name).producer(admission=ADMISSION)

    def close_one(self, name: str) -> None:
        """Close one of them."""
        self._producers.pop(name).close()

    def publish_one(self, name: str, event: Any) -> None:
        """One event."""
        self._producers[name].publish(event)

    def latencies(self, name: str, events: int, pause_seconds: float) -> list[float]:
        """How long each of so many deliveries takes, with a pause between them."""
        deliver = self._producers[name].deliver
        wait = threading.Event().wait
        seconds = []
        for number in range(events):
            began = time.perf_counter()
            deliver(b"%08d" % number).result(timeout=DRAIN_SECONDS)
            seconds.append(time.perf_counter() - began)
            wait(pause_seconds)
        return seconds

    def sandbox_pids(self) -> list[int]:
        """All processes below this one: the zygote, and the sandboxes."""
        return [child.pid for child in psutil.Process(os.getpid()).children(recursive=True)]


class EagerConsumer(Consumer):
    """See `Consumer`."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._eager: dict[str, Any] = {}

    def subscribe_eagerly(self, name: str, modulator: Any, tier: str | None) -> float:
        """Count what a modulator passes on; the seconds that `subscribe` took."""
        channel = ec.channel(name)
        began = time.perf_counter()
        if modulator is None:
            self._eager[name] = channel.subscribe(self.handle)
        else:
            self._eager[name] = channel.subscribe(self.handle, modulator=modulator, tier=tier)
        return time.perf_counter() - began

    def steer(self, name: str, tier: str) -> None:
        """Subscribe with a modulator that has a copy of a shared object of this process."""
        self._view = View()
        self.subscribe_eagerly(name, Steered(self._view), tier)

    def publish_shared_seconds(self, times: int) -> float:
        """Seconds of setting a field of the shared object and publishing it."""
        return timed_publishes(self._view, times)

    def reset_seconds(self, name: str, numbers: list[int], tier: str) -> list[float]:
        """How long it takes to replace the modulator by another one, and that by another."""
        seconds = []
        for number in numbers:
            began = time.perf_counter()
            self._eager[name].reset(Hundred(number), tier=tier)
            seconds.append(time.perf_counter() - began)
        return seconds

    def close_one(self, name: str) -> None:
        """Close one subscription."""
        self._eager.pop(name).close()
