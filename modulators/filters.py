"""Filters: each passes on the events that it was given, or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._fields import Field, Read, checked_field, reader


class Range(Modulator):
    """Passes events whose field is from `low` to `high`, both included; None is no limit.

    >>> try_out(Range("price", low=70), [{"price": 69.5}, {"price": 70}])
    [{'price': 70}]
    """

    def __init__(self, field: Field = None, low: Any = None, high: Any = None) -> None:
        self.field = checked_field("field", field)
        if low is None and high is None:
            raise ValueError("a Range without limits passes everything: give low, high or both")
        if low is not None and high is not None and not low <= high:
            raise ValueError(f"a Range from {low!r} to {high!r} passes nothing: low comes first")
        self.low = low
        self.high = high

    @cached_property
    def _read(self) -> Read:
        return reader(self.field)

    @override
    def enqueue(self, event: Any) -> None:
        value = self._read(event)
        if (self.low is None or self.low <= value) and (self.high is None or value <= self.high):
            self.emit(event)


class Within(Modulator):
    """Passes events whose field is within a window that can be moved at any time: a shared object with the fields
    `low` and `high`, both included.

    >>> try_out(Within(SimpleNamespace(low=70, high=80), "price"), [{"price": 69.5}, {"price": 70}])
    [{'price': 70}]
    """

    def __init__(self, window: Any, field: Field = None) -> None:
        for limit in ("low", "high"):
            if not hasattr(window, limit):
                raise TypeError(
                    f"the window is a shared object with the fields low and high; {window!r} has no {limit}"
                )
        self.window = window
        self.field = checked_field("field", field)

    @cached_property
    def _read(self) -> Read:
        return reader(self.field)

    @override
    def enqueue(self, event: Any) -> None:
        # Read anew for each event: during one `enqueue` both limits are of one version.
        if self.window.low <= self._read(event) <= self.window.high:
            self.emit(event)


class Where(Modulator):
    """Passes events for which a function of yours says so. The function is shipped; give each of several consumers
    that should share a derived channel the same one.

    >>> try_out(Where(lambda trade: trade["price"] * trade["size"] > 1000), [{"price": 70, "size": 10}])
    []
    """

    def __init__(self, predicate: Callable[[Any], object]) -> None:
        if not callable(predicate):
            raise TypeError(f"the predicate is a function of one event, not {predicate!r}")
        self.predicate = predicate

    @override
    def enqueue(self, event: Any) -> None:
        if self.predicate(event):
            self.emit(event)


class Matching(Modulator):
    """Passes events whose fields equal the given values, all of them.

    >>> try_out(Matching(symbol="RAY", side="buy"), [{"symbol": "RAY", "side": "sell"}])
    []
    """

    def __init__(self, **equal: Any) -> None:
        if not equal:
            raise ValueError('Matching needs at least one field and its value, as in Matching(symbol="RAY")')
        for name in equal:
            checked_field("a name", name)
        self.equal = dict(sorted(equal.items()))  # in whatever order they were given, they mean the same

    @cached_property
    def _wanted(self) -> list[tuple[Read, Any]]:
        return [(reader(name), value) for name, value in self.equal.items()]

    @override
    def enqueue(self, event: Any) -> None:
        for read, value in self._wanted:
            if read(event) != value:
                return
        self.emit(event)
