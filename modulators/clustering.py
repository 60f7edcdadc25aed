"""Clustering: events that belong together, as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from time import monotonic
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Demodulator, Modulator
from echannel_ray.modulators._checks import above_zero, count
from echannel_ray.modulators._fields import Key, Read, as_made, as_plain, checked_key, checked_make, key_reader


class Cluster(Modulator):
    """Sends events with equal keys together, as a list: when there are `size` of them, or when the first has waited
    for `seconds`. What is incomplete goes with the `flush` of a drain, a reset or a close.

    Within a cluster the order of publishing stays. The events are in the list as plain data: an object of a class is a
    dict of its fields there.

    >>> try_out(Cluster(by="symbol", size=2), [{"symbol": s, "price": p} for s, p in (("A", 1), ("B", 9), ("A", 2))])
    [[{'symbol': 'A', 'price': 1}, {'symbol': 'A', 'price': 2}], [{'symbol': 'B', 'price': 9}]]
    """

    def __init__(self, by: Key = None, size: int | None = None, seconds: float | None = None) -> None:
        if size is None and seconds is None:
            raise ValueError("a Cluster without an end would never be sent: give size, seconds or both")
        self.by = checked_key("by", by)
        self.size = None if size is None else count("size", size)
        self.seconds = None if seconds is None else above_zero("seconds", seconds)
        self.period_seconds = None if self.seconds is None else self.seconds / 2

    @cached_property
    def _key_of(self) -> Read:
        return key_reader(self.by)

    @cached_property
    def _clusters(self) -> dict[Any, tuple[float, list[Any]]]:  # each with the time of its first event
        return {}

    @override
    def enqueue(self, event: Any) -> None:
        key = self._key_of(event)
        if key not in self._clusters:
            self._clusters[key] = (monotonic(), [])
        _, events = self._clusters[key]
        events.append(as_plain(event))
        if len(events) == self.size:
            del self._clusters[key]
            self.emit(events)

    @override
    def period(self) -> None:
        # Already from the half of the time on: at the next turn it may be over.
        until = monotonic() - (self.period_seconds or 0)
        for key in [key for key, (begun, _) in self._clusters.items() if begun <= until]:
            self.emit(self._clusters.pop(key)[1])

    @override
    def flush(self) -> None:
        for _, events in self._clusters.values():
            self.emit(events)
        self._clusters.clear()


class Uncluster(Demodulator):
    """Gives the handler the events of a `Cluster` one by one; `make`, if they are objects, is their class.

    >>> try_out(Cluster(size=2), ["a", "b", "c"], Uncluster())
    ['a', 'b', 'c']
    """

    def __init__(self, make: Callable[..., Any] | None = None) -> None:
        self.make = checked_make(make)

    @override
    def receive(self, event: Any) -> Iterable[Any]:
        if not isinstance(event, list):
            raise TypeError(f"Uncluster reads what Cluster has sent, not a {type(event).__qualname__}")
        return [as_made(self.make, each) for each in event]
