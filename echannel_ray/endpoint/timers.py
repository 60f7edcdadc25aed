"""What is to be done again and again: the periods of modulators and demodulators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from echannel_ray.endpoint.crew import Crew, Job


class Timer:
    """A call that is made again and again."""

    __slots__ = ("call", "due_at", "pending", "period_seconds")

    def __init__(self, period_seconds: float, call: Callable[[], object]) -> None:
        self.period_seconds = period_seconds
        self.call = call
        self.due_at = time.monotonic() + period_seconds
        self.pending = False  # it was due, and the call has not ended


class Timers:
    """The timers of one endpoint; its ticker looks at them, and the crew makes the calls."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._lock = threading.Lock()
        self._timers: dict[Timer, None] = {}

    def add(self, period_seconds: float, call: Callable[[], object]) -> Timer:
        """Have a call made every so many seconds."""
        timer = Timer(period_seconds, call)
        with self._lock:
            self._timers[timer] = None
        self._crew.wake_ticker()
        return timer

    def remove(self, timer: Timer) -> None:
        """Stop making a call."""
        with self._lock:
            self._timers.pop(timer, None)

    def tick(self, now: float) -> bool:
        """Have the calls that are due made; whether there were any."""
        there_was = False
        if not self._timers:
            return False
        with self._lock:
            timers = [*self._timers]
        for timer in timers:
            if timer.due_at <= now and not timer.pending:
                there_was = timer.pending = True
                # What was missed is not made up for.
                timer.due_at = max(timer.due_at + timer.period_seconds, now)
                self._crew.submit(Job(self._make, timer))
        return there_was

    def _make(self, timer: Timer) -> None:
        try:
            if timer in self._timers:
                timer.call()
        finally:
            timer.pending = False

    def shortened(self, seconds: float, now: float) -> float:
        """How long to sleep at most, if nothing else needs it sooner than in `seconds`."""
        with self._lock:
            return max(0.0, min([seconds, *(timer.due_at - now for timer in self._timers)]))
