"""The processes that use echannel_ray: Ray actors that publish and that count, by the public API only."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from typing import Any

import echannel_ray as ec
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.consumers.bare_methods import bare

DRAIN_SECONDS = 60.0
OPENING_THREADS = 16


class View(ec.SharedObject):
    """What producer and consumer share."""

    low: float = 0.0
    high: float = 1.0


def timed_publishes(view: View, times: int) -> float:
    """Seconds of setting a field and publishing it."""
    began = time.perf_counter()
    for number in range(times):
        view.low = float(number)
        view.publish()
    return (time.perf_counter() - began) / times


class Party:
    """A process that has joined a namespace."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)

    def pid(self) -> int:
        """The process's id."""
        return os.getpid()

    def concentrators(self) -> list[int]:
        """The ids of the concentrators' processes."""
        return [part.pid for part in ec.status().concentrators]

    def packs_relayed(self) -> int:
        """How many packs the concentrators have passed on."""
        return sum(part.packs_forwarded for part in ec.status().concentrators)

    def managers(self) -> list[int]:
        """The ids of the managers' processes."""
        return [part.pid for part in ec.status().managers]

    def create(self, names: list[str]) -> float:
        """Make channels, one after the other; the seconds that it took."""
        began = time.perf_counter()
        for name in names:
            ec.channel(name)
        return time.perf_counter() - began

    def bytes_between_nodes(self, name: str) -> int:
        """What a channel has sent from node to node."""
        return int(ec.channel(name).stats().bytes_between_nodes)

    def shutdown(self) -> None:
        """Stop the namespace."""
        ec.shutdown()


class Producer(Party):
    """Publishes on the channels that it opened; one per experiment."""

    def __init__(self, namespace: str, seed: int) -> None:
        super().__init__(namespace)
        self._seed = seed
        self._producers: dict[str, Any] = {}
        self._events: dict[str, list[Any]] = {}
        self._view = View()

    def open(self, names: list[str]) -> None:
        """Make a producer for each channel."""
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            self._producers |= zip(names, pool.map(lambda name: ec.channel(name).producer(), names), strict=True)

    def publish(self, kind: str, events: int, names: list[str]) -> float:
        """Publish on channels in turn, until all is acknowledged; the time when it began."""
        if kind not in self._events:
            self._events[kind] = payloads.events_of(kind, self._seed)
        producers = [self._producers[name] for name in names]
        calls = cycle([producer.publish for producer in producers])
        began = time.monotonic()
        for publish, event in islice(zip(calls, cycle(self._events[kind]), strict=False), events):
            publish(event)
        for producer in producers:
            producer.drain(timeout=DRAIN_SECONDS)
        return began

    def publish_loaned(self, kind: str, events: int, name: str) -> float:
        """Write arrays into shared memory and publish them, until all is acknowledged; the time when it began."""
        contents = self._events.setdefault(kind, payloads.events_of(kind, self._seed))
        producer = self._producers[name]
        began = time.monotonic()
        for content in islice(cycle(contents), events):
            array = producer.loan(content.shape, content.dtype)
            array[...] = content
            producer.publish(array)
        producer.drain(timeout=DRAIN_SECONDS)
        return began

    def calling_seconds(self, kind: str, events: int, name: str) -> float:
        """CPU seconds of each `publish` in the thread that calls it, without what `drain` waits for."""
        contents = self._events.setdefault(kind, payloads.events_of(kind, self._seed))
        publish = self._producers[name].publish
        began = time.thread_time()
        for event in islice(cycle(contents), events):
            publish(event)
        seconds = (time.thread_time() - began) / events
        self._producers[name].drain(timeout=DRAIN_SECONDS)
        return seconds

    def deliver_seconds(self, name: str, event: Any, events: int) -> float:
        """Seconds of `deliver` until every handler has returned."""
        deliver = self._producers[name].deliver
        began = time.perf_counter()
        for _ in range(events):
            deliver(event).result(timeout=DRAIN_SECONDS)
        return (time.perf_counter() - began) / events

    def share(self) -> View:
        """The shared object of this process."""
        return self._view

    def publish_shared_seconds(self, policy: str, times: int) -> float:
        """Seconds of setting a field of the shared object and publishing it."""
        view = self._view
        view.policy = policy
        view.publish()
        seconds = timed_publishes(view, times)
        view.policy = "prompt"
        view.publish()
        return seconds


class Consumer(Party):
    """Counts what arrives on the channels that it subscribed to."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._all_here = threading.Event()
        self._ended = 0.0
        self.expect(-1)

    def handle(self, event: Any) -> None:
        """One event. Handlers of several subscriptions may run at once, so the count must be atomic: `next` is."""
        if self._next() == self._expected:
            self._ended = time.monotonic()
            self._all_here.set()

    def subscribe(self, names: list[str]) -> None:
        """Count the events of these channels from now on."""
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            list(pool.map(lambda name: ec.channel(name).subscribe(self.handle), names))

    def subscribe_reading(self, name: str) -> None:
        """Count the events of a channel, reading each byte of them."""
        count = bare(self.handle)

        def handle(event: Any) -> None:
            payloads.touch(event)
            count(event)

        ec.channel(name).subscribe(handle)

    def subscribe_seconds(self, names: list[str]) -> list[float]:
        """How long `subscribe` takes on each of these channels, which are there already."""
        seconds = []
        for name in names:
            channel = ec.channel(name)
            began = time.perf_counter()
            subscription = channel.subscribe(self.handle)
            seconds.append(time.perf_counter() - began)
            subscription.close()
        return seconds

    def hold(self, view: View) -> None:
        """Keep a copy of a shared object."""
        self._view = view

    def relay(self, incoming: str, outgoing: str) -> None:
        """Publish on one channel what arrives on another."""
        ec.channel(incoming).subscribe(ec.channel(outgoing).producer().publish)

    def relay_and_wait(self, incoming: str, outgoing: str) -> None:
        """The same with `deliver`: an event is handled here when all that follow have handled it."""
        deliver = ec.channel(outgoing).producer().deliver
        ec.channel(incoming).subscribe(lambda event: deliver(event).result(timeout=DRAIN_SECONDS))

    def expect(self, events: int) -> None:
        """Begin to count anew."""
        self._all_here.clear()
        self._next = count(1).__next__
        self._expected = events

    def ended(self) -> float:
        """The time when the last expected event was handled."""
        if not self._all_here.wait(DRAIN_SECONDS):
            raise TimeoutError(f"only {self._next() - 1} of {self._expected} events came")
        return self._ended
