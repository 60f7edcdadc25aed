"""Where a reader is in one log, and what it has had of each producer."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from echannel_ray.core.messages import LogAddress
from echannel_ray.logs.entries import Entry

_MOST_PRODUCERS: Final = 10_000  # whose last events are remembered


class Place:
    """Where a reader is in one log."""

    def __init__(self, address: LogAddress, start: int | str) -> None:
        self.address = address
        self.log = address.log
        self.start = start  # of the next time that it joins
        self.attempt = 0  # rises each time that it has to join again: what was asked before that counts no more
        self.is_here = False  # whether the keeper knows this reader
        self.joining = False
        self.fetching = False
        self.fetches = 0
        # What is to be fetched next; up to `handled` all was handed out.
        self.at = self.handled = start if isinstance(start, int) else 0
        self.waiting_bytes = 0
        self.parts: list[bytes] = []  # of an entry that comes in slices
        # Of a group's member: what it was given last, what of that it has done, and what it has told to be done before
        # that was acknowledged.
        self.given = (0, 0)
        self.done: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []
        self.away_since = 0.0  # its keeper went, and nobody has taken its place
        self.is_lost = False  # that took too long

    def restart(self) -> None:
        """It has to join again, and goes on where it was."""
        self.attempt += 1
        self.is_here = self.joining = self.fetching = False

    def went_away(self) -> None:
        """Its log is in no keeper's hands."""
        self.away_since = self.away_since or time.monotonic()

    def joined(self, start: int, is_of_group: bool) -> None:
        """Its keeper knows it; where that has it begin counts the first time, and for groups."""
        self.is_here, self.joining = True, False
        if isinstance(self.start, str) or is_of_group:
            self.at = self.handled = start
        self.start = self.at

    def acknowledged(self, offset: int) -> None:
        """All of the group that is before this is done with, whatever becomes of the keeper."""
        self.told = [each for each in self.told if each[1] > offset]

    @property
    def held(self) -> list[tuple[int, int]]:
        """What of the range that it was given last it has not done with."""
        begin, end = self.given
        held = []
        for start, stop in sorted(self.done):
            if begin < start <= end:
                held.append((begin, start))
            begin = max(begin, min(stop, end))
        return [*held, (begin, end)] if begin < end else held


class Lot(NamedTuple):
    """Where an item of the mailbox comes from: its `reception`. The item's mark is the offset of its first event."""

    place: Place
    producer: str


class Seen:
    """How far each producer's events have come, by any log."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Place | None]] = {}

    def sort_out(self, place: Place, entry: Entry, start: int, stop: int) -> tuple[int, tuple[int, int] | None]:
        """Of events `start` to `stop - 1`: where those begin that have not come, and which before them never will."""
        last, where = self._last.pop(entry.producer, (0, None))
        first = entry.sequence + start - entry.first
        self._last[entry.producer] = (max(last, first + stop - start - 1), place)
        if len(self._last) > _MOST_PRODUCERS:
            del self._last[next(iter(self._last))]
        if last >= first:  # it was logged again, in another log than before
            return min(stop, start + last - first + 1), None
        return start, (last + 1, first - 1) if where is not None and last + 1 < first else None

    def missed(self, place: Place) -> None:
        """Something of a log is gone, and that is told: what its producers lack next is part of it."""
        for producer, (last, where) in self._last.items():
            if where is place:
                self._last[producer] = (last, None)
