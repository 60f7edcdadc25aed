"""Whether it is of use to hold packs, and to have them long: adaptive packing tries both ways, and counts; and when it
need not try.
"""

from __future__ import annotations

from typing import Final


class Trials:
    """Whether more events come where packs are held, or where they are not.

    Questions go by one link and answers by another, and where both are held, neither gains by itself. So trials are
    made at round times, by everybody's clock.
    """

    LEAST_LOAD: Final = 0.025
    ADVANTAGE: Final = 1.2  # that not to hold must have: else it costs processor time for nothing
    _FIRST_PAUSE_SECONDS: Final = 0.25
    _LONGEST_PAUSE_SECONDS: Final = 8.0
    _PAIRS: Final = 2  # of windows: what has stopped us for a while in one of them says nothing
    _CLEARLY: Final = 1.5  # so many more events with holding need no second pair
    _OTHER_LOAD: Final = 1.5  # where so many more events come, what was found may not hold any more

    __slots__ = ("_began", "_clock_offset_seconds", "_delayed_before", "_delayed_seconds", "_events",
                 "_found_at_rate", "_full", "_had_load_at", "_packs", "_pause_seconds", "_rates", "_try_at",
                 "_window_seconds", "holds")  # fmt: skip

    def __init__(self, window_seconds: float, clock_offset_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._clock_offset_seconds = clock_offset_seconds
        self._had_load_at = float("-inf")
        self._delayed_seconds = 0.0
        self.forget(0.0)

    def forget(self, now: float) -> None:
        """Hold packs, and find out anew."""
        self.holds = True
        self._rates: list[float] = []  # of the windows of this trial, with and without holding in turns
        self._found_at_rate = 0.0
        self._pause_seconds = max(self._FIRST_PAUSE_SECONDS, 10 * self._window_seconds)
        self._try_at = now + 4 * self._window_seconds  # before, the rate isn't known
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._delayed_before = self._delayed_seconds
        self._events = self._packs = self._full = 0

    def left(self, now: float, events: int, is_full: bool, load: float, delayed_seconds: float = 0.0) -> None:
        """Count a pack that has left; without load there is nothing to find out."""
        self._delayed_seconds = delayed_seconds
        if load < self.LEAST_LOAD:
            self._begin(now)
            return
        idle_seconds = now - self._had_load_at
        self._had_load_at = now
        if idle_seconds > self._window_seconds / 2:
            # What came in such a window says nothing; what was found a while ago neither.
            if idle_seconds > self._LONGEST_PAUSE_SECONDS:
                self.forget(now)
            self._begin(now)
            return
        self._events += events
        self._packs += 1
        self._full += is_full
        seconds = now - self._began - (delayed_seconds - self._delayed_before)
        if seconds >= self._window_seconds:
            self._close(now, self._events / seconds, load)

    def _close(self, now: float, rate: float, load: float) -> None:
        """End a window, and decide which way the next one goes."""
        # What could not come faster by itself is not held up.
        is_best = self.holds and (2 * self._full > self._packs or load * self.ADVANTAGE > 1)
        self._begin(now)
        if self._rates:
            self._rates.append(rate)
            self.holds = not self.holds
            if len(self._rates) % 2:
                return
            held, bare = self._rates[not self.holds :: 2], self._rates[self.holds :: 2]
            is_clear = held[-1] > self._CLEARLY * bare[-1]
            if len(bare) < self._PAIRS and not is_clear:
                return
            self.holds = is_clear or not all(b > self.ADVANTAGE * h for h, b in zip(held, bare, strict=True))
            self._found_at_rate = max(self._rates)
            self._rates = []
            everybodys = now + self._clock_offset_seconds
            self._try_at = now + self._pause_seconds - everybodys % self._pause_seconds
            self._pause_seconds = min(4 * self._pause_seconds, self._LONGEST_PAUSE_SECONDS)
        elif not is_best and (now >= self._try_at or rate > self._OTHER_LOAD * self._found_at_rate):
            self._rates = [rate]
            self.holds = not self.holds


class LengthTrials:
    """Whether so many more events come where packs are long that it is worth their waiting.

    A source that does nothing but publish has more time for that, one that waits for a clock comes as before. It takes
    several windows with short packs and as many with long ones, in turns, to tell a small gain from chance.
    """

    GAIN: Final = 1.08  # that long packs must bring in all: a source that does nothing else has a fifth more, as a rule
    _SURE_GAIN: Final = 1.25  # with less, and while they are short, it must be more in each pair of windows
    _WINDOW_SECONDS: Final = 0.012
    _PAIRS: Final = 3
    _FIRST_PAUSE_SECONDS: Final = 0.06
    _LONGEST_PAUSE_SECONDS: Final = 8.0

    __slots__ = ("_are_long", "_began", "_events", "_left_at", "_pause_seconds", "_rates", "_try_at", "are_long")

    def __init__(self) -> None:
        self._left_at = float("-inf")
        self._forget(0.0)

    def _forget(self, now: float) -> None:
        self._are_long = False  # what was found
        self._pause_seconds = self._FIRST_PAUSE_SECONDS
        self._begin(now)

    def _begin(self, now: float) -> None:
        """No trial until there was a pause; what was found holds meanwhile."""
        self.are_long = self._are_long
        self._rates: list[float] = []  # of the windows of this trial
        self._try_at = now + self._pause_seconds
        self._begin_window(now)

    def _begin_window(self, now: float) -> None:
        self._began = now
        self._events = 0

    def left(self, now: float, events: int, is_busy: bool) -> None:
        """Count a pack that has left, by a clock that stands still while the source is kept from running; where the
        link is not busy no trial begins.
        """
        idle_seconds = now - self._left_at
        self._left_at = now
        if idle_seconds > self._WINDOW_SECONDS / 2:
            if idle_seconds > self._LONGEST_PAUSE_SECONDS:
                self._forget(now)
            else:
                self._begin(now)
            return
        if now < self._try_at or not (is_busy or self._rates or self.are_long):
            self._begin_window(now)
            return
        self._events += events
        seconds = now - self._began
        if seconds >= self._WINDOW_SECONDS:
            self._rates.append(self._events / seconds)
            self._begin_window(now)
            self.are_long = not self.are_long
            if len(self._rates) == 2 * self._PAIRS:
                self._decide(now)

    def _decide(self, now: float) -> None:
        first, second = self._rates[::2], self._rates[1::2]
        short, long = (second, first) if self._are_long else (first, second)
        # From 0.0 on, since mypyc takes a sum that begins with 0 for an integer.
        gain = sum(long, 0.0) / sum(short, 0.0)
        is_sure = self._are_long or gain > self._SURE_GAIN or all(b > a for a, b in zip(short, long, strict=True))
        self._are_long = is_sure and gain > self.GAIN
        self._pause_seconds = min(4 * self._pause_seconds, self._LONGEST_PAUSE_SECONDS)
        self._begin(now)


class Crowding:
    """Whether a source does nothing but publish, and is kept from that by others that want the same core.

    It can't be told by counting what comes: where receivers of packs are among the others, what a long pack spares them
    comes back to the source only later. But who answers others on a busy core looks the same, until packs are held:
    nobody asks meanwhile, and they don't fill. Where most did not, it is not taken for such a source again for a while.
    """

    _MEMORY_SECONDS: Final = 0.001
    _BREATH_SECONDS: Final = 15e-6  # from one pack to the next event: for some Python, and not for a wait
    # Of the time that the source has had, it had nothing to do; of all time, others had the core.
    _MOST_IDLE: Final = 0.25
    _LEAST_DELAYED: Final = 0.3
    _STAYS: Final = 1.6  # both may change so far before it is over
    _FIRST_PAUSE_SECONDS: Final = 0.05
    _LONGEST_PAUSE_SECONDS: Final = 8.0

    __slots__ = ("_delayed", "_not_before", "_packs", "_pause_seconds", "_unfilled", "idle", "is_crowded")

    def __init__(self) -> None:
        self.idle = 1.0  # the share of the time that the source has had, in which it had nothing to do
        self._delayed = 0.0
        self._packs = self._unfilled = 0  # while it was crowded
        self._not_before = 0.0
        self._pause_seconds = self._FIRST_PAUSE_SECONDS
        self.is_crowded = False

    def left(
        self, now: float, elapsed: float, delay: float, sending_seconds: float, filled_seconds: float | None
    ) -> None:
        """A pack has left, so many seconds after the one before besides the delay. It took so long to fill; None where
        it left without being full.
        """
        # One that was not filled has waited, and its source perhaps with it.
        idle = max(0.0, elapsed - sending_seconds - (filled_seconds or 0.0) - self._BREATH_SECONDS) / elapsed
        self.idle += elapsed / (self._MEMORY_SECONDS + elapsed) * (idle - self.idle)
        whole = elapsed + delay
        self._delayed += whole / (2 * self._MEMORY_SECONDS + whole) * (delay / whole - self._delayed)
        slack = self._STAYS if self.is_crowded else 1.0
        seems = self.idle < slack * self._MOST_IDLE and slack * self._delayed > self._LEAST_DELAYED
        if self.is_crowded:
            self._packs += 1
            self._unfilled += filled_seconds is None
            if not seems:
                self._end(now)
        elif seems and now >= self._not_before:
            self.is_crowded = True
            self._packs = self._unfilled = 0

    def _end(self, now: float) -> None:
        self.is_crowded = False
        if 2 * self._unfilled > self._packs:
            self._not_before = now + self._pause_seconds
            self._pause_seconds = min(4 * self._pause_seconds, self._LONGEST_PAUSE_SECONDS)
        else:
            self._pause_seconds = self._FIRST_PAUSE_SECONDS
