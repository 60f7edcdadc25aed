"""What is sent when the transport can't take everything: these keep a queue of their own.

Each has one event in the environment's queue for each one in its own; that one says that there is something to send,
and `dequeue` decides what. While the transport keeps up, nothing waits, and all of them pass everything on.
"""

from __future__ import annotations

from bisect import insort
from functools import cached_property
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._checks import count
from echannel_ray.modulators._fields import Field, Key, Read, as_number, checked_field, checked_key, key_reader, reader


class NewestOnly(Modulator):
    """Of the events that wait, sends only the newest; with `by`, the newest of each key.

    >>> try_out(NewestOnly(by="symbol"), [{"symbol": s, "price": p} for s, p in (("RAY", 70), ("A", 1), ("RAY", 71))])
    [{'symbol': 'RAY', 'price': 71}, {'symbol': 'A', 'price': 1}]
    """

    def __init__(self, by: Key = None) -> None:
        self.by = checked_key("by", by)

    @cached_property
    def _key_of(self) -> Read:
        return key_reader(self.by)

    @cached_property
    def _newest(self) -> dict[Any, Any]:
        return {}

    @override
    def enqueue(self, event: Any) -> None:
        key = self._key_of(event)
        is_waiting = key in self._newest
        self._newest[key] = event
        if not is_waiting:
            self.emit(event)

    @override
    def dequeue(self, event: Any) -> Any:
        return self._newest.pop(self._key_of(event))


class Priority(Modulator):
    """Of the events that wait, sends the one with the largest priority first; equal ones in the order of publishing.

    The priority is a number. When more than `max_waiting` wait, the one with the smallest priority is dropped.

    >>> try_out(Priority("urgency"), [{"urgency": 1}, {"urgency": 9}, {"urgency": 5}])
    [{'urgency': 9}, {'urgency': 5}, {'urgency': 1}]
    """

    _published = 0

    def __init__(self, field: Field, smallest_first: bool = False, max_waiting: int = 10_000) -> None:
        self.field = checked_field("field", field)
        self.smallest_first = bool(smallest_first)
        self.max_waiting = count("max_waiting", max_waiting)

    @cached_property
    def _read(self) -> Read:
        return reader(self.field)

    @cached_property
    def _waiting(self) -> list[tuple[Any, int, Any]]:
        # The most urgent is the last: taken off in no time. What is to be dropped is the first.
        return []

    @override
    def enqueue(self, event: Any) -> None:
        priority = as_number(self._read(event))
        if self.smallest_first:
            priority = -priority
        if priority != priority:  # NaN, which has no place in any order
            priority = float("-inf")
        self._published += 1
        insort(self._waiting, (priority, -self._published, event))
        if len(self._waiting) > self.max_waiting:
            del self._waiting[0]
        else:
            self.emit(event)

    @override
    def dequeue(self, event: Any) -> Any:
        return self._waiting.pop()[-1]


class TopK(Priority):
    """Of the events that wait, sends the `k` with the largest values of a field, largest first, and drops the others.

    >>> try_out(TopK(2, "price"), [{"price": 70}, {"price": 90}, {"price": 80}])
    [{'price': 90}, {'price': 80}]
    """

    def __init__(self, k: int, field: Field) -> None:
        super().__init__(field, max_waiting=count("k", k))
