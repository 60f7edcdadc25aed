"""Windows: what the last events have in common."""

from __future__ import annotations

import sys
from collections import deque
from functools import cached_property
from time import monotonic
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._checks import above_zero, count
from echannel_ray.modulators._fields import Field, Read, as_number, as_plain, checked_field, reader


class SlidingWindow(Modulator):
    """Sends, with every `every`-th event, the list of the last events: up to `size` of them, not older than `seconds`.

    The first windows are short. With `every` equal to `size`, each event is in one window. The events are in the list
    as plain data: an object of a class is a dict of its fields there.

    >>> try_out(SlidingWindow(size=3, every=2), "abcdef")
    [['a', 'b'], ['b', 'c', 'd'], ['d', 'e', 'f']]
    """

    _new = 0  # events that no window has shown

    def __init__(self, size: int | None = None, seconds: float | None = None, every: int = 1) -> None:
        if size is None and seconds is None:
            raise ValueError("a SlidingWindow without an end would grow for ever: give size, seconds or both")
        self.size = None if size is None else count("size", size)
        self.seconds = None if seconds is None else above_zero("seconds", seconds)
        self.every = count("every", every, at_most=self.size)

    @cached_property
    def _events(self) -> deque[Any]:
        return deque(maxlen=self.size)

    @cached_property
    def _times(self) -> deque[float]:
        return deque(maxlen=self.size)

    @override
    def enqueue(self, event: Any) -> None:
        self._events.append(as_plain(event))
        self._times.append(monotonic())
        self._new += 1
        if self._new == self.every:
            self._send()

    @override
    def flush(self) -> None:
        if self._new:
            self._send()

    def _send(self) -> None:
        if self.seconds is not None:
            since = monotonic() - self.seconds
            while self._times and self._times[0] < since:
                self._times.popleft()
                self._events.popleft()
        self._new = 0
        if self._events:
            self.emit(list(self._events))


class MovingAverage(Modulator):
    """Sends, for each event, the average of a field over the last `size` events: numbers, or arrays of one shape.

    >>> try_out(MovingAverage("price", size=2), [{"price": 70}, {"price": 72}, {"price": 80}])
    [70.0, 71.0, 76.0]
    """

    def __init__(self, field: Field, size: int) -> None:
        self.field = checked_field("field", field)
        self.size = count("size", size)

    @cached_property
    def _read(self) -> Read:
        return reader(self.field)

    @cached_property
    def _values(self) -> deque[Any]:
        return deque(maxlen=self.size)

    @override
    def enqueue(self, event: Any) -> None:
        value = as_number(self._read(event))
        self._values.append(value)
        # Summed up anew: a sum that goes along with the window would add up the errors of all its roundings.
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            self.emit(numpy.mean(self._values, axis=0))  # in a type that is wide enough
        else:
            self.emit(sum(self._values) / len(self._values))
