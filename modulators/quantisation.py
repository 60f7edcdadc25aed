"""Quantisation: numbers with fewer digits, which take fewer bytes. Lossy, within a bound that you choose."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from typing_extensions import override

from echannel_ray.modulation.modulator import Demodulator, Modulator
from echannel_ray.modulators._checks import above_zero, count
from echannel_ray.modulators._fields import as_made, as_plain, checked_make

# From there on a float has no halves: steps can't be told apart.
_MAX_CODE: Final = 2**53
_MAX_FLOAT: Final = sys.float_info.max / 4  # sums and differences stay finite


class Quantise(Modulator):
    """Rounds numbers, and arrays of numbers, and sends whole numbers of steps. For `Dequantise`.

    With `step`, to its multiples: the error is at most half a step. With `bits`, each array to 2**bits levels between
    its smallest and its largest value; for arrays only. `fields` names which fields of the event; without it, the event
    is a number or an array itself. A value with infinities or NaN travels as it is.

    >>> try_out(Quantise(step=0.5, fields="celsius"), [{"station": 1, "celsius": 20.6}], Dequantise())
    [{'station': 1, 'celsius': 20.5}]
    """

    def __init__(
        self, *, bits: int | None = None, step: float | None = None, fields: str | Sequence[str] | None = None
    ) -> None:
        if (bits is None) == (step is None):
            raise ValueError("Quantise takes either bits or step: give one of them")
        self.bits = None if bits is None else count("bits", bits, at_most=32)
        self.step = None if step is None else above_zero("step", step)
        if fields is None:
            self.fields = None
        else:
            self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
            if not self.fields or not all(isinstance(name, str) for name in self.fields):
                raise TypeError(f"fields are names, at least one, not {fields!r}")

    @override
    def enqueue(self, event: Any) -> None:
        event = as_plain(event)
        if self.fields is None:
            self.emit([(), self._quantised(event)])
            return
        if not isinstance(event, dict) or not event.keys() >= self._names:
            raise LookupError(f"Quantise was told of the fields {', '.join(self.fields)}, and an event lacks one")
        quantised = {name: self._quantised(event[name]) for name in self.fields}
        self.emit([self.fields, {**event, **quantised}])

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.fields or ())

    def _quantised(self, value: Any) -> Any:
        """A tuple of (type, offset, step, codes); or the value, if it has to stay."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind in "iuf":
            return _quantised_array(numpy, value, self.bits, self.step)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"Quantise takes numbers and arrays of them, not a {type(value).__qualname__}")
        if self.step is None:
            raise TypeError("Quantise(bits=) is for arrays, which have a smallest value and a largest: give step")
        if not abs(value) < _MAX_CODE * self.step:  # so is NaN
            return value
        return ("int" if isinstance(value, int) else "float", 0.0, self.step, round(value / self.step))


class Dequantise(Demodulator):
    """Gives the handler numbers and arrays again, of the types that they had; `make`, if events are objects, is their
    class.

    >>> try_out(Quantise(step=10), [12, 17.5], Dequantise())
    [10, 20.0]
    """

    def __init__(self, make: Callable[..., Any] | None = None) -> None:
        self.make = checked_make(make)

    @override
    def receive(self, event: Any) -> Iterable[Any]:
        if not isinstance(event, list) or len(event) != 2 or not isinstance(event[0], tuple):
            raise TypeError(f"Dequantise reads what Quantise has sent, not a {type(event).__qualname__}")
        names, content = event
        if not names:
            return (_restored(content),)
        return (as_made(self.make, {**content, **{name: _restored(content[name]) for name in names}}),)


def _quantised_array(numpy: Any, value: Any, bits: int | None, step: float | None) -> Any:
    if value.size == 0 or not numpy.isfinite(value).all():
        return value
    low, high = float(value.min()), float(value.max())
    largest = max(-low, high)
    if largest >= (_MAX_CODE if value.dtype.kind != "f" else _MAX_FLOAT):
        return value
    if bits is not None:
        offset, first, last = low, 0, 2**bits - 1
        step = (high - low) / last  # 0 where all are the same
    else:
        offset, step = 0.0, step or 1.0
        if largest >= _MAX_CODE * step:
            return value
        first, last = round(low / step), round(high / step)
    codes = numpy.subtract(value, offset, dtype=numpy.float64)
    if step > 0:
        codes = numpy.rint(codes / step)
    narrow = numpy.min_scalar_type(last if first >= 0 else min(first, ~last))
    return (value.dtype.str, offset, step, codes.astype(narrow))


def _restored(quantised: Any) -> Any:
    if not isinstance(quantised, tuple):
        return quantised
    kind, offset, step, codes = quantised
    if kind == "int":
        return round(codes * step)
    if kind == "float":
        return codes * step
    numpy = sys.modules["numpy"]
    values = offset + codes.astype(numpy.float64) * step
    dtype = numpy.dtype(kind)
    # A multiple of the step may be a little more than the type can hold.
    if dtype.kind == "f":
        limits = numpy.finfo(dtype)
        return numpy.clip(values, limits.min, limits.max).astype(dtype)
    limits = numpy.iinfo(dtype)
    return numpy.clip(numpy.rint(values), limits.min, limits.max).astype(dtype)
