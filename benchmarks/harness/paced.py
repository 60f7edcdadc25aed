"""A producer that publishes as fast as it can or by the clock, on channels with other packings, and what came of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice

import echannel_ray as ec
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.parties import DRAIN_SECONDS, Consumer, Producer
from echannel_ray.benchmarks.harness.usage import cpu_seconds

_STAMP = struct.Struct("d")


@dataclass(frozen=True)
class Load:
    """Bursts of events by the clock."""

    burst: int
    every_seconds: float
    seconds: float
    size_bytes: int = 100

    @property
    def events(self) -> int:
        """How many there are."""
        return self.burst * max(1, int(self.seconds / self.every_seconds))


@dataclass(frozen=True)
class Outcome:
    """Of one load: events a second, seconds from `publish` to the handler, CPU of all processes, events in a pack."""

    rate: float
    median_seconds: float
    p99_seconds: float
    cpu_seconds_per_event: float
    events_per_pack: float


class PacedProducer(Producer):
    """Stamps what it publishes."""

    def open_with(self, packings: Mapping[str, ec.Packing]) -> None:
        """Make a producer for each of these channels."""
        for name, packing in packings.items():
            self._producers[name] = ec.channel(name, packing=packing).producer()

    def publish_sizes(self, name: str, sizes: list[int], events_each: int, events: int) -> float:
        """As fast as it can: so many events of each size in turn; when it began."""
        producer = self._producers[name]
        publish = producer.publish
        contents = [[bytes([n]) * size for n in range(64)] for size in sizes]
        began = time.monotonic()
        left, turns = events, cycle(contents)
        while left > 0:
            for event in islice(cycle(next(turns)), min(left, events_each)):
                publish(event)
            left -= events_each
        producer.drain(timeout=DRAIN_SECONDS)
        return began

    def publish_for(self, name: str, size: int, seconds: float) -> tuple[float, int]:
        """As fast as it can for some time: when it began, and how many events that were."""
        producer = self._producers[name]
        publish = producer.publish
        contents = [bytes([n]) * size for n in range(64)]
        began = time.monotonic()
        end = began + seconds
        events = 0
        while time.monotonic() < end:
            for event in contents:
                publish(event)
            events += len(contents)
        producer.drain(timeout=DRAIN_SECONDS)
        return began, events

    def degree(self, name: str) -> float:
        """The packing degree now."""
        return max(ec.channel(name).stats().packing_degree.values())

    def ask_and_wait(self, there: str, back: str, callers: int, seconds: float) -> float:
        """Questions a second, by threads that each wait for the answer before the next one."""
        answered = [threading.Event() for _ in range(callers)]
        counts = [0] * callers
        publish = self._producers[there].publish
        end = time.monotonic() + seconds

        def ask(caller: int) -> None:
            while time.monotonic() < end:
                answered[caller].clear()
                publish(caller)
                answered[caller].wait(DRAIN_SECONDS)
                counts[caller] += 1

        with ec.channel(back).subscribe(lambda caller: answered[caller].set()):
            threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(callers)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sum(counts) / (time.monotonic() - began)

    def publish_load(self, name: str, load: Load) -> int:
        """By the clock; how many packs it took."""
        producer = self._producers[name]
        publish, stamp, clock = producer.publish, _STAMP.pack, time.monotonic
        filling = bytes(load.size_bytes - _STAMP.size)
        before = ec.channel(name).stats().packs_sent
        due = clock()
        for _ in range(load.events // load.burst):
            for _ in range(load.burst):
                publish(stamp(clock()) + filling)
            due += load.every_seconds
            if (left := due - clock()) > 0:
                time.sleep(left)
        producer.drain(timeout=DRAIN_SECONDS)
        return int(ec.channel(name).stats().packs_sent) - before


class TimingConsumer(Consumer):
    """Reads the stamps."""

    def subscribe_timing(self, names: list[str]) -> None:
        """Note the latency of each event of these channels from now on."""
        self._seconds: list[float] = []
        for name in names:
            ec.channel(name).subscribe(self._time)

    def _time(self, event: bytes) -> None:
        now = time.monotonic()
        self._seconds.append(now - _STAMP.unpack_from(event)[0])
        self._ended = now

    def latencies(self) -> tuple[int, float, float, float]:
        """How many came since the last call, their median and p99, and when the last one did."""
        taken, self._seconds = sorted(self._seconds), []
        return len(taken), taken[len(taken) // 2], taken[int(len(taken) * 0.99)], self._ended


class PackedField(Field):
    """One producer and one consumer, and channels that differ in their packing."""

    producer_class: type = PacedProducer
    consumer_class: type = TimingConsumer

    def connect_packed(self, packings: Mapping[str, ec.Packing], timing: bool = False) -> None:
        """Open the channels."""
        answer(self.producer.open_with.remote(packings))
        (consumer,) = self.consumers
        names = [*packings]
        answer(consumer.subscribe_timing.remote(names) if timing else consumer.subscribe.remote(names))

    @property
    def pids(self) -> list[int]:
        """All processes that have to do with an event."""
        return [self.producer_pid, *self.concentrator_pids, *self.consumer_pids]

    def full_speed(self, name: str, sizes: list[int], events_each: int, events: int) -> tuple[float, float]:
        """Events a second, and the CPU that each took."""
        (consumer,) = self.consumers
        answer(consumer.expect.remote(events))
        before = cpu_seconds(self.pids)
        began = answer(self.producer.publish_sizes.remote(name, sizes, events_each, events))
        ended = answer(consumer.ended.remote())
        return events / (ended - began), (cpu_seconds(self.pids) - before) / events

    def full_speed_for(self, name: str, size: int, seconds: float) -> float:
        """Events a second until all that was published in this time is there."""
        began, events = answer(self.producer.publish_for.remote(name, size, seconds))
        return float(events / (time.monotonic() - began))

    def degree(self, name: str) -> float:
        """The packing degree now."""
        return float(answer(self.producer.degree.remote(name)))

    def under(self, name: str, load: Load) -> Outcome:
        """What this load is like."""
        (consumer,) = self.consumers
        before = cpu_seconds(self.pids)
        began = time.monotonic()
        packs = answer(self.producer.publish_load.remote(name, load))
        used = cpu_seconds(self.pids) - before
        events, median, p99, ended = answer(consumer.latencies.remote())
        return Outcome(events / (ended - began), median, p99, used / events, events / max(1, packs))


class Competitor(Closing):
    """Another process that wants the processor: one that computes, on and off."""

    def __init__(self, core: int, on_seconds: float, off_seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_compute, args=(core, on_seconds, off_seconds), daemon=True)
        self._process.start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _compute(core: int, on_seconds: float, off_seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends us
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    idle = threading.Event()
    while os.getppid() == parent:
        end = time.monotonic() + on_seconds
        while time.monotonic() < end:
            sum(range(1000))
        idle.wait(off_seconds)
