"""Parties with eager handlers, which admit both tiers, and the modulators that they ship."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import psutil
import ray

import echannel_ray as ec
from echannel_ray.benchmarks.harness.parties import DRAIN_SECONDS, Consumer, Producer, View
from echannel_ray.consumers.bare_methods import bare

ADMISSION = ec.Admission(tiers=("ecode", "isolated", "inline"), max_seconds_per_event=0.2)
TIERS = ("inline", "isolated")


class Carrying(ec.FIFOModulator):
    """Passes everything on, and has some state; the number makes it another one than those before."""

    def __init__(self, number: int, content: Any) -> None:
        self.number = number
        self.content = content


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
    """Passes on what is above a shared number; None has it take the newest one."""

    def __init__(self, view: View) -> None:
        self.view = view

    def enqueue(self, event: Any) -> None:
        if event is None:
            self.view.pull()
        elif event > self.view.low:
            self.emit(event)


class Stuck(ec.FIFOModulator):
    """Never comes back from an event that says so."""

    def enqueue(self, event: Any) -> None:
        while event == b"stuck":
            pass


class EagerParty(Producer, Consumer):
    """A process that produces and lets all modulators in, or consumes with modulators, or both."""

    def __init__(self, namespace: str, seed: int = 0) -> None:
        super().__init__(namespace, seed)
        self._eager: dict[str, Any] = {}
        # What is installed with a package goes by its name, and sandboxes can't import this one: its modulators are
        # shipped as those of a program are.
        for module in (View.__module__, __name__):
            cloudpickle.register_pickle_by_value(sys.modules[module])

    # ---- producing ----

    def open_admitting(self, name: str) -> None:
        """Make a producer that lets modulators in."""
        self._producers[name] = ec.channel(name).producer(admission=ADMISSION)

    def prepare(self, make: Callable[[], list[list[Any]]]) -> int:
        """Make the events that `publish_prepared` publishes, a list for each call: how many there are."""
        self._prepared = make()
        return sum(map(len, self._prepared))

    def publish_prepared(self, name: str) -> None:
        """Publish them, until all have arrived."""
        producer = self._producers[name]
        for events in self._prepared:
            producer.publish_many(events)
        producer.drain(timeout=DRAIN_SECONDS)

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

    # ---- consuming ----

    def subscribe_eagerly(self, name: str, modulator: Any, tier: str | None) -> float:
        """Count what a modulator passes on; the seconds that `subscribe` took."""
        channel = ec.channel(name)
        began = time.perf_counter()
        if modulator is None:
            self._eager[name] = channel.subscribe(self.handle)
        else:
            self._eager[name] = channel.subscribe(self.handle, modulator=modulator, tier=tier)
        return time.perf_counter() - began

    def filter_here(self, name: str, modulator: Any) -> None:
        """Count what the modulator passes on, with the same code at this end: in the handler."""
        modulator.emit = bare(self.handle)  # as a channel calls it behind the modulator
        self._eager[name] = ec.channel(name).subscribe(modulator.enqueue)

    def install_seconds(self, name: str, content: Any, tier: str, times: int) -> tuple[list[float], list[float]]:
        """How long `subscribe` with a modulator takes, so often, and `reset` to another one."""
        installs, replacements = [], []
        for number in range(times):
            installs.append(self.subscribe_eagerly(name, Carrying(number, content), tier))
            began = time.perf_counter()
            self._eager[name].reset(Carrying(-1 - number, content), tier=tier)
            replacements.append(time.perf_counter() - began)
            self.close_one(name)
        return installs, replacements

    def drain_one(self, name: str) -> None:
        """Return when all that one subscription received is handled."""
        self._eager[name].drain(timeout=DRAIN_SECONDS)

    def close_one(self, name: str) -> None:
        """Close what is open here on a channel."""
        for each in (self._eager.pop(name, None), self._producers.pop(name, None)):
            if each is not None:
                each.close()

    # ---- shared objects ----

    def steer(self, name: str, tier: str) -> None:
        """Subscribe with a modulator that has a copy of a shared object of this process."""
        self._view = View()
        self.subscribe_eagerly(name, Steered(self._view), tier)

    def pull_when_told(self, orders: str, name: str | None) -> None:
        """Take the newest version for each event of `orders`: in the copy here, or in the modulators at a producer."""

        def pull(event: Any) -> None:
            if name is None:
                self._view.pull()
            else:
                self._producers[name].deliver(None).result(timeout=DRAIN_SECONDS)

        self._eager[orders] = ec.channel(orders).subscribe(pull)

    def publish_and_order_seconds(self, orders: str, times: int) -> float:
        """Seconds of publishing the shared object lazily, until all who were then told to have pulled it."""
        self._view.policy = "lazy"
        began = time.perf_counter()
        for number in range(times):
            self._view.low = float(number)
            self._view.publish()
            self._producers[orders].deliver(None).result(timeout=DRAIN_SECONDS)
        return (time.perf_counter() - began) / times

    # ---- what it all costs ----

    def concentrator(self) -> int:
        """The id of the process of this node's concentrator."""
        here = ray.get_runtime_context().get_node_id()
        return next(int(part.pid) for part in ec.status().concentrators if part.node_id.startswith(here[:16]))

    def all_bytes_between_nodes(self) -> int:
        """What has gone from node to node, all that belongs to the protocol included."""
        return sum(part.bytes_between_nodes for part in ec.status().concentrators)
