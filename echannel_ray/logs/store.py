"""The append-only log of one retained channel at one node, in an embedded store (SQLite)."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from echannel_ray.logs import entry_rows, staging
from echannel_ray.logs.database import Database, transaction
from echannel_ray.logs.entries import Chosen, Committed, Entry, LogBounds, Missing, NewEntry, WriteAttempt
from echannel_ray.logs.recent_entries import RecentEntries

RECENT_BYTES: Final = 8 << 20
DELETED_AT_ONCE_BYTES: Final = 8 << 20  # which takes 1 ms, and then it is the others' turn
LEDGER_SECONDS: Final = 30 * 86400.0


class Store:
    """The log of one retained channel at one node. Any thread of the process that made it may use it.

    What a call has done when it returns survives the end of this process at any moment (not that of the machine:
    nothing waits for the disk). Files don't shrink: what was forgotten leaves room that is used again. Without a path
    the log is in memory up to 64 MiB, spills to a temporary file beyond that, and is gone with the process.

    Offsets count events, from 0: `first` is the oldest that is retained, `next` the next to come. `size_bytes` are of
    the log's data, `staged_bytes` of those that wait for a commit. `log` is random, made with the log and kept with it.
    What is in `on_append` is called after each append and commit, outside all locks.
    """

    def __init__(self, path: str | None, bounds: LogBounds) -> None:
        self.on_append: list[Callable[[], None]] = []
        self._bounds = bounds
        self._database = Database(path)
        self._changed = threading.Condition()  # guards what follows; taken within the database's lock, never around it
        self._recent = RecentEntries(RECENT_BYTES)
        self.closed = False
        self._trimming = threading.Lock()
        with self._transaction() as rows:
            if not rows.execute("SELECT 1 FROM log").fetchone():
                rows.execute("INSERT INTO log VALUES (?, 0)", (secrets.token_hex(8),))
            self.log: str = rows.execute("SELECT name FROM log").fetchone()[0]
            self.first, self.next, self.size_bytes = entry_rows.extent(rows)
            self.staged_bytes, unswept = staging.left(rows)
        self._set_trim_at()
        for write in unswept:  # the process before this one didn't come to it
            self._sweep(write)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._database.exclusive() as rows, transaction(rows):
            yield rows

    def append(self, entries: Sequence[NewEntry], mark: tuple[str, int] | None = None) -> int:
        """Append all of them in one transaction; the offset of the first event.

        A mark is a producer and its last sequence here, and is stored with them: where it has been reached before, this
        is a repeat that changes nothing (-1).
        """
        now = time.time()
        with self._database.exclusive() as rows:
            first = self.next
            with transaction(rows):
                if mark is not None:
                    if _mark(rows, mark[0]) >= mark[1]:
                        return -1
                    rows.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", (*mark, now))
                added = entry_rows.add_entries(rows, entries, first, now)
            with self._changed:
                for each in added:
                    self._recent.add(each)
                    self.size_bytes += len(each.data)
                    self.next = each.next
                self._changed.notify_all()
        self._tell(now)
        return first

    def _tell(self, now: float) -> None:
        for call in self.on_append:
            call()
        if self.size_bytes > self._trim_at and self._trimming.acquire(blocking=False):
            try:
                self._trim(now)
            finally:
                self._trimming.release()

    def mark_of(self, producer: str) -> int:
        """The last sequence that was stored of this producer; 0: none."""
        with self._database.exclusive() as rows:
            return _mark(rows, producer)

    def forget_marks(self, older_than_seconds: float, now: float) -> None:
        """Forget those of producers that have appended nothing for so long."""
        with self._transaction() as rows:
            rows.execute("DELETE FROM marks WHERE touched < ?", (now - older_than_seconds,))

    def read(self, start: int, max_bytes: int, stop: int | None = None) -> list[Entry]:
        """Whole entries up to so many bytes, at least one: the first contains `start`, the last begins before `stop`.

        None at the end of the log; raises `Missing` where `start` is before its beginning.
        """
        with self._changed:
            end = self.next if stop is None else min(stop, self.next)
            if start >= end:
                return []
            found = self._recent.read(start, max_bytes, end) if start >= self.first else []
        if found is None:
            with self._database.exclusive() as rows:
                found = entry_rows.read_entries(rows, start, max_bytes, end)
        if not found:
            raise Missing(self.log, start, self.first)
        return found

    def wait(self, offset: int, timeout: float | None) -> bool:
        """Wait until there is an event of this offset; False where time has passed, or the log was closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self.next > offset or self.closed, timeout) and self.next > offset

    def group(self, name: str) -> int | None:
        """The offset up to which this group has done with all; None: there is no such group."""
        return self.groups().get(name, (None,))[0]

    def groups(self) -> dict[str, tuple[int, float]]:
        """Where each group is, and until when nothing is forgotten that it has not done with."""
        with self._database.exclusive() as rows:
            return {name: (offset, until) for name, offset, until in rows.execute("SELECT * FROM groups")}

    def set_group(self, name: str, next: int, hold_until: float | None = None) -> None:  # noqa: A002
        """The group has done with all before `next`: it never goes back. Its hold stays as it is for None."""
        with self._transaction() as rows:
            known = rows.execute("SELECT next, hold_until FROM groups WHERE name = ?", (name,)).fetchone()
            known_next, known_hold = known or (next, 0.0)
            held = known_hold if hold_until is None else hold_until
            rows.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)", (name, max(next, known_next), held))

    def drop_group(self, name: str) -> None:
        """Forget a group."""
        with self._transaction() as rows:
            rows.execute("DELETE FROM groups WHERE name = ?", (name,))

    def stage(self, place: WriteAttempt, number: int, entry: NewEntry, lease_seconds: float, now: float) -> bool:
        """Keep an entry until its write is committed or aborted, or nothing more has come for it while its lease lasts.

        False where it was not kept: this number is there already, or the write has ended.
        """
        with self._database.exclusive() as rows:
            with transaction(rows):
                kept = staging.stage(rows, place, number, entry, now + lease_seconds)
            if kept:
                self.staged_bytes += len(entry.data)
        return kept

    def commit(self, write: str, chosen: Sequence[Chosen], now: float) -> Committed:
        """Append what these attempts have staged, by partition, all or nothing, and drop what else was staged for it.

        Raises `NotStaged` where not all of it is there. A write that was committed before changes nothing: `repeated`.
        """
        with self._database.exclusive() as rows:
            with transaction(rows):
                done = staging.commit(rows, write, chosen, self.next, now)
            if done.repeated:
                return done
            self.staged_bytes -= done.size_bytes
            with self._changed:
                self._recent.clear()
                self.size_bytes += done.size_bytes
                self.next = done.next
                self._changed.notify_all()
        self._sweep(write)
        self._tell(now)
        return done

    def abort(self, write: str, now: float) -> bool:
        """Drop what was staged for a write, and refuse what still comes; False, and nothing, where it was committed."""
        with self._transaction() as rows:
            aborted = staging.abort(rows, write, now)
        self._sweep(write)
        return aborted

    def outcome(self, write: str) -> str | None:
        """What became of it, "committed" or "aborted"; None: nothing yet."""
        with self._database.exclusive() as rows:
            known = staging.outcome(rows, write)
        return "committed" if isinstance(known, Committed) else known

    def end_leases(self, now: float) -> list[str]:
        """Abort the writes whose lease has ended; their names."""
        with self._transaction() as rows:
            ended = [write for (write,) in rows.execute("SELECT write FROM leases WHERE until < ?", (now,))]
            for write in ended:
                staging.abort(rows, write, now)
        for write in ended:
            self._sweep(write)
        return ended

    def _sweep(self, write: str) -> None:
        there = True
        while there:
            with self._database.exclusive() as rows:
                with transaction(rows):
                    there, size = staging.sweep(rows, write, DELETED_AT_ONCE_BYTES)
                self.staged_bytes -= size

    def trim(self, now: float) -> int:
        """Forget what is beyond the bounds, whole entries, oldest first, save what a group holds; how many events.

        To be called now and then, for the sake of age; an `append` calls it when the log is an eighth too large.
        """
        with self._transaction() as rows:
            rows.execute("DELETE FROM ledger WHERE at < ?", (now - LEDGER_SECONDS,))
        with self._trimming:
            return self._trim(now)

    def _trim(self, now: float) -> int:
        before = self.first
        while not self._trim_some(now):
            pass
        self._set_trim_at()
        return self.first - before

    def _set_trim_at(self) -> None:
        bound = self._bounds.max_bytes
        # What a group holds would be looked for in vain at each append.
        self._trim_at = float("inf") if bound is None else max(self.size_bytes, bound) + bound // 8

    def _trim_some(self, now: float) -> bool:
        """Whether that was all. What is appended meanwhile waits for the next time, or this might never end."""
        with self._database.exclusive() as rows:
            with transaction(rows):
                excess = entry_rows.find_excess(rows, self._bounds, self.size_bytes, now, DELETED_AT_ONCE_BYTES)
                if excess is None:
                    return True
                entry_rows.forget(rows, excess, self.next)
            with self._changed:
                self.first = excess.end
                self.size_bytes -= excess.size_bytes
        return excess.is_all

    def close(self) -> None:
        """Close the store; who waits for entries is woken."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._database.close()

    def delete(self) -> None:
        """Close the store and remove its files."""
        self.close()
        self._database.delete()


def _mark(rows: sqlite3.Connection, producer: str) -> int:
    row = rows.execute("SELECT sequence FROM marks WHERE producer = ?", (producer,)).fetchone()
    return int(row[0]) if row else 0
