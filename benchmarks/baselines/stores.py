"""Embedded stores that a log could have stood in: each appends values in transactions that survive the process, not the
machine, and reads them back in order. Set up as their documentation recommends for that.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override


class Appending(Protocol):
    """One store, made anew."""

    def append(self, number: int, value: bytes) -> None:
        """One value, in a transaction of its own."""

    def values(self) -> Iterator[bytes]:
        """All of them, in order."""

    def close(self) -> None:
        """End it."""


class WriteAhead(Appending):
    """SQLite with its write-ahead log, as most would use it."""

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "store.db", isolation_level=None)
        for pragma in ("page_size = 16384", "journal_mode = WAL", "synchronous = OFF"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")

    @override
    def append(self, number: int, value: bytes) -> None:
        self._database.execute("INSERT INTO entries VALUES (?, ?)", (number, value))

    @override
    def values(self) -> Iterator[bytes]:
        for (value,) in self._database.execute("SELECT value FROM entries ORDER BY number"):
            yield value

    @override
    def close(self) -> None:
        self._database.close()


class Lmdb(Appending):
    """LMDB, by copy-on-write pages in a map of a fixed size."""

    def __init__(self, folder: Path) -> None:
        self._environment: Any = importlib.import_module("lmdb").open(
            str(folder), map_size=16 << 30, sync=False, metasync=False
        )

    @override
    def append(self, number: int, value: bytes) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8, "big"), value, append=True)

    @override
    def values(self) -> Iterator[bytes]:
        with self._environment.begin() as transaction:
            for _, value in transaction.cursor():
                yield value

    @override
    def close(self) -> None:
        self._environment.close()


class Rocks(Appending):
    """RocksDB, with its own write-ahead log."""

    def __init__(self, folder: Path) -> None:
        rocksdict: Any = importlib.import_module("rocksdict")
        self._database: Any = rocksdict.Rdict(str(folder / "rocks"), rocksdict.Options(raw_mode=True))

    @override
    def append(self, number: int, value: bytes) -> None:
        self._database[number.to_bytes(8, "big")] = value

    @override
    def values(self) -> Iterator[bytes]:
        yield from self._database.values()

    @override
    def close(self) -> None:
        self._database.close()
