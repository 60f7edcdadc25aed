"""Transactions: what is staged becomes part of the log when it is committed, once, or never."""

import pytest

from echannel_ray.logs.entries import Chosen, Committed, NotStaged, WriteAttempt
from echannel_ray.logs.store import Store
from tests.logs.made import UNBOUNDED, check, data_of, entry

LEASE = 60.0
NOW = 1000.0


def stage(store, write, partition, attempt, *data, count=1, now=NOW):
    return [
        store.stage(WriteAttempt(write, partition, attempt), number, entry(each, count), LEASE, now)
        for number, each in enumerate(data)
    ]


def bodies_in(store):
    return store._database._rows.execute("SELECT COUNT(*) FROM bodies").fetchone()[0]


def test_the_chosen_attempts_are_appended_by_partition_and_the_others_dropped(store):
    store.append([entry(b"before", count=5)])
    stage(store, "w", 1, 0, b"1a", b"1b", count=2)
    stage(store, "w", 0, 0, b"loser")
    stage(store, "w", 0, 3, b"0a", b"0b", count=3)
    assert store.staged_bytes == 13
    assert data_of(store) == [b"before"]
    assert store.commit("w", [Chosen(1, 0, 2), Chosen(0, 3, 2)], NOW) == Committed(5, 15)
    assert data_of(store) == [b"before", b"0a", b"0b", b"1a", b"1b"]
    assert (store.staged_bytes, bodies_in(store)) == (0, 5)
    store.append([entry(b"after")])
    assert data_of(store)[-2:] == [b"1b", b"after"]
    check(store)


def test_a_repeated_commit_changes_nothing(store):
    stage(store, "w", 0, 0, b"row")
    assert store.commit("w", [Chosen(0, 0, 1)], NOW) == Committed(0, 1)
    store.append([entry()])
    assert store.commit("w", [Chosen(0, 0, 1)], NOW) == Committed(0, 1, repeated=True)
    assert store.commit("w", [Chosen(0, 5, 9)], NOW) == Committed(0, 1, repeated=True)
    assert store.next == 2


def test_what_comes_after_the_end_of_its_write_is_refused(store):
    store.commit("committed", [], NOW)
    store.abort("aborted", NOW)
    assert stage(store, "committed", 0, 0, b"late") == stage(store, "aborted", 0, 0, b"late") == [False]
    assert (store.staged_bytes, bodies_in(store)) == (0, 0)


def test_the_same_number_is_staged_once(store):
    assert stage(store, "w", 0, 0, b"a", b"b") == [True, True]
    assert stage(store, "w", 0, 0, b"A", b"B", b"C") == [False, False, True]
    store.commit("w", [Chosen(0, 0, 3)], NOW)
    assert data_of(store) == [b"a", b"b", b"C"]


def test_numbers_may_come_in_any_order(store):
    for number in (2, 0, 1):
        store.stage(WriteAttempt("w", 0, 0), number, entry(b"%d" % number, count=number + 1), LEASE, NOW)
    store.commit("w", [Chosen(0, 0, 3)], NOW)
    assert data_of(store) == [b"0", b"1", b"2"]
    check(store)


@pytest.mark.parametrize("chosen", [Chosen(0, 0, 3), Chosen(0, 1, 1), Chosen(1, 0, 1)])
def test_a_commit_of_what_is_not_all_there_changes_nothing(store, chosen):
    stage(store, "w", 0, 0, b"a", b"b")
    stage(store, "w", 2, 0, b"c")
    with pytest.raises(NotStaged, match=f"attempt {chosen.attempt} at partition {chosen.partition} has . of"):
        store.commit("w", [Chosen(2, 0, 1), chosen], NOW)
    assert (store.next, store.staged_bytes, store.outcome("w")) == (0, 3, None)
    assert store.commit("w", [Chosen(2, 0, 1), Chosen(0, 0, 2)], NOW) == Committed(0, 3)


def test_a_gap_in_the_numbers_is_not_all_there(store):
    for number in (0, 2):
        store.stage(WriteAttempt("w", 0, 0), number, entry(), LEASE, NOW)
    with pytest.raises(NotStaged):
        store.commit("w", [Chosen(0, 0, 2)], NOW)


def test_only_as_many_entries_as_were_chosen_are_appended(store):
    stage(store, "w", 0, 0, b"a", b"b", b"too late")
    store.commit("w", [Chosen(0, 0, 2)], NOW)
    assert data_of(store) == [b"a", b"b"]
    assert (store.staged_bytes, bodies_in(store)) == (0, 2)


def test_entries_without_events_leave_nothing(store):
    stage(store, "w", 0, 0, b"empty", count=0)
    stage(store, "w", 1, 0, b"row")
    assert store.commit("w", [Chosen(0, 0, 1), Chosen(1, 0, 1), Chosen(2, 0, 0)], NOW) == Committed(0, 1)
    assert (store.staged_bytes, bodies_in(store)) == (0, 1)
    check(store)


def test_an_empty_commit_stands_in_the_ledger(store):
    assert store.commit("w", [], NOW) == Committed(0, 0)
    assert store.outcome("w") == "committed"
    assert store.commit("w", [], NOW) == Committed(0, 0, repeated=True)


def test_an_aborted_write_is_gone_for_good(store):
    stage(store, "w", 0, 0, b"row")
    assert store.outcome("w") is None
    assert store.abort("w", NOW)
    assert store.abort("w", NOW)
    assert (store.outcome("w"), store.staged_bytes, bodies_in(store)) == ("aborted", 0, 0)
    with pytest.raises(NotStaged, match="aborted"):
        store.commit("w", [], NOW)


def test_an_abort_after_the_commit_does_nothing(store):
    stage(store, "w", 0, 0, b"row")
    store.commit("w", [Chosen(0, 0, 1)], NOW)
    assert not store.abort("w", NOW)
    assert data_of(store) == [b"row"]
    assert store.outcome("w") == "committed"


def test_a_write_of_which_nothing_more_is_heard_is_aborted(store):
    stage(store, "silent", 0, 0, b"a")
    stage(store, "busy", 0, 0, b"b")
    stage(store, "busy", 0, 0, b"b", now=NOW + LEASE)  # a repeat is a sign of life as well
    stage(store, "done", 0, 0, b"c")
    store.commit("done", [Chosen(0, 0, 1)], NOW)
    assert store.end_leases(NOW + LEASE) == []
    assert store.end_leases(NOW + LEASE + 1) == ["silent"]
    assert store.end_leases(NOW + LEASE + 1) == []
    assert [store.outcome(each) for each in ("silent", "busy", "done")] == ["aborted", None, "committed"]
    assert (store.staged_bytes, bodies_in(store)) == (1, 2)


def test_writes_do_not_touch_each_other(store):
    for write in ("a", "b", "c"):
        stage(store, write, 0, 0, write.encode())
    store.abort("b", NOW)
    store.commit("c", [Chosen(0, 0, 1)], NOW)
    store.commit("a", [Chosen(0, 0, 1)], NOW)
    assert data_of(store) == [b"c", b"a"]


def test_what_a_process_had_no_time_to_delete_is_deleted_by_the_next(path, monkeypatch):
    store = Store(path, UNBOUNDED)
    stage(store, "w", 0, 0, b"loser")
    stage(store, "w", 0, 1, b"winner")
    stage(store, "other", 0, 0, b"open")
    monkeypatch.setattr(store, "_sweep", lambda write: None)
    store.commit("w", [Chosen(0, 1, 1)], NOW)
    store.close()
    store = Store(path, UNBOUNDED)
    assert (store.staged_bytes, bodies_in(store)) == (4, 2)
    assert data_of(store) == [b"winner"]
    store.close()
