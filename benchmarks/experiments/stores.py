"""How many megabytes a second does the store of a retained channel take and give back, against other embedded stores?

Values of 128 KB and of 1 MB, one in each transaction, all of which survive the process; each round begins with an empty
store. Nothing is synced, by anybody: what was written is the kernel's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from typing_extensions import override

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.baselines.stores import Appending, Lmdb, Rocks, WriteAhead
from echannel_ray.benchmarks.harness.rows import Row, skipped
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave
from echannel_ray.core.kinds import PLAIN
from echannel_ray.logs.entries import LogBounds, NewEntry
from echannel_ray.logs.store import Store

OURS = "our log"
SIZES = {"128 KB": 128 << 10, "1 MB": 1 << 20}
TOTAL_BYTES, SHORT_TOTAL_BYTES = 512 << 20, 64 << 20
READ_BYTES = 4 << 20
OTHERS: dict[str, tuple[Callable[[Path], Appending], str]] = {  # and the module that each needs
    "SQLite, WAL": (WriteAhead, "sqlite3"),
    "LMDB": (Lmdb, "lmdb"),
    "RocksDB": (Rocks, "rocksdict"),
}


class OurLog(Appending):
    """The store as a log host uses it."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(str(folder / "log.db"), LogBounds())

    @override
    def append(self, number: int, value: bytes) -> None:
        self._store.append([NewEntry(1, PLAIN, 0, value)], ("producer", number + 1))

    @override
    def values(self) -> Iterator[bytes]:
        at = 0
        while at < self._store.next:
            for entry in self._store.read(at, READ_BYTES):
                yield entry.data
                at = entry.next

    @override
    def close(self) -> None:
        self._store.close()


def run(plan: Plan) -> list[Row]:
    """Each size in turn: what is written, and read back."""
    there = {name: make for name, (make, module) in OTHERS.items() if extras.is_installed(module)}
    rows = [
        skipped(f"store, {name}", extras.not_installed(extras.PACKAGES[module]))
        for name, (_, module) in OTHERS.items()
        if name not in there
    ]
    total = SHORT_TOTAL_BYTES if plan.short else TOTAL_BYTES
    for what, size in SIZES.items():
        for how, seconds_of in {"append": append_seconds, "read back": read_seconds}.items():
            variants: dict[str, Measure] = {
                name: partial(rate, make, seconds_of, size, total) for name, make in {OURS: OurLog, **there}.items()
            }
            samples = interleave(plan, variants, "MB/s", higher_is_better=True)
            rows += [Row(f"{how}, {what}", "free", samples[OURS], name, samples[name]) for name in there]
    return rows


def rate(
    make: Callable[[Path], Appending],
    seconds_of: Callable[[Appending, bytes, int], float],
    size_bytes: int,
    total_bytes: int,
) -> float:
    """Megabytes a second of a store that is made for it."""
    count = total_bytes // size_bytes
    value = bytes(range(256)) * (size_bytes // 256)
    with tempfile.TemporaryDirectory(prefix="stores-") as folder:
        store = make(Path(folder))
        try:
            return count * size_bytes / 1e6 / seconds_of(store, value, count)
        finally:
            store.close()


def append_seconds(store: Appending, value: bytes, count: int) -> float:
    """For so many."""
    began = time.perf_counter()
    for number in range(count):
        store.append(number, value)
    return time.perf_counter() - began


def read_seconds(store: Appending, value: bytes, count: int) -> float:
    """For so many, once they are there."""
    append_seconds(store, value, count)
    began = time.perf_counter()
    came = sum(len(each) for each in store.values())
    seconds = time.perf_counter() - began
    assert came == count * len(value), came
    return seconds
