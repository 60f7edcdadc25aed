"""What a log forgets, and what it keeps for groups."""

import time

import pytest

from echannel_ray.logs.entries import Chosen, LogBounds, WriteAttempt
from echannel_ray.logs.store import LEDGER_SECONDS
from tests.logs.made import check, data_of, entry

DAY = 86400.0


def test_whole_entries_are_forgotten_oldest_first_when_the_log_is_too_large(open_store):
    store = open_store(LogBounds(max_bytes=80))
    store.append([entry(bytes(10), count=2) for _ in range(8)])
    assert store.trim(time.time()) == 0
    for _ in range(20):
        store.append([entry(bytes(10), count=2)])
        assert store.size_bytes <= 90
    store.trim(time.time())
    assert (store.first, store.next, store.size_bytes) == (40, 56, 80)
    check(store)


def test_a_log_forgets_what_is_too_old(open_store):
    store = open_store(LogBounds(max_age_seconds=DAY))
    store.append([entry(count=3), entry(count=3)])
    assert store.trim(time.time() + DAY / 2) == 0
    assert store.trim(time.time() + DAY + 1) == 6
    assert (store.first, store.next, store.size_bytes) == (6, 6, 0)
    assert store.read(6, 100) == []


def test_a_log_without_bounds_forgets_nothing(store):
    store.append([entry()])
    assert store.trim(time.time() + 1e9) == 0


@pytest.mark.parametrize("bounds", [LogBounds(max_bytes=0), LogBounds(max_age_seconds=1.0)])
def test_what_a_group_has_not_done_with_is_kept_while_it_holds(open_store, bounds):
    store = open_store(bounds)
    store.set_group("slow", 0, hold_until=time.time() + 2 * DAY)
    store.set_group("fast", 0, hold_until=time.time() + 2 * DAY)
    store.set_group("gone", 0, hold_until=time.time() + DAY / 2)
    store.append([entry(count=4) for _ in range(5)])
    store.set_group("fast", 20)
    assert store.trim(time.time() + 60) == 0
    store.set_group("slow", 9)
    assert store.trim(time.time() + DAY) == 8, "the entry in the middle of which it is has to stay"
    store.drop_group("slow")
    newest = 4 if bounds.max_bytes == 0 else 0
    assert store.trim(time.time() + DAY) == 12 - newest
    store.append([entry(count=4)])
    store.trim(time.time() + 3 * DAY)
    assert (store.first, store.next) == (24 - newest, 24)


def test_the_newest_entry_is_kept_however_small_the_bound(open_store):
    store = open_store(LogBounds(max_bytes=1, max_age_seconds=DAY))
    for last in range(1, 4):
        store.append([entry(bytes(100))])
        store.trim(time.time())
        assert (store.first, store.next) == (last - 1, last)
        assert store.read(last - 1, 1)
    store.trim(time.time() + 2 * DAY)
    assert store.first == store.next == 3


def test_groups_never_go_back(store):
    assert store.group("g") is None
    store.set_group("g", 7, hold_until=50.0)
    store.set_group("g", 3)
    assert store.groups() == {"g": (7, 50.0)}
    store.set_group("g", 8, hold_until=40.0)
    assert store.groups() == {"g": (8, 40.0)}
    store.set_group("h", 0)
    assert store.groups() == {"g": (8, 40.0), "h": (0, 0.0)}
    assert store.group("g") == 8
    store.drop_group("g")
    assert store.groups() == {"h": (0, 0.0)}


def test_room_of_what_was_forgotten_is_used_again(path, open_store):
    store = open_store(LogBounds(max_bytes=4 << 20))
    for number in range(200):
        store.append([entry(bytes([number]) * (1 << 20))])
    assert data_of(store)[-1] == bytes([199]) * (1 << 20)
    check(store)
    pages = store._database._rows.execute("PRAGMA page_count").fetchone()[0]
    assert pages * 32768 < 10 << 20


def test_what_was_committed_counts_and_is_forgotten_like_the_rest(open_store):
    store = open_store(LogBounds(max_bytes=800))
    for number in range(10):
        store.stage(WriteAttempt("w", 0, 0), number, entry(bytes(100)), 10, time.time())
    store.commit("w", [Chosen(0, 0, 10)], time.time())
    assert (store.first, store.next, store.size_bytes, store.staged_bytes) == (2, 10, 800, 0)
    check(store)


def test_the_ledger_is_kept_for_a_month(store):
    store.commit("w", [], 1000.0)
    store.trim(1000.0 + LEDGER_SECONDS)
    assert store.outcome("w") == "committed"
    store.trim(1001.0 + LEDGER_SECONDS)
    assert store.outcome("w") is None
