"""The file of a log: an SQLite database that belongs to one process, and that its threads use in turn."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from echannel_ray.errors import Closed

PAGE_BYTES: Final = 32768
TIMEOUT_SECONDS: Final = 10.0
CACHE_BYTES: Final = 64 << 20

# The data stand apart from what is said about them: a commit points rows of `entries` to `bodies` that are staged, and
# looking for an offset or adding up sizes reads no data.
TABLES: Final = """
CREATE TABLE log (name TEXT NOT NULL, next INTEGER NOT NULL);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE entries (
    first INTEGER PRIMARY KEY, count INTEGER NOT NULL, kind INTEGER NOT NULL, token INTEGER NOT NULL,
    producer TEXT NOT NULL, sequence INTEGER NOT NULL, published_at REAL NOT NULL,
    body INTEGER NOT NULL, size INTEGER NOT NULL, stored_at REAL NOT NULL
);
CREATE TABLE staged (
    write TEXT NOT NULL, partition INTEGER NOT NULL, attempt INTEGER NOT NULL, number INTEGER NOT NULL,
    count INTEGER NOT NULL, kind INTEGER NOT NULL, token INTEGER NOT NULL,
    producer TEXT NOT NULL, sequence INTEGER NOT NULL, published_at REAL NOT NULL,
    body INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (write, partition, attempt, number)
) WITHOUT ROWID;
CREATE TABLE leases (write TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (write TEXT PRIMARY KEY, first INTEGER, next INTEGER, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE marks (producer TEXT PRIMARY KEY, sequence INTEGER NOT NULL, touched REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE groups (name TEXT PRIMARY KEY, next INTEGER NOT NULL, hold_until REAL NOT NULL) WITHOUT ROWID;
"""


class Turns:
    """A lock that goes to who has waited longest.

    A plain lock goes to who asks first when it is free, and that is who just gave it back: a thread that deletes
    gigabytes piece by piece, or reads without a pause, kept others waiting for 70 to 260 ms with one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # interrupted
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise
            self._pass_on()
            raise

    def __exit__(self, *error: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


class Database:
    """A connection by turns: a read of a megabyte holds up the others for 0.1 to 0.5 ms, a write for 0.4 ms.

    The file is this process's alone, which spares it asking for locks, and others a log with two heads; the next one
    waits for it. The journal holds old pages only, so that new data are written once: a write-ahead log, with which
    several could read at once, took 2.5 times as long and made stops of 7 ms (figures: docs/design/retention.md).

    Without a path it is a temporary database, in memory up to `CACHE_BYTES` and beyond that in a file without a name,
    in SQLite's directory for such (`SQLITE_TMPDIR`, else `TMPDIR`).
    """

    def __init__(self, path: str | None) -> None:
        self._turns = Turns()
        self._path = path
        self._closed = False
        self._rows = sqlite3.connect(path or "", isolation_level=None, check_same_thread=False, timeout=TIMEOUT_SECONDS)
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            self._rows.close()
            raise OSError(f"log {path!r} can't be used ({error}): see that no other process has it open") from error

    def _prepare(self) -> None:
        self._rows.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # What was written is the kernel's, and so survives this process; only a machine that stops may lose it.
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("PRAGMA secure_delete = OFF")  # some builds overwrite what they delete
        if self._path is None:
            self._rows.execute(f"PRAGMA cache_size = -{CACHE_BYTES // 1024}")
            self._rows.execute("PRAGMA journal_mode = MEMORY")
        else:
            self._rows.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._rows.execute("PRAGMA journal_mode = PERSIST")
        with transaction(self._rows):
            if not self._rows.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                for statement in TABLES.split(";"):
                    self._rows.execute(statement)

    @contextmanager
    def exclusive(self) -> Iterator[sqlite3.Connection]:
        """Have the database alone within: nobody else reads or changes anything."""
        with self._turns:
            if self._closed:
                raise Closed("this log is closed: open its channel again", what="log")
            yield self._rows

    def close(self) -> None:
        """Close the database, after what is being done now."""
        with self._turns:
            self._closed = True
            self._rows.close()

    def delete(self) -> None:
        """Close the database and remove its files."""
        self.close()
        if self._path is not None:
            for path in (self._path, self._path + "-journal"):
                Path(path).unlink(missing_ok=True)


@contextmanager
def transaction(rows: sqlite3.Connection) -> Iterator[None]:
    """Do all of what is within, or nothing."""
    rows.execute("BEGIN IMMEDIATE")
    try:
        yield
        rows.execute("COMMIT")
    except BaseException:
        if rows.in_transaction:
            rows.execute("ROLLBACK")
        raise
