"""Appending to a log, and reading it."""

import sqlite3
import threading
import time

import pytest

from echannel_ray.errors import Closed
from echannel_ray.logs.entries import Chosen, Entry, LogBounds, Missing, WriteAttempt
from echannel_ray.logs.store import RECENT_BYTES, Store
from tests.logs.made import UNBOUNDED, check, data_of, entries_of, entry


def test_what_was_appended_comes_back_as_it_was(store):
    assert store.append([entry(b"one", count=3, producer="a", sequence=5), entry(b"", count=2)]) == 0
    assert store.append([entry(b"three")]) == 5
    assert entries_of(store) == [
        Entry(0, 3, 1, 7, b"one", "a", 5, 12.5),
        Entry(3, 2, 1, 7, b"", "p", 0, 12.5),
        Entry(5, 1, 1, 7, b"three", "p", 0, 12.5),
    ]
    assert (store.first, store.next, store.size_bytes) == (0, 6, 8)


def test_an_entry_without_events_leaves_nothing(store):
    assert store.append([entry(b"nothing", count=0), entry(b"one")]) == 0
    assert store.append([]) == 1
    assert data_of(store) == [b"one"]
    check(store)


@pytest.mark.parametrize("start", [3, 4, 5])
def test_reading_begins_with_the_entry_that_contains_the_offset(store, start):
    store.append([entry(b"a", count=3), entry(b"b", count=3), entry(b"c", count=3)])
    assert [each.first for each in store.read(start, 100)] == [3, 6]


@pytest.mark.parametrize("is_recent", [True, False])
def test_reading_ends_at_so_many_bytes_or_at_the_stop_but_gives_one_entry(store, is_recent):
    store.append([entry(bytes(100), count=2) for _ in range(5)])
    if not is_recent:
        store.append([entry(bytes(RECENT_BYTES))])
    for max_bytes, stop, expected in [
        (1, None, 1),
        (299, None, 2),
        (300, None, 3),
        (500, 5, 3),
        (500, 4, 2),
        (1, 1, 1),
    ]:
        assert len(store.read(0, max_bytes, stop)) == expected
    assert store.read(4, 100, stop=4) == []
    assert store.read(store.next, 100) == []
    assert store.read(store.next + 10, 100) == []


def test_more_than_is_kept_in_memory_is_read_from_the_store(store):
    data = [bytes([number]) * (1 << 20) for number in range(20)]
    for each in data:
        store.append([entry(each)])
    assert data_of(store) == data


def test_a_repeat_of_what_was_appended_changes_nothing(store):
    assert store.append([entry(b"1"), entry(b"2")], ("p", 2)) == 0
    assert store.append([entry(b"2")], ("p", 2)) == -1
    assert store.append([entry(b"1")], ("p", 1)) == -1
    assert store.append([entry(b"other")], ("q", 1)) == 2
    assert store.append([entry(b"3")], ("p", 3)) == 3
    assert (store.mark_of("p"), store.mark_of("q"), store.mark_of("r")) == (3, 1, 0)
    assert data_of(store) == [b"1", b"2", b"other", b"3"]


def test_marks_are_forgotten_when_their_producers_are_long_gone(store, monkeypatch):
    for now, producer in [(1000.0, "old"), (1000.0, "still here"), (1050.0, "still here"), (1060.0, "new")]:
        monkeypatch.setattr("echannel_ray.logs.store.time.time", lambda now=now: now)
        store.append([entry()], (producer, int(now)))
    store.forget_marks(older_than_seconds=60, now=1100.0)
    assert [store.mark_of(each) for each in ("old", "still here", "new")] == [0, 1050, 1060]


def test_nothing_of_a_failed_append_remains(store):
    store.append([entry(b"before")], ("p", 1))
    with pytest.raises(sqlite3.IntegrityError):
        store.append([entry(b"first"), entry(None)], ("p", 2))
    assert data_of(store) == [b"before"]
    assert store.mark_of("p") == 1
    assert store.append([entry(b"first"), entry(b"second")], ("p", 2)) == 1
    check(store)


def test_waiting_ends_when_the_offset_is_there(store):
    store.append([entry(count=3)])
    assert store.wait(2, timeout=0)
    assert not store.wait(3, timeout=0)
    waited = threading.Event()

    def wait():
        if store.wait(4, timeout=60):
            waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    store.append([entry()])
    assert not waited.is_set()
    store.append([entry()])
    thread.join(60)
    assert waited.is_set()


def test_who_waits_is_woken_when_the_log_is_closed(store):
    results = []
    thread = threading.Thread(target=lambda: results.append(store.wait(0, timeout=None)))
    thread.start()
    store.close()
    thread.join(60)
    assert results == [False]


def test_who_asks_for_it_is_called_after_each_append_and_may_use_the_log(store):
    seen = []
    store.on_append.append(lambda: seen.append((store.next, len(store.read(0, 100)))))
    store.append([entry()])
    store.append([entry(), entry()])
    store.stage(WriteAttempt("w", 0, 0), 0, entry(), 10, 0.0)
    store.commit("w", [Chosen(0, 0, 1)], 0.0)
    assert seen == [(1, 1), (3, 3), (4, 4)]


def test_what_is_closed_says_so(store):
    store.append([entry()])
    store.close()
    store.close()
    with pytest.raises(Closed, match="open its channel again"):
        store.append([entry()])


def test_a_log_on_disk_is_as_it_was_when_it_is_opened_again(path):
    store = Store(path, LogBounds(max_bytes=20))
    store.append([entry(bytes(10), count=5) for _ in range(4)], ("p", 20))
    assert store.first == 10
    store.set_group("g", 15, 99.0)
    store.stage(WriteAttempt("done", 0, 0), 0, entry(b"done"), 10, 0.0)
    store.commit("done", [Chosen(0, 0, 1)], 0.0)
    store.stage(WriteAttempt("open", 0, 0), 0, entry(b"open"), 10, 0.0)
    store.abort("aborted", 0.0)
    state = (store.log, store.first, store.next, store.size_bytes, store.staged_bytes, entries_of(store))
    store.close()
    store = Store(path, UNBOUNDED)
    assert (store.log, store.first, store.next, store.size_bytes, store.staged_bytes, entries_of(store)) == state
    assert store.groups() == {"g": (15, 99.0)}
    assert store.mark_of("p") == 20
    assert [store.outcome(each) for each in ("done", "open", "aborted")] == ["committed", None, "aborted"]
    store.close()


def test_offsets_go_on_after_all_was_forgotten_and_the_log_was_opened_again(path):
    store = Store(path, LogBounds(max_age_seconds=1))
    store.append([entry(count=5)])
    assert store.trim(time.time() + 10) == 5
    store.close()
    store = Store(path, UNBOUNDED)
    assert (store.first, store.next) == (5, 5)
    assert store.append([entry()]) == 5
    with pytest.raises(Missing):
        store.read(4, 100)
    store.close()


def test_logs_have_names_of_their_own_and_leave_no_files(tmp_path):
    stores = [Store(str(tmp_path / name), UNBOUNDED) for name in "ab"]
    assert len({each.log for each in stores}) == 2
    assert all(len(each.log) == 16 and int(each.log, 16) >= 0 for each in stores)
    for each in stores:
        each.append([entry()])
        each.delete()
    assert list(tmp_path.iterdir()) == []


def test_missing_events_are_named(open_store):
    store = open_store(LogBounds(max_bytes=10))
    store.append([entry(bytes(10), count=5)])
    store.append([entry(bytes(10), count=5)])
    with pytest.raises(Missing) as caught:
        store.read(2, 100)
    assert (caught.value.log, caught.value.first, caught.value.next) == (store.log, 2, 5)
    assert store.read(2, 100, stop=2) == []
