"""Difference: only what has changed (the DIFF modulator of the paper)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._checks import number
from echannel_ray.modulators._fields import (
    Field,
    Key,
    Read,
    checked_field,
    checked_key,
    checked_names,
    key_reader,
    reader,
)


class Difference(Modulator):
    """Passes an event when one of its fields differs by the threshold or more from what was last sent for its key.

    The first event of each key passes. Arrays differ by their largest difference at one place. With the threshold 0,
    and for values that are no numbers, any difference counts.

    >>> try_out(Difference("celsius", 0.5, by="station"), [{"station": 1, "celsius": c} for c in (20, 20.3, 20.6)])
    [{'station': 1, 'celsius': 20}, {'station': 1, 'celsius': 20.6}]
    """

    def __init__(self, fields: Field | Sequence[str] = None, threshold: float = 0, by: Key = None) -> None:
        is_several = isinstance(fields, list | tuple)
        self.fields = checked_names("fields", fields) if is_several else checked_field("fields", fields)
        if number("threshold", threshold) < 0:
            raise ValueError(f"threshold is 0 or more, not {threshold!r}")
        self.threshold = threshold
        self.by = checked_key("by", by)

    @cached_property
    def _readers(self) -> list[Read]:
        fields = self.fields if isinstance(self.fields, tuple) else (self.fields,)
        return [reader(field) for field in fields]

    @cached_property
    def _key_of(self) -> Read:
        return key_reader(self.by)

    @cached_property
    def _sent(self) -> dict[Any, list[Any]]:
        return {}

    @override
    def enqueue(self, event: Any) -> None:
        key = self._key_of(event)
        values = [read(event) for read in self._readers]
        sent = self._sent.get(key)
        if sent is None or any(self._differs(*pair) for pair in zip(sent, values, strict=True)):
            self._sent[key] = values
            self.emit(event)

    def _differs(self, sent: Any, value: Any) -> bool:
        change = distance(sent, value)
        return change > 0 and change >= self.threshold


def distance(one: Any, other: Any) -> float:
    """How far two values are apart: 0 for equal ones, infinitely for what can't be subtracted."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(other, numpy.ndarray | numpy.generic):
        return _distance_of_arrays(numpy, one, other)
    try:
        apart = abs(other - one)
        if apart == apart:
            return apart  # type: ignore[no-any-return]
        # NaN: of two of them, of two equal infinities, or of one NaN and a number.
        return 0 if one == other or (one != one and other != other) else math.inf
    except TypeError:
        return 0 if one == other else math.inf


def _distance_of_arrays(numpy: Any, one: Any, other: Any) -> float:
    one, other = numpy.asarray(one), numpy.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype or one.dtype.kind not in "biufc":
        return 0 if numpy.array_equal(one, other) else math.inf
    # As floats: differences of unsigned numbers would be wrong, and those of flags don't exist.
    wide = numpy.complex128 if one.dtype.kind == "c" else numpy.float64
    with numpy.errstate(invalid="ignore", over="ignore"):
        apart = numpy.abs(numpy.subtract(other, one, dtype=wide))
    unclear = numpy.isnan(apart)
    if unclear.any():
        alike = (one == other) | ((one != one) & (other != other))
        apart = numpy.where(unclear, numpy.where(alike, 0, math.inf), apart)
    return float(apart.max(initial=0))
