"""Who takes part: a producer and consumers, as plain classes that the scenario makes Ray actors of."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import echannel_ray as ec

_SLICE_SECONDS = 0.01
_CLOCK_EVERY = 64


@dataclass
class ReceivedTally:
    """What a consumer has seen of the events, which are numbered from 0."""

    received: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    last: int = -1
    seen: bytearray = field(default_factory=bytearray)  # one byte for each number

    def count(self, event: dict[str, Any]) -> None:
        """Count an event."""
        number = event["number"]
        if number <= self.last:
            self.out_of_order += 1
        self.last = number
        if number >= len(self.seen):
            self.seen.extend(bytes(max(number + 1 - len(self.seen), 1 << 16)))
        if self.seen[number]:
            self.duplicates += 1
        self.seen[number] = 1
        self.received += 1


class CountingConsumer:
    """Counts events; `pause_seconds` after every `pause_every` of them is its own pace."""

    def __init__(self, channel: ec.EventChannel, group: str | None, pause_every: int, pause_seconds: float) -> None:
        self.tally = ReceivedTally()
        self._pause_every = pause_every
        self._pause_seconds = pause_seconds
        self._subscription = channel.subscribe(self._handle, group=group)

    def _handle(self, event: dict[str, Any]) -> None:
        self.tally.count(event)
        if self._pause_every and self.tally.received % self._pause_every == 0:
            time.sleep(self._pause_seconds)

    def events(self) -> int:
        """How many events have come so far."""
        return self.tally.received

    def result(self) -> ReceivedTally:
        """Everything that the consumer has seen."""
        return self.tally

    def leave(self) -> None:
        """End the subscription, and let the others go on without it."""
        self._subscription.close()


class NumberedSource:
    """Publishes numbered events."""

    def __init__(self, channel: ec.EventChannel) -> None:
        self._producer = channel.producer()
        self._next = 0
        self._stop = False

    def events(self) -> int:
        """How many events were published so far."""
        return self._next

    def publish_at(self, rate: int) -> int:
        """Publish so many events a second until told to stop; how many were published."""
        begun, first = time.monotonic(), self._next
        while not self._stop:
            due = first + int((time.monotonic() - begun) * rate)
            while self._next < due:
                self._publish()
            time.sleep(_SLICE_SECONDS)
        self._producer.drain(60)
        return self._next

    def publish_flat_out(self, seconds: float) -> float:
        """Publish as fast as it goes, and wait until all of it has arrived; events a second, waiting included."""
        begun, first = time.monotonic(), self._next
        while time.monotonic() - begun < seconds:
            for _ in range(_CLOCK_EVERY):
                self._publish()
        self._producer.drain(60)
        return (self._next - first) / (time.monotonic() - begun)

    def round_trips(self, times: int) -> list[float]:
        """Seconds of so many synchronous deliveries to all consumers."""
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            self._producer.deliver(self._event()).result(30)
            found.append(time.perf_counter() - begun)
        return found

    def stop(self) -> None:
        """Stop `publish_at`."""
        self._stop = True

    def _publish(self) -> None:
        self._producer.publish(self._event())

    def _event(self) -> dict[str, Any]:
        event = {"number": self._next, "symbol": "RAY", "price": 76.25}
        self._next += 1
        return event
