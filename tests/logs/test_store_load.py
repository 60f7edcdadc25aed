"""A log under load: many threads, and much more data than memory."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from echannel_ray.logs.entries import Chosen, LogBounds, WriteAttempt
from tests.logs.made import check, entries_of, entry

THREADS = 8
APPENDS = 200

# In a process of its own: what this one has used before would hide what it needs.
STAGING = """
import sys, psutil
from echannel_ray.logs.entries import LogBounds, Chosen, NewEntry, WriteAttempt
from echannel_ray.logs.store import Store

process = psutil.Process()
data = bytes(1 << 20)
path = sys.argv[1] or None
before = process.memory_info().rss
store = Store(path, LogBounds())
peak = 0
def note():
    global peak
    peak = max(peak, process.memory_info().rss)
for number in range(300):
    store.stage(WriteAttempt("w", 0, 0), number, NewEntry(1, 1, 0, data), 60, 0.0)
    note()
assert store.staged_bytes == 300 << 20
store.commit("w", [Chosen(0, 0, 300)], 0.0)
note()
for offset in range(300):
    assert store.read(offset, 1)[0].data == data
    note()
store.delete()
print(peak - before)
"""


def in_threads(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(call) for call in calls]]


def test_appends_of_many_threads_each_stay_in_order(store):
    def append(name):
        return [
            store.append([entry(b"%d" % number, 2, name), entry(b"%d" % number, 1, name)], (name, number))
            for number in range(1, APPENDS + 1)
        ]

    calls = [lambda name=f"p{number}": append(name) for number in range(THREADS)]
    offsets = in_threads(*calls)
    assert all(each == sorted(each) for each in offsets)
    assert sorted(at for each in offsets for at in each) == list(range(0, 3 * THREADS * APPENDS, 3))
    check(store)
    found = entries_of(store)
    for number in range(THREADS):
        own = [int(each.data) for each in found if each.producer == f"p{number}"]
        assert own == [number for number in range(1, APPENDS + 1) for _ in range(2)]


def test_threads_append_read_stage_commit_and_trim_at_once(open_store):
    store = open_store(LogBounds(max_bytes=100_000))
    store.set_group("reader", 0, hold_until=float("inf"))
    done = threading.Event()

    def append(name):
        for number in range(APPENDS):
            store.append([entry(bytes(500), 3, name)], (name, number + 1))

    def write(name):
        for number in range(20):
            place = WriteAttempt(f"{name} {number}", 0, 0)
            for each in range(5):
                store.stage(place, each, entry(bytes(500), 1, name), 60, 0.0)
            if number % 4:
                store.commit(place.write, [Chosen(0, 0, 5)], 0.0)
            else:
                store.abort(place.write, 0.0)

    def read():
        seen: dict[str, int] = {}
        offset = 0
        while not done.is_set() or offset < store.next:
            if store.wait(offset, timeout=0.05):
                for each in store.read(offset, 5000):
                    assert each.first == offset
                    seen[each.producer] = seen.get(each.producer, 0) + each.count
                    offset = each.next
                store.set_group("reader", offset)
        return seen

    def change():
        try:
            in_threads(
                *[lambda each=each: append(f"p{each}") for each in range(3)],
                *[lambda each=each: write(f"w{each}") for each in range(3)],
            )
        finally:
            done.set()

    _, *seen = in_threads(change, read)
    assert seen == [{f"p{each}": 3 * APPENDS for each in range(3)} | {f"w{each}": 75 for each in range(3)}]
    assert store.staged_bytes == 0
    store.trim(0.0)
    assert store.size_bytes <= 100_000
    check(store)


@pytest.mark.parametrize("kind", ["disk", "temporary"])
def test_staging_much_takes_little_memory(kind, path):
    command = [sys.executable, "-c", STAGING, path if kind == "disk" else ""]
    growth = int(subprocess.run(command, capture_output=True, check=True, timeout=100).stdout)
    assert growth < 120 << 20


def test_others_have_their_turn_while_much_is_deleted(open_store, monkeypatch):
    monkeypatch.setattr("echannel_ray.logs.store.DELETED_AT_ONCE_BYTES", 10_000)
    store = open_store(LogBounds(max_bytes=10_000))
    store.set_group("g", 0, hold_until=float("inf"))
    for _ in range(2000):
        store.append([entry(bytes(10_000))])
    store.drop_group("g")
    thread = threading.Thread(target=store.trim, args=(0.0,))
    thread.start()
    seen = set()
    while thread.is_alive():
        store.append([entry(b"x")])
        seen.add(store.first)
    assert len(seen) > 10, "appends came between the pieces of the trimming"
    assert store.size_bytes <= 10_000 + store.next - 2000


def test_trimming_ends_while_others_go_on_appending(open_store):
    store = open_store(LogBounds(max_bytes=0))
    stop = threading.Event()

    def append():
        while not stop.is_set():
            store.append([entry(b"x")])

    thread = threading.Thread(target=append)
    thread.start()
    for _ in range(50):
        store.trim(0.0)
    stop.set()
    thread.join()
    check(store)
