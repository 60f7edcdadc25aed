"""Throttling: the newest event, now and then."""

from __future__ import annotations

from functools import cached_property
from time import monotonic
from typing import Any

from typing_extensions import override

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulators._checks import above_zero
from echannel_ray.modulators._fields import Key, Read, checked_key, key_reader


class Throttle(Modulator):
    """Passes at most one event in so many seconds: the newest, and the last one always. With `by`, for each key.

    An event after a pause goes at once. One that has to wait goes within one and a half intervals, unless a newer one
    takes its place, or with the `flush` of a drain, a reset or a close.

    >>> try_out(Throttle(60, by="symbol"), [{"symbol": "RAY", "price": price} for price in (70, 71, 72)])
    [{'symbol': 'RAY', 'price': 70}, {'symbol': 'RAY', 'price': 72}]
    """

    def __init__(self, seconds: float, by: Key = None) -> None:
        self.seconds = above_zero("seconds", seconds)
        self.by = checked_key("by", by)
        self.period_seconds = self.seconds / 2

    @cached_property
    def _key_of(self) -> Read:
        return key_reader(self.by)

    @cached_property
    def _sent_at(self) -> dict[Any, float]:
        return {}

    @cached_property
    def _held(self) -> dict[Any, Any]:  # in the order in which they were published
        return {}

    @override
    def enqueue(self, event: Any) -> None:
        now = monotonic()
        key = self._key_of(event)
        sent_at = self._sent_at.get(key)
        self._held.pop(key, None)
        if sent_at is None or now - sent_at >= self.seconds:
            self._sent_at[key] = now
            self.emit(event)
        else:
            self._held[key] = event

    @override
    def period(self) -> None:
        now = monotonic()
        for key in [key for key, sent_at in self._sent_at.items() if now - sent_at >= self.seconds]:
            del self._sent_at[key]  # those that are silent now must not be remembered for ever
        for key in [key for key in self._held if key not in self._sent_at]:
            self._sent_at[key] = now
            self.emit(self._held.pop(key))

    @override
    def flush(self) -> None:
        now = monotonic()
        for key, event in self._held.items():
            self._sent_at[key] = now
            self.emit(event)
        self._held.clear()
