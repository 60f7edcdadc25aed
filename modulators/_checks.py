"""Arguments, checked where a modulator is made: in a producer it would be too late to say what is wrong."""

from __future__ import annotations

import math
from typing import Any


def count(name: str, value: Any, *, at_least: int = 1, at_most: int | None = None) -> int:
    """A whole number within its limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if value < at_least or (at_most is not None and value > at_most):
        limits = f"{at_least} or more" if at_most is None else f"from {at_least} to {at_most}"
        raise ValueError(f"{name} is {limits}, not {value}")
    return value


def number(name: str, value: Any) -> float:
    """A number that is one: no bool, and not NaN, which compares with nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name} is a number, not NaN")
    return value


def above_zero(name: str, value: Any) -> float:
    """A finite number above 0."""
    if number(name, value) <= 0 or math.isinf(value):
        raise ValueError(f"{name} is a finite number above 0, not {value!r}")
    return float(value)
