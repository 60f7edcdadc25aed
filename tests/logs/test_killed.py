"""A log whose process is killed at any moment, again and again, is whole, and has all that was acknowledged."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from echannel_ray.logs.entries import LogBounds
from echannel_ray.logs.store import Store
from tests.logs.killed_process import ENTRIES, appended, staged
from tests.logs.made import UNBOUNDED, check, entries_of

ROUNDS = 20


def run_and_kill(path, seconds):
    """Lines that it had printed when it was killed, so many seconds after it began to write."""
    process = subprocess.Popen([sys.executable, "-m", "tests.logs.killed_process", path], stdout=subprocess.PIPE)
    with process:
        opened = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = (opened + process.stdout.read()).decode().splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n")]


class Expected:
    """What the processes have acknowledged."""

    def __init__(self):
        self.offsets = {}
        self.ranges = {}
        self.aborted = set()
        self.group = 0

    def add(self, lines):
        for kind, *values in lines:
            number, *rest = map(int, values)
            if kind == "append":
                self.offsets[number] = rest[0]
            elif kind == "commit":
                self.ranges[number] = tuple(rest)
            elif kind == "abort":
                self.aborted.add(number)
            elif kind == "group":
                self.group = number

    def check(self, store):
        check(store)
        found = {each.first: each.data for each in entries_of(store)}
        last = store.mark_of("p")
        assert last >= max(self.offsets, default=0)
        for number, offset in self.offsets.items():
            for at, new in zip((offset, offset + 2), appended(number), strict=True):
                if at >= store.first:
                    assert found[at] == new.data
        for number, (first, end) in self.ranges.items():
            assert store.outcome(f"write {number}") == "committed"
            data = [staged(number, partition, entry).data for partition in (0, 1) for entry in range(ENTRIES)]
            retained = range(max(first, store.first), end)
            assert [found[at] for at in retained] == data[end - first - len(retained) :]
        assert all(store.outcome(f"write {number}") == "aborted" for number in self.aborted)
        assert store.group("g") is None or store.group("g") >= self.group
        self.check_nothing_is_half_there(store, found, last)

    def check_nothing_is_half_there(self, store, found, last):
        seen = [data.split(b" ", 4)[:4] for data in found.values()]
        appends = Counter(int(number) for kind, number, *_ in seen if kind == b"append")
        oldest = min(appends)
        assert max(appends) == last, "the mark is stored with what it marks"
        assert [appends[number] for number in range(oldest + 1, last + 1)] == [2] * (last - oldest)
        writes = Counter(int(number) for kind, number, *_ in seen if kind == b"write")
        for number, entries in writes.items():
            assert entries == 2 * ENTRIES or number == min(writes)
            assert store.outcome(f"write {number}") == "committed"
        bodies = store._database._rows.execute("SELECT COUNT(*) FROM bodies").fetchone()[0]
        assert bodies == len(found) + store._database._rows.execute("SELECT COUNT(*) FROM staged").fetchone()[0]


def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # which pytest shows where it fails
    chance = random.Random(seed)
    expected = Expected()
    for _ in range(ROUNDS):
        expected.add(run_and_kill(path, chance.uniform(0, 0.25)))
        store = Store(path, LogBounds())
        expected.check(store)
        for number in list(expected.offsets)[-3:]:
            assert store.append(appended(number), ("p", number)) == -1
        for number in list(expected.ranges)[-3:]:
            assert store.commit(f"write {number}", [], time.time()).repeated
            assert not store.abort(f"write {number}", time.time())
        store.close()
    assert store.first > 0, "this test has to see trimming as well"
    assert len(expected.ranges) > ROUNDS


def test_a_process_that_still_has_the_log_keeps_the_next_one_waiting(path, monkeypatch):
    monkeypatch.setattr("echannel_ray.logs.database.TIMEOUT_SECONDS", 0.0)
    command = [sys.executable, "-m", "tests.logs.killed_process", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(OSError, match="has it open"):
            Store(path, UNBOUNDED)
        process.kill()
    monkeypatch.undo()
    Store(path, UNBOUNDED).close()
