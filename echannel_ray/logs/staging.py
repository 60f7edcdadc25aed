"""Transactions of a log: what is staged for a write becomes part of the log when it is committed, or never.

A write that was committed or aborted stands in the ledger, so that neither happens twice; what still comes for it is
refused. Each function is called within a transaction of the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from echannel_ray.logs.entries import Chosen, Committed, NewEntry, NotStaged, WriteAttempt
from echannel_ray.logs.entry_rows import MAX_ROWS, add_body, signed

THERE: Final = "FROM staged WHERE write = ? AND partition = ? AND attempt = ? AND number < ?"


def left(rows: sqlite3.Connection) -> tuple[int, list[str]]:
    """How many bytes are staged, and which writes have ended but are not swept yet."""
    size = rows.execute("SELECT TOTAL(size) FROM staged").fetchone()[0]
    ended = "SELECT DISTINCT write FROM staged WHERE write IN (SELECT write FROM ledger)"
    return int(size), [write for (write,) in rows.execute(ended)]


def outcome(rows: sqlite3.Connection, write: str) -> Committed | str | None:
    """The range that a write became, "aborted", or None where it is neither."""
    row = rows.execute("SELECT first, next FROM ledger WHERE write = ?", (write,)).fetchone()
    if row is None:
        return None
    return "aborted" if row[0] is None else Committed(row[0], row[1], repeated=True)


def stage(rows: sqlite3.Connection, place: WriteAttempt, number: int, entry: NewEntry, until: float) -> bool:
    """Keep an entry until its write is committed or aborted, or its lease ends; whether it was kept."""
    if outcome(rows, place.write) is not None:
        return False
    rows.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (place.write, until))
    known = "SELECT 1 FROM staged WHERE write = ? AND partition = ? AND attempt = ? AND number = ?"
    if rows.execute(known, (*place, number)).fetchone():
        return False
    body = add_body(rows, entry)
    about = (entry.count, entry.kind, signed(entry.token), entry.producer, entry.sequence, entry.published_at)
    rows.execute(
        "INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*place, number, *about, body, len(entry.data)),
    )
    return True


def commit(rows: sqlite3.Connection, write: str, chosen: Sequence[Chosen], first: int, now: float) -> Committed:
    """Append what these attempts have staged as events from `first` on, by partition.

    No data are moved: rows are. What else is staged for this write remains, for `sweep`.
    """
    known = outcome(rows, write)
    if isinstance(known, Committed):
        return known
    if known is not None:
        raise NotStaged(f"write {write!r} was aborted, or its lease has ended: begin a new one")
    end, size = first, 0
    for partition, attempt, entries in sorted(chosen):
        place = (write, partition, attempt, entries)
        staged, events, staged_bytes = rows.execute(
            f"SELECT COUNT(*), TOTAL(count), TOTAL(size * (count > 0)) {THERE}", place
        ).fetchone()
        if staged != entries:
            raise NotStaged(
                f"write {write!r}: attempt {attempt} at partition {partition} has {staged} of {entries} entries staged:"
                " stage the others, or begin a new write"
            )
        rows.execute(
            "INSERT INTO entries SELECT ? + SUM(count) OVER (ORDER BY number) - count,"
            f" count, kind, token, producer, sequence, published_at, body, size, ? {THERE} AND count > 0",
            (end, now, *place),
        )
        rows.execute(f"DELETE {THERE} AND count > 0", place)
        end += int(events)
        size += int(staged_bytes)
    rows.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", (write, first, end, now))
    rows.execute("DELETE FROM leases WHERE write = ?", (write,))
    return Committed(first, end, size_bytes=size)


def abort(rows: sqlite3.Connection, write: str, now: float) -> bool:
    """Refuse what still comes for it; False where it was committed. What is staged remains, for `sweep`."""
    known = outcome(rows, write)
    if known is None:
        rows.execute("INSERT INTO ledger VALUES (?, NULL, NULL, ?)", (write, now))
        rows.execute("DELETE FROM leases WHERE write = ?", (write,))
    return not isinstance(known, Committed)


def sweep(rows: sqlite3.Connection, write: str, max_bytes: int) -> tuple[bool, int]:
    """Delete of what is staged for a write about so many bytes: whether there was anything, and how many they were."""
    found = rows.execute(
        "SELECT partition, attempt, number, body, size FROM staged WHERE write = ? LIMIT ?", (write, MAX_ROWS)
    ).fetchall()
    size = 0
    for partition, attempt, number, body, bytes_here in found:
        if size > max_bytes:
            break
        size += bytes_here
        rows.execute("DELETE FROM bodies WHERE id = ?", (body,))
        rows.execute(
            "DELETE FROM staged WHERE write = ? AND partition = ? AND attempt = ? AND number = ?",
            (write, partition, attempt, number),
        )
    return bool(found), size
