"""Where a subscription is in each log of a retained channel, and what it has had of each producer.

Rules:

* Of a log host one thing is asked at a time: to join, then what comes next, and that in slices where it is large.
* An answer counts for the attempt in which it was asked for. Where the log host is gone or has forgotten the reader,
  the next attempt begins: the reader joins again, and goes on where it was.
* A log that is in no host's hands is away. It is lost when that takes too long, or when its node has another log in
  its place; it may come back all the same.
* The next fetch waits while more than a window waits for the handler. A member of a group asks again only when it has
  handled all that it had: others may want the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from echannel_ray.core.messages import LogAddress
from echannel_ray.core.states import Life, Transitions

WINDOW_BYTES: Final = 8 << 20
_MAX_PRODUCERS: Final = 10_000  # whose last events are remembered

_JOINED: Final = ("idle", "fetching", "slicing")
# What may happen to a cursor in each of its states, and the state after that.
CURSOR_TRANSITIONS: Final[Transitions] = {
    ("apart", "join"): "joining",
    ("joining", "joined"): "idle",
    ("idle", "fetch"): "fetching",
    ("fetching", "announced"): "slicing",
    ("slicing", "sliced"): "slicing",
    ("fetching", "taken"): "idle",
    ("slicing", "taken"): "idle",
    ("fetching", "gone"): "idle",
    ("slicing", "gone"): "idle",
    **{(state, "restarted"): "apart" for state in ("apart", "joining", *_JOINED)},
    **{(state, "lost"): "lost" for state in ("apart", "joining", *_JOINED)},
    ("lost", "returned"): "apart",
}


class LogRun(NamedTuple):
    """Events of a log that are given to the handler together."""

    start: int
    stop: int
    size_bytes: int


class LogCursor:
    """A log cursor: the cursor of one subscription in one log."""

    def __init__(self, address: LogAddress, start: int | str, is_of_group: bool) -> None:
        self.address = address
        self.log = address.log
        self.start = start  # of the next time that it joins
        self.is_of_group = is_of_group
        self._life = Life(f"the cursor in log {address.log}", CURSOR_TRANSITIONS, "apart")
        self.attempt = 0
        self.fetches = 0
        self.at = start if isinstance(start, int) else 0  # what is to be fetched next
        self.handled_to = self.at  # before this all was handled
        self.waiting_bytes = 0  # of what the handler has not done with
        self.slices: list[bytes] = []  # of an entry that comes in slices
        self.away_since: float | None = None  # since when it is in no host's hands
        # Of a group's member: what it was given last, what of that it has done with, and what it has told to be done
        # before that was acknowledged.
        self.given = (0, 0)
        self.done: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []

    @property
    def state(self) -> str:
        """The state of the cursor, one of those in `CURSOR_TRANSITIONS`."""
        return self._life.state

    @property
    def is_joined(self) -> bool:
        """Whether the log host knows this reader."""
        return self.state in _JOINED

    @property
    def is_in_touch(self) -> bool:
        """Whether the log host knows this reader, or was asked to."""
        return self.is_joined or self.state == "joining"

    # ---- its log comes and goes ----

    def restarted(self) -> None:
        """The log host does not know this reader any more: nothing that it was asked counts."""
        self._life.become("restarted")
        self._forget_answers()

    def went_away(self, now: float) -> None:
        """Wait for another log host: the one that had the log is gone."""
        if self.away_since is None:
            self.away_since = now

    def lose(self) -> bool:
        """Take the log for one that does not come back; False where that was done."""
        if self.state == "lost":
            return False
        self._life.become("lost")
        self._forget_answers()
        return True

    def is_at(self, address: LogAddress) -> None:
        """Take up the log host that has the log: the one that had it, or another, which has to be asked anew."""
        self.away_since = None
        if self.state == "lost":
            self._life.become("returned")
        if self.address != address:
            self.address = address
            self.restarted()

    def _forget_answers(self) -> None:
        self.attempt += 1
        self.slices = []

    # ---- joining ----

    def join(self) -> None:
        """Note that the log host is asked where this reader begins."""
        self._life.become("join")

    def joined(self, start: int) -> None:
        """The log host knows this reader; where it has it begin counts the first time, and for groups."""
        self._life.become("joined")
        if isinstance(self.start, str) or self.is_of_group:
            self.at = self.handled_to = start
        self.start = self.at

    @property
    def all_done(self) -> list[tuple[int, int]]:
        """What a group's member has done with that a new log host may not know of."""
        return [*self.told, *self.done]

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

    # ---- fetching ----

    @property
    def may_fetch(self) -> bool:
        """Whether to ask for what comes next."""
        has_room = not self.waiting_bytes if self.is_of_group else self.waiting_bytes < WINDOW_BYTES
        return self.state == "idle" and has_room

    def fetch(self) -> list[tuple[int, int]]:
        """The log host is asked for what comes next, and is told what is done with: that."""
        self._life.become("fetch")
        self.fetches += 1
        self.given = (0, 0)
        done, self.done = self.done, []
        self.told += done
        return done

    def announced(self) -> None:
        """What comes next is one large entry, whose slices have to be fetched."""
        self._life.become("announced")

    def sliced(self, data: bytes) -> None:
        """Take in the next slice of a large entry."""
        self._life.become("sliced")
        self.slices.append(data)

    def gone(self, first: int | None = None) -> None:
        """What was asked for is not there any more; the log begins at `first` now."""
        self._life.become("gone")
        self.slices = []
        if first is not None and not self.is_of_group:
            self.at = max(self.at, first)

    def taken(self, start: int, stop: int, acknowledged: int, runs: Sequence[LogRun]) -> None:
        """What was asked for has come, with these runs for the handler. What is before `acknowledged` is done with,
        whatever becomes of the log host.
        """
        self._life.become("taken")
        self.slices = []
        self.at = stop
        self.given = (start, stop)
        self.told = [each for each in self.told if each[1] > acknowledged]
        if not runs and not self.waiting_bytes:
            self.handled_to = max(self.handled_to, stop)
        self.waiting_bytes += sum(run.size_bytes for run in runs)
        if self.is_of_group:  # what can't be read is done with
            at = start
            for run in (*runs, LogRun(stop, stop, 0)):
                if at < run.start:
                    self.done.append((at, run.start))
                at = run.stop

    # ---- handling ----

    def passed(self, offset: int) -> None:
        """Note that all before this offset was handled."""
        self.handled_to = max(self.handled_to, offset)

    def run_closed(self, start: int, stop: int, size_bytes: int) -> None:
        """A run is done with: handled up to `stop`, and the rest of it let go."""
        self.waiting_bytes -= size_bytes
        self.passed(stop)
        if self.is_of_group and start < stop:
            self.done.append((start, stop))

    def validate(self) -> None:
        """Raise AssertionError where the cursor contradicts itself."""
        assert self.state in {state for state, _ in CURSOR_TRANSITIONS}
        assert self.state != "lost" or self.away_since is not None
        assert self.state == "slicing" or not self.slices
        assert self.waiting_bytes >= 0
        assert self.given[0] <= self.given[1]
        assert self.is_of_group or (not self.done and not self.told)
        assert self.is_of_group or self.handled_to <= self.at
        assert all(start < stop for start, stop in self.held)


class Seen:
    """How far each producer's events have come, by any log."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, LogCursor | None]] = {}

    def sort_out(self, cursor: LogCursor, producer: str, first: int, count: int) -> tuple[int, tuple[int, int] | None]:
        """Of so many events of a producer, numbered from `first` on, that are in this log: how many of the first have
        come before, and which before them never will.
        """
        last, where = self._last.pop(producer, (0, None))
        self._last[producer] = (max(last, first + count - 1), cursor)
        if len(self._last) > _MAX_PRODUCERS:
            del self._last[next(iter(self._last))]
        if last >= first:  # it was logged again, in another log than before
            return min(count, last - first + 1), None
        return 0, (last + 1, first - 1) if where is not None and last + 1 < first else None

    def missed(self, cursor: LogCursor) -> None:
        """Something of a log is gone, and that is told: what its producers lack next is part of it."""
        for producer, (last, where) in self._last.items():
            if where is cursor:
                self._last[producer] = (last, None)
