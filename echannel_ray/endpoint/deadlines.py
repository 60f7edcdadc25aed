"""Time-outs, as callers give them."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeAlias

# Seconds or None, as a caller gave them: `deadline_of` says in words what is wrong with anything else, where a compiled
# function that asked for these types would say less.
GivenTimeout: TypeAlias = Any


def deadline_of(timeout_seconds: GivenTimeout) -> float | None:
    """When a call that begins now has to give up, by `time.monotonic`; None is never."""
    if timeout_seconds is None:
        return None
    message = f"a timeout is a number of seconds, or None to wait for as long as it takes, not {timeout_seconds!r}"
    try:
        seconds = float(timeout_seconds + 0.0)  # also of NumPy's numbers and of fractions, but not of a text
    except TypeError:
        raise TypeError(message) from None
    if seconds != seconds:  # NaN, which no time is later than: the call would never give up
        raise ValueError(message)
    if seconds > threading.TIMEOUT_MAX:
        return None  # it is longer than anything can wait
    return time.monotonic() + seconds


def seconds_left(deadline: float | None) -> float | None:
    """What a call that has to give up at a deadline may take now; None is for as long as it takes."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
