"""The entries of a log in its database. Each function is called within `Database.exclusive`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from echannel_ray.logs.entries import Entry, LogBounds, NewEntry

MAX_ROWS: Final = 1000  # deleted in one transaction

_TOKEN_MASK: Final = (1 << 64) - 1


def extent(rows: sqlite3.Connection) -> tuple[int, int, int]:
    """The offsets of the first event and of the next to come, and the bytes between them."""
    first, end, size = rows.execute("SELECT MIN(first), MAX(first + count), TOTAL(size) FROM entries").fetchone()
    if end is None:
        first = end = rows.execute("SELECT next FROM log").fetchone()[0]
    return first, end, int(size)


def signed(token: int) -> int:
    """A token as SQLite has numbers: of 64 bits too, but with a sign."""
    return token - (1 << 64) if token >> 63 else token


def add_body(rows: sqlite3.Connection, entry: NewEntry) -> int | None:
    """Write the data of an entry as a body; the body's number."""
    return rows.execute("INSERT INTO bodies (data) VALUES (?)", (entry.data,)).lastrowid


def add_entries(rows: sqlite3.Connection, entries: Sequence[NewEntry], first: int, now: float) -> list[Entry]:
    """Append these as events from `first` on. Those without events leave nothing."""
    added = []
    for new in entries:
        if new.count == 0:
            continue
        about, said = (first, new.count, new.kind, signed(new.token)), (new.producer, new.sequence, new.published_at)
        rows.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*about, *said, add_body(rows, new), len(new.data), now),
        )
        added.append(Entry(first, new.count, new.kind, new.token, new.data, *said))
        first += new.count
    return added


def read_entries(rows: sqlite3.Connection, start: int, max_bytes: int, stop: int) -> list[Entry]:
    """Entries from that with `start` to `stop`, up to so many bytes but at least one; none where it is gone."""
    beginning = rows.execute("SELECT MAX(first) FROM entries WHERE first <= ?", (start,)).fetchone()[0]
    found: list[Entry] = []
    size = 0
    about = rows.execute(
        "SELECT first, count, kind, token, producer, sequence, published_at, body, size FROM entries"
        " WHERE first >= ? AND first < ? ORDER BY first",
        (beginning, stop),
    )
    for first, count, kind, token, producer, sequence, published_at, body, bytes_here in about:
        size += bytes_here
        if found and size > max_bytes:
            break
        data = rows.execute("SELECT data FROM bodies WHERE id = ?", (body,)).fetchone()[0]
        found.append(Entry(first, count, kind, token & _TOKEN_MASK, data, producer, sequence, published_at))
    return found


class Excess(NamedTuple):
    """The oldest entries, up to offset `end`, that are beyond the bounds."""

    end: int
    size_bytes: int
    bodies: list[tuple[int]]
    is_all: bool


def find_excess(
    rows: sqlite3.Connection, bounds: LogBounds, size_bytes: int, now: float, max_bytes: int
) -> Excess | None:
    """What is beyond the bounds in a log of `size_bytes`, and not held by a group: all of it, or about `max_bytes`.

    The newest entry is never too large: else a log with small bounds would forget it before anybody has read it.
    """
    newest = rows.execute("SELECT MAX(first) FROM entries").fetchone()[0]
    held = rows.execute("SELECT MIN(next) FROM groups WHERE hold_until > ?", (now,)).fetchone()[0]
    kept = float("inf") if held is None else held
    oldest = float("-inf") if bounds.max_age_seconds is None else now - bounds.max_age_seconds
    largest = float("inf") if bounds.max_bytes is None else bounds.max_bytes
    bodies: list[tuple[int]] = []
    end = size = 0
    for first, behind, stored_at, body, bytes_here in rows.execute(
        "SELECT first, first + count, stored_at, body, size FROM entries ORDER BY first"
    ):
        is_beyond = stored_at < oldest or (size_bytes - size > largest and first != newest)
        if behind > kept or not is_beyond:
            break
        if size >= max_bytes or len(bodies) == MAX_ROWS:
            return Excess(end, size, bodies, is_all=False)
        bodies.append((body,))
        size += bytes_here
        end = behind
    return Excess(end, size, bodies, is_all=True) if bodies else None


def forget(rows: sqlite3.Connection, excess: Excess, next: int) -> None:  # noqa: A002
    """Delete these entries of a log whose next event is `next`: there may be none left that says so."""
    rows.execute("UPDATE log SET next = ?", (next,))
    rows.execute("DELETE FROM entries WHERE first < ?", (excess.end,))
    rows.executemany("DELETE FROM bodies WHERE id = ?", excess.bodies)
