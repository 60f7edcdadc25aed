"""One log at its host, asked by producers and readers that are not there."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from echannel_ray.endpoint.calls import Caller
from echannel_ray.logs.entries import LogBounds, NewEntry
from echannel_ray.logs.store import Store
from echannel_ray.retained import log_calls
from echannel_ray.retained import log_server as log_server_module
from echannel_ray.retained.log_server import LogServer

SOON = 20.0


class Asked:
    """A call, and what it was answered."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, message: Any) -> None:
        self._answers.put(message)

    def answer(self) -> Any:
        return self._answers.get(timeout=SOON)

    @property
    def is_open(self) -> bool:
        return self._answers.empty()


class Bench:
    """A log server, and who asks it: readers are numbered."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log_server = LogServer("c", store)

    def ask(self, kind: Callable[..., Any], *arguments: Any, reader: int = 1, **more: Any) -> Asked:
        asked = Asked()
        self.log_server.ask(kind("c", self.store.log, *arguments, **more), Caller(1, reader, 1), asked)
        return asked

    def append(self, after: int, last: int, **more: Any) -> Asked:
        first = max(after, 0) + 1
        data = msgspec.msgpack.encode([b"event"] * (last - first + 1))
        return self.ask(
            log_calls.Append, "p", after, last, [NewEntry(last - first + 1, 0, 0, data, "p", first)], **more
        )

    def join(self, reader: int = 1, group: str | None = None, start: int | str = "new", **more: Any) -> int:
        return int(self.ask(log_calls.Join, 7, group, start, reader=reader, **more).answer().start)

    def fetch(self, start: int = 0, reader: int = 1, **more: Any) -> Asked:
        return self.ask(log_calls.Fetch, 7, start, 1 << 20, reader=reader, **more)

    def take(self, number: int, reader: int = 1, done: list[tuple[int, int]] | None = None) -> tuple[int, int]:
        """What a member of group g gets."""
        fetched = self.fetch(reader=reader, group="g", number=number, done=done or []).answer()
        return fetched.start, fetched.stop

    def quiesce(self) -> None:
        """Everything that was asked before is done."""
        self.ask(log_calls.Look).answer()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(Store(None, LogBounds(max_bytes=100_000)))
    yield made
    made.log_server.close()


# ---- producers ----


def test_what_is_said_twice_is_logged_once(bench):
    assert bench.append(0, 3).answer() == log_calls.Appended(3)
    assert bench.append(0, 3).answer() == log_calls.Appended(3)
    assert bench.append(-1, 2).answer() == log_calls.Appended(3)
    assert bench.store.next == 3


def test_what_comes_early_waits_for_what_was_before_it(bench):
    later = [bench.append(2, 4), bench.append(2, 4), bench.append(4, 5)]
    bench.quiesce()
    assert bench.store.next == 0
    assert bench.append(0, 2).answer() == log_calls.Appended(2)
    assert [each.answer().last for each in later] == [4, 5, 5]
    assert bench.store.next == 5


def test_what_waits_in_vain_is_told_so(bench, monkeypatch):
    early = bench.append(2, 4)
    monkeypatch.setattr("echannel_ray.retained.early_entries._KEPT_SECONDS", -1.0)
    assert isinstance(early.answer(), log_calls.Unlogged)


def test_parts_become_one_event(bench):
    for number, data in enumerate([b"\x91\xa5", b"event"]):
        assert bench.ask(log_calls.Slice, "p", 1, number, data).answer() == log_calls.Done()
    entries = [NewEntry(1, 0, 0, b"", "p", 1)]
    assert bench.ask(log_calls.Append, "p", 0, 1, entries, slices=2).answer() == log_calls.Appended(1)
    assert bench.store.read(0, 1)[0].data == b"\x91\xa5event"
    assert isinstance(bench.ask(log_calls.Append, "p", 1, 2, entries, slices=2).answer(), log_calls.Unlogged)


def test_a_log_that_can_not_be_written_says_why_and_readers_go_on(bench, monkeypatch):
    def fail(*_: Any) -> int:
        raise OSError("No space left on device")

    bench.append(0, 1).answer()
    with monkeypatch.context() as context:
        context.setattr(bench.store, "append", fail)
        assert "No space left" in bench.append(1, 2).answer().reason
    bench.join(start="earliest")
    assert bench.fetch().answer().stop == 1
    assert bench.append(1, 2).answer() == log_calls.Appended(2)


def test_a_log_that_can_not_be_read_tells_the_reader_and_not_the_producer(bench, monkeypatch):
    def fail(*_: Any) -> Any:
        raise OSError("I/O error")

    bench.join()
    fetch = bench.fetch()
    bench.quiesce()
    monkeypatch.setattr(bench.store, "read", fail)
    assert bench.append(0, 1).answer() == log_calls.Appended(1)
    assert "I/O error" in fetch.answer().reason


def test_another_log_is_not_here(bench):
    asked = Asked()
    bench.log_server.ask(log_calls.Look("c", "another"), Caller(1, 1, 1), asked)
    assert asked.answer() == log_calls.OtherLog(bench.store.log)


# ---- readers ----


def test_a_fetch_waits_for_what_comes(bench):
    assert bench.join() == 0
    fetch = bench.fetch()
    bench.append(0, 2).answer()
    assert (fetch.answer().start, bench.fetch(2).is_open) == (0, True)


def test_a_fetch_that_is_displaced_is_answered_too(bench):
    bench.join()
    first, second = bench.fetch(), bench.fetch()
    assert first.answer() == log_calls.Done()
    bench.append(0, 1).answer()
    assert second.answer().stop == 1


def test_one_that_was_taken_for_dead_joins_again(bench):
    bench.log_server.members_are({(1, 7): None})
    bench.join()
    fetch = bench.fetch()
    bench.log_server.members_are({})
    assert fetch.answer() == log_calls.OtherLog(bench.store.log)
    assert bench.fetch().answer() == log_calls.OtherLog(bench.store.log)


def test_what_is_gone_is_named(bench):
    bench.join()
    for last in range(1, 400):
        bench.append(last - 1, last).answer()
    bench.store.append([NewEntry(1, 0, 0, bytes(150_000))])
    bench.store.trim(0.0)
    gone = bench.fetch(3).answer()
    assert gone == log_calls.Gone(bench.store.first, [(3, bench.store.first)])
    assert gone.first > 3


@pytest.mark.parametrize("waits", ["fetch", "await", "early", "late"])
def test_whoever_waits_when_it_ends_is_told(bench, waits):
    bench.join()
    bench.append(0, 1, is_delivered=True).answer()
    asked = {
        "fetch": lambda: bench.fetch(1), "await": lambda: bench.ask(log_calls.Await, "p", 1),
        "early": lambda: bench.append(5, 6), "late": lambda: None,
    }[waits]()  # fmt: skip
    bench.quiesce()
    bench.log_server.close()
    asked = asked or bench.ask(log_calls.Look)
    assert asked.answer() == log_calls.OtherLog("")


# ---- deliveries ----


def test_who_has_not_come_yet_has_to_handle_it_too(bench):
    bench.log_server.members_are({(1, 7): None, (2, 7): "g", (3, 7): "g"})
    bench.append(0, 1, is_delivered=True).answer()
    outcome = bench.ask(log_calls.Await, "p", 1)
    for reader, group in ((1, None), (2, "g")):
        assert bench.join(reader, group, start=0) == 0
    bench.ask(log_calls.Handled, 7, 0, b"", reader=1).answer()
    assert outcome.is_open
    bench.ask(log_calls.Handled, 7, 0, b"\0", reader=2).answer()  # it lets go: the other one will have it
    assert outcome.is_open
    bench.ask(log_calls.Handled, 7, 0, b"ValueError: x", reader=3).answer()
    assert outcome.answer() == log_calls.DeliveryOutcomes(1, [("0000000000000003.7", "ValueError: x")])
    assert bench.ask(log_calls.Await, "p", 1).answer().handled == 1


def test_who_begins_behind_it_need_not(bench):
    bench.log_server.members_are({(1, 7): None, (2, 7): None})
    bench.append(0, 1, is_delivered=True).answer()
    outcome = bench.ask(log_calls.Await, "p", 1)
    assert bench.join(1) == 1
    assert outcome.is_open
    bench.log_server.members_are({(1, 7): None})
    assert outcome.answer() == log_calls.DeliveryOutcomes(0, [])


def test_a_successor_does_not_know_who_has_handled_it(bench):
    assert "restarted" in bench.ask(log_calls.Await, "p", 1).answer().failures[0][1]


# ---- groups ----


def test_a_group_waits_for_the_members_that_it_had(bench):
    """They hold some of it, from a log host that died."""
    bench.append(0, 10).answer()
    bench.store.set_group("g", 2)
    bench.log_server.members_are({(1, 7): "g", (2, 7): "g"})
    assert bench.join(1, "g", done=[(6, 8)]) == 2
    fetch = bench.fetch(reader=1, group="g", number=9)
    bench.quiesce()
    assert fetch.is_open
    bench.join(2, "g", held=[(2, 5)])
    given = fetch.answer()
    assert (given.start, given.stop, given.is_redelivered) == (5, 6, True)
    assert bench.take(10, reader=1, done=[(5, 6)])[0] == 8
    bench.fetch(reader=2, group="g", number=1, done=[(2, 5)])
    bench.quiesce()
    assert bench.store.group("g") == 8


def test_a_group_does_not_wait_for_good(bench, monkeypatch):
    bench.append(0, 4).answer()
    bench.store.set_group("g", 0)
    bench.log_server.members_are({(1, 7): "g", (2, 7): "g"})
    bench.join(1, "g")
    fetch = bench.fetch(reader=1, group="g", number=1)
    bench.quiesce()
    assert fetch.is_open
    monkeypatch.setattr(bench.log_server, "_returned_by", 0.0)
    assert fetch.answer().start == 0


def test_a_group_that_all_have_left_is_where_it_was(bench):
    bench.log_server.members_are({(1, 7): "g"})
    bench.join(1, "g")
    bench.append(0, 10).answer()
    start, stop = bench.take(1)
    bench.ask(log_calls.Leave, 7, "g", [(start, stop - 1)]).answer()
    assert bench.store.group("g") == stop - 1
    bench.log_server.members_are({(2, 7): "g"})
    assert bench.join(2, "g") == stop - 1


def test_what_a_group_has_lost_is_told_once(bench):
    bench.log_server.members_are({(1, 7): "g"})
    bench.join(1, "g")
    bench.append(0, 10).answer()
    start, stop = bench.take(1)
    bench.store.append([NewEntry(1, 0, 0, bytes(150_000)), NewEntry(1, 0, 0, b"newest")])
    bench.store.trim(0.0)
    assert bench.store.first == 11
    gone = bench.fetch(group="g", number=2).answer()
    assert gone.lost == [(start, stop), (stop, 11)]  # it asks for more, and so has given up what it had
    assert bench.take(3) == (11, 12)


def test_ages_are_looked_after_however_much_there_is_to_do(bench, monkeypatch):
    looked = Asked()
    monkeypatch.setattr(log_server_module, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(bench.store, "end_leases", lambda now: looked(now))
    for _ in range(2):
        while looked.is_open:
            for _ in range(100):
                bench.ask(log_calls.Look)
        looked.answer()


def test_large_entries_that_several_read_in_slices_are_fetched_from_the_store_once(bench, monkeypatch):
    bench.store.set_group("held", 0, hold_until=float("inf"))
    bench.store.append([NewEntry(1, 0, 0, bytes([i]) * (2 << 20)) for i in range(2)])
    monkeypatch.setattr(bench.store, "read", Mock(wraps=bench.store.read))
    firsts = [bench.store.next - 2, bench.store.next - 1]
    for at in (0, 1 << 20):
        for i, first in enumerate(firsts):
            assert bench.ask(log_calls.FetchSlice, first, at).answer().data == bytes([i]) * (1 << 20)
    assert bench.store.read.call_count == 2
