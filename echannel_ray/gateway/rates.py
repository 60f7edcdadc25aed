"""How fast a token's clients may go: buckets that fill with time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

# What may come at once after a pause, in seconds of the rate.
BURST_SECONDS = 1.0


class Bucket:
    """Fills at a rate, up to a second's worth; what is taken may leave it in debt, which takes its time to be paid."""

    def __init__(self, per_second: float | None, now: float) -> None:
        """Begin full; None is no limit."""
        self._per_second = per_second
        self._level = (per_second or 0.0) * BURST_SECONDS
        self._filled_at = now

    def take(self, amount: float, now: float) -> float:
        """Take so much, and say for how many seconds nothing more should be taken."""
        rate = self._per_second
        if rate is None:
            return 0.0
        filled = self._level + (now - self._filled_at) * rate
        self._level = min(filled, rate * BURST_SECONDS) - amount
        self._filled_at = now
        return max(0.0, -self._level / rate)


class Rates:
    """The rates of one token, which all its connections share."""

    def __init__(self, events_per_second: float | None, bytes_per_second: float | None, now: float) -> None:
        self._buckets: Sequence[Bucket] = (Bucket(events_per_second, now), Bucket(bytes_per_second, now))
        self._lock = threading.Lock()

    def take(self, events: int, size_bytes: int, now: float) -> float:
        """So much came: for how many seconds its client is not to be read."""
        with self._lock:
            return max(
                bucket.take(amount, now) for bucket, amount in zip(self._buckets, (events, size_bytes), strict=True)
            )
