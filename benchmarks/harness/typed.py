"""Parties on typed channels: records one by one and in bulk, filters and other programs, batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import echannel_ray as ec
from echannel_ray.benchmarks.baselines.json_records import JsonChannel, JsonRecords
from echannel_ray.benchmarks.harness import records
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.parties import DRAIN_SECONDS, Consumer, Producer
from echannel_ray.benchmarks.harness.programs import native
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.harness.usage import cpu_seconds
from echannel_ray.consumers.bare_methods import bare

PAUSE_SECONDS = 0.002


def channel_of(name: str, event_type: Any) -> Any:
    """A typed channel; one of JSON text, where that is what the type says."""
    if isinstance(event_type, JsonRecords):
        return JsonChannel(name, event_type)
    return ec.channel(name, event_type)


class TypedProducer(Producer):
    """Publishes on typed channels what was made before: objects and records of arrays, and arrays."""

    def __init__(self, namespace: str, seed: int) -> None:
        super().__init__(namespace, seed)
        self._arrays: dict[str, Any] = {}

    def open_typed(self, name: str, event_type: Any) -> None:
        """Make a producer of a typed channel."""
        self._producers[name] = channel_of(name, event_type).producer()

    def make(self, kind: str, event_type: Any, freeze: bool) -> int:
        """Have ready what is published of a kind: so many events, and an array of as many."""
        dtype = records.READING if event_type is records.Reading else event_type
        array = records.filled(dtype, records.count_of(dtype), self._seed)
        if event_type is records.Reading:
            self._events[kind] = [records.Reading(price) for price in array["price"].tolist()]
        else:
            self._events[kind] = [*array]
        self._arrays[kind] = records.frozen(array) if freeze else array
        return len(array)

    def publish_in_bulk(self, kind: str, events: int, name: str) -> float:
        """Publish whole arrays until there were so many events and all are acknowledged; the time when it began."""
        producer, array = self._producers[name], self._arrays[kind]
        began = time.monotonic()
        for each in islice(cycle([array]), events // len(array)):
            producer.publish_many(each)
        producer.drain(timeout=DRAIN_SECONDS)
        return began

    def publish_loaned(self, kind: str, events: int, name: str) -> float:
        """As `publish_in_bulk`, with arrays on loan. They are not written: to make records is a program's own work."""
        producer, source = self._producers[name], self._arrays[kind]
        began = time.monotonic()
        for _ in range(events // len(source)):
            producer.publish_many(producer.loan(source.shape, source.dtype))
        producer.drain(timeout=DRAIN_SECONDS)
        return began

    def cpu_at_rate(self, kind: str, events: int, name: str, each: int, in_bulk: bool) -> float:
        """Publish some events every `PAUSE_SECONDS` until all is acknowledged; the CPU time of this process."""
        producer, source = self._producers[name], self._arrays[kind] if in_bulk else self._events[kind]
        cpu_before, began = cpu_seconds([os.getpid()]), time.monotonic()
        for turn in range(events // each):
            time.sleep(max(0.0, began + turn * PAUSE_SECONDS - time.monotonic()))
            at = turn * each % len(source)
            if in_bulk:
                producer.publish_many(source[at : at + each])
            else:
                for event in source[at : at + each]:
                    producer.publish(event)
        producer.drain(timeout=DRAIN_SECONDS)
        return cpu_seconds([os.getpid()]) - cpu_before

    def await_native(self) -> None:
        """Until all programs that were asked for are machine code: they are compiled in turn, and this one is last."""
        native("price > 0", records.quote())

    def publish_seconds(self, kind: str, events: int, name: str) -> float:
        """Seconds of publishing until all is acknowledged."""
        began = self.publish(kind, events, [name])
        return time.monotonic() - began

    def bytes_per_event(self, name: str) -> dict[str, float]:
        """Of a channel and of what is derived from it, where anything has travelled."""
        stats = ec.channel(name).stats()
        travelled = [each for each in (stats, *stats.derived.values()) if each.bytes_published]
        return {each.channel: each.bytes_published / each.events_published for each in travelled}


class TypedConsumer(Consumer):
    """Consumes typed channels, one by one or in batches."""

    def __init__(self, namespace: str) -> None:
        self._received = 0
        super().__init__(namespace)

    def subscribe_typed(
        self,
        name: str,
        event_type: Any,
        text: str | None = None,
        output: Any = None,
        batches: str | None = None,
        work: Callable[[Any], object] | None = None,
    ) -> str:
        """Count what arrives, behind E-code if there is a text; the name of the channel that it comes from.

        `work` is what the consumer does with each event, or batch.
        """
        channel = channel_of(name, event_type)
        if text is not None:
            channel = channel.derive(ec.ecode(text, output=output))
        count: Callable[[Any], None] = self.handle if batches is None else self.handle_batch
        if work is not None:
            count = _after(work, count)
        channel.subscribe(count, batches=batches)
        return str(channel.name)

    def handle_batch(self, batch: Any) -> None:
        """An array or record batch. There is one subscription to batches at a time that gets any."""
        self._received += len(batch)
        if self._received == self._expected:
            self._ended = time.monotonic()
            self._all_here.set()

    def expect(self, events: int) -> None:
        """Begin to count anew."""
        self._received = 0
        super().expect(events)


def _after(work: Callable[[Any], object], count: Callable[[Any], None]) -> Callable[[Any], None]:
    counted = bare(count)  # as a channel calls it where there is no work

    def handle(event: Any) -> None:
        work(event)
        counted(event)

    return handle


class TypedField(Field):
    """One producer and one consumer, with as many typed channels as are wanted."""

    producer_class = TypedProducer
    consumer_class = TypedConsumer

    def __init__(self, plan: Plan, namespace: str) -> None:
        super().__init__(plan, namespace)
        self._sizes: dict[str, int] = {}

    def connect_typed(self, name: str, event_type: Any, **keywords: Any) -> str:
        """Open a channel in both; where the consumer's events come from. Keywords are those of `subscribe_typed`."""
        answer(self.producer.open_typed.remote(name, event_type))
        self._listeners[name] = self.consumers
        return str(answer(self.consumers[0].subscribe_typed.remote(name, event_type, **keywords)))

    def make(self, kind: str, event_type: Any, freeze: bool = False) -> None:
        """Have the producer make what it publishes of a kind."""
        self._sizes[kind] = int(answer(self.producer.make.remote(kind, event_type, freeze)))

    def rate_in_bulk(self, kind: str, name: str, events: int, is_loaned: bool = False) -> float:
        """As `rate`, with `publish_many`; of whole arrays, so of a few events more or less."""
        size = self._sizes[kind]
        events = max(1, events // size) * size
        answer(self.consumers[0].expect.remote(events))
        publish = self.producer.publish_loaned if is_loaned else self.producer.publish_in_bulk
        began = answer(publish.remote(kind, events, name))
        return events / (float(answer(self.consumers[0].ended.remote())) - float(began))

    def settle(self, placement: str) -> None:
        """After the first events, which E-code met in another form: wait for machine code, then pin all threads."""
        answer(self.producer.await_native.remote())
        self.place(placement)

    def pids(self) -> list[int]:
        """Of everybody who works on an event."""
        return [self.producer_pid, *self.consumer_pids, *self.concentrator_pids]
