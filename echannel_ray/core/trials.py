"""Whether it is of use to hold packs: adaptive packing tries both, and counts."""

from __future__ import annotations


class Trials:
    """Whether more events come where packs are held, or where they are not.

    Questions go by one link and answers by another, and where both are held, neither gains by itself. So trials are
    made at round times, by everybody's clock.
    """

    LEAST_LOAD = 0.025
    ADVANTAGE = 1.2  # that not to hold must have: else it costs processor time for nothing
    _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 8.0
    _OTHER_LOAD = 1.5  # where so many more events come, what was found may not hold any more

    __slots__ = ("_began", "_clock_offset_seconds", "_events", "_found_at_rate", "_full", "_had_load_at", "_is_trial",
                 "_packs", "_pause_seconds", "_rates", "_try_at", "_window_seconds", "holds")  # fmt: skip

    def __init__(self, window_seconds: float, clock_offset_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._clock_offset_seconds = clock_offset_seconds
        self._had_load_at = float("-inf")
        self._forget(0.0)

    def _forget(self, now: float) -> None:
        self.holds = True
        self._rates: dict[bool, float] = {}  # of the last window with and without holding
        self._is_trial = False
        self._found_at_rate = 0.0
        self._pause_seconds = max(self._FIRST_PAUSE_SECONDS, 10 * self._window_seconds)
        self._try_at = now
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._events = self._packs = self._full = 0

    def left(self, now: float, events: int, is_full: bool, load: float) -> None:
        """Count a pack that has left; without load there is nothing to find out."""
        if load < self.LEAST_LOAD:
            self._begin(now)
            return
        idle_seconds = now - self._had_load_at
        self._had_load_at = now
        if idle_seconds > self._window_seconds / 2:
            # What came in such a window says nothing; what was found a while ago neither.
            if idle_seconds > self._LONGEST_PAUSE_SECONDS:
                self._forget(now)
            self._begin(now)
            return
        self._events += events
        self._packs += 1
        self._full += is_full
        if now - self._began >= self._window_seconds:
            self._close(now, self._events / (now - self._began), load)

    def _close(self, now: float, rate: float, load: float) -> None:
        """End a window, and decide which way the next one goes."""
        # What could not come faster by itself is not held up.
        is_best = self.holds and (2 * self._full > self._packs or load * self.ADVANTAGE > 1)
        self._rates[self.holds] = rate
        self._begin(now)
        if self._is_trial:
            self._is_trial = False
            self.holds = self._rates[False] <= self.ADVANTAGE * self._rates[True]
            self._found_at_rate = max(self._rates.values())
            everybodys = now + self._clock_offset_seconds
            self._try_at = now + self._pause_seconds - everybodys % self._pause_seconds
            self._pause_seconds = min(4 * self._pause_seconds, self._LONGEST_PAUSE_SECONDS)
        elif not is_best and (now >= self._try_at or rate > self._OTHER_LOAD * self._found_at_rate):
            self._is_trial = True
            self.holds = not self.holds
