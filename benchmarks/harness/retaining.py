"""One producer and one consumer with channels that retain: what is published there can be replayed."""

from __future__ import annotations

import time
from typing import Any

import echannel_ray as ec
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.typed import TypedConsumer, TypedField, TypedProducer


class RetainingProducer(TypedProducer):
    """Publishes on channels that retain, which it makes and deletes."""

    def create_retaining(self, name: str, event_type: Any, disk: bool) -> None:
        """Make a channel that retains."""
        ec.channel(name, event_type, retain=ec.Retention(disk=disk))

    def delete(self, name: str) -> None:
        """Forget a channel, and what its log has on disk."""
        ec.channel(name).delete()


class Replayer(TypedConsumer):
    """Consumes what a channel has retained."""

    def replay_seconds(self, name: str, events: int, batches: str | None) -> float:
        """From `subscribe` until the last of so many retained events is handled."""
        handler = self.handle if batches is None else self.handle_batch
        self.expect(events)
        channel = ec.channel(name)
        began = time.monotonic()
        subscription = channel.subscribe(handler, start="earliest", batches=batches)
        try:
            return self.ended() - began
        finally:
            subscription.close()


class RetainingField(TypedField):
    """Its channels that retain end with it."""

    producer_class = RetainingProducer
    consumer_class = Replayer
    _names: tuple[str, ...] = ()

    def create_retaining(self, name: str, disk: bool, event_type: Any = None) -> None:
        """Make a channel that retains, in memory or on disk."""
        answer(self.producer.create_retaining.remote(name, event_type, disk))
        self._names += (name,)

    def fill(self, name: str, kind: str, events: int) -> None:
        """Publish so many on a channel that nobody consumes."""
        answer(self.producer.open.remote([name]))
        answer(self.producer.publish.remote(kind, events, [name]))

    def fill_with_records(self, name: str, kind: str, event_type: Any, events: int) -> int:
        """About so many records, in arrays; how many there are."""
        answer(self.producer.open_typed.remote(name, event_type))
        self.make(kind, event_type)
        events -= events % self._sizes[kind]
        answer(self.producer.publish_in_bulk.remote(kind, events, name))
        return events

    def replay_rate(self, name: str, events: int, batches: str | None = None) -> float:
        """Events a second from the log into a handler."""
        return events / float(answer(self.consumers[0].replay_seconds.remote(name, events, batches)))

    def close(self) -> None:
        """Stop the namespace, and leave nothing on disk."""
        for name in self._names:
            answer(self.producer.delete.remote(name))
        super().close()
