"""Time-outs, as callers give them."""

from __future__ import annotations

import time


def deadline_of(timeout_seconds: float | None) -> float | None:
    """When a call that begins now has to give up, by `time.monotonic`; None is never."""
    if timeout_seconds is None:
        return None
    message = f"a timeout is a number of seconds, or None to wait for as long as it takes, not {timeout_seconds!r}"
    try:
        deadline = time.monotonic() + timeout_seconds
    except TypeError:
        raise TypeError(message) from None
    if deadline != deadline:  # NaN, which no time is later than: the call would never give up
        raise ValueError(message)
    return deadline
