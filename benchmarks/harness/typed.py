"""Parties on typed channels: records one by one and in bulk, filters and other programs, batches."""

from __future__ import annotations

import time
from itertools import cycle, islice
from typing import Any

from echannel_ray.benchmarks.harness import records
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.parties import DRAIN_SECONDS, Consumer, Producer

import echannel_ray as ec

ARRAY_RECORDS = 12_600  # as many of each price, and some blocks
LARGE_RECORDS = 48


class TypedProducer(Producer):
    """See `Producer`. Events are made beforehand: objects and records of arrays to publish one by one, and arrays."""

    def open_typed(self, name: str, event_type: Any) -> None:
        """Make a producer of a typed channel."""
        self._producers[name] = ec.channel(name, event_type).producer()
        self._events |= {
            "readings": [records.Reading(price) for price in records.prices(records.PRICES, self._seed).tolist()],
            "100 KB records": [*records.filled(records.SERIES, LARGE_RECORDS, self._seed)],
            "mixed 100 KB records": [*records.filled(records.DEPTH, LARGE_RECORDS, self._seed)],
            "grids": [*records.filled(records.GRID, LARGE_RECORDS, self._seed)],
        }
        self._arrays = {
            "readings": records.filled(records.READING, ARRAY_RECORDS, self._seed),
            "quotes": records.filled(records.quote(), ARRAY_RECORDS, self._seed),
            "100 KB records": records.filled(records.SERIES, LARGE_RECORDS, self._seed),
            "mixed 100 KB records": records.filled(records.DEPTH, LARGE_RECORDS, self._seed),
        }
        self._arrays |= {f"frozen {kind}": records.frozen(array) for kind, array in self._arrays.items()}

    def publish_in_bulk(self, kind: str, events: int, name: str) -> float:
        """Publish whole arrays until there were so many events and all are acknowledged; the time when it began."""
        producer, array = self._producers[name], self._arrays[kind]
        began = time.monotonic()
        for each in islice(cycle([array]), events // len(array)):
            producer.publish_many(each)
        producer.drain(timeout=DRAIN_SECONDS)
        return began

    def bytes_per_event(self, name: str) -> dict[str, float]:
        """Of a channel, and of what is derived from it."""
        stats = ec.channel(name).stats()
        return {each.channel: each.bytes_published / each.events_published for each in (stats, *stats.derived.values())}


class TypedConsumer(Consumer):
    """See `Consumer`."""

    def __init__(self, namespace: str) -> None:
        self._received = 0
        super().__init__(namespace)

    def subscribe_typed(
        self, name: str, event_type: Any, text: str | None = None, output: Any = None, batches: str | None = None
    ) -> str:
        """Count what arrives, behind E-code if there is a text; the name of the channel that it comes from."""
        channel = ec.channel(name, event_type)
        if text is not None:
            channel = channel.derive(ec.ecode(text, output=output))
        channel.subscribe(self.handle if batches is None else self.handle_batch, batches=batches)
        return channel.name

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


class TypedField(Field):
    """One producer and one consumer, with as many typed channels as are wanted."""

    producer_class = TypedProducer
    consumer_class = TypedConsumer

    def connect_typed(self, name: str, event_type: Any, **keywords: Any) -> str:
        """Open a channel in both; where the consumer's events come from. Keywords are those of `subscribe_typed`."""
        answer(self.producer.open_typed.remote(name, event_type))
        self._listeners[name] = self.consumers
        return str(answer(self.consumers[0].subscribe_typed.remote(name, event_type, **keywords)))

    def rate_in_bulk(self, kind: str, name: str, events: int) -> float:
        """As `rate`, with `publish_many`; of whole arrays, so of a few events more or less."""
        size = LARGE_RECORDS if "KB" in kind else ARRAY_RECORDS
        events = max(1, events // size) * size
        answer(self.consumers[0].expect.remote(events))
        began = answer(self.producer.publish_in_bulk.remote(kind, events, name))
        return events / (float(answer(self.consumers[0].ended.remote())) - float(began))

    def pids(self) -> list[int]:
        """Of everybody who works on an event."""
        return [self.producer_pid, *self.consumer_pids, *self.concentrator_pids]
