"""What a producer keeps until its log has it."""

from __future__ import annotations

import msgspec
import pytest

from echannel_ray.core.kinds import BLOCK, PICKLED, PLAIN, typed
from echannel_ray.retained import log_calls
from echannel_ray.retained.backlog import Backlog


@pytest.fixture
def backlog() -> Backlog:
    return Backlog("p")


def add(backlog: Backlog, count: int, kind: int = PLAIN) -> None:
    for _ in range(count):
        backlog.add(kind, b"x" * 92, 100)


def send_all(backlog: Backlog) -> list[tuple[int, int]]:
    sent = []
    while (each := backlog.next_to_send()) is not None:
        sent.append((each.after, each.last))
    return sent


def test_one_by_itself_is_due_and_what_comes_behind_it_is_gathered(backlog):
    add(backlog, 1)
    assert backlog.is_due
    backlog.leave()
    assert send_all(backlog) == [(0, 1)]
    add(backlog, 500)
    assert not backlog.is_due
    assert backlog.next_to_send() is None
    backlog.logged_up_to(1)
    assert backlog.is_due
    backlog.leave()
    assert send_all(backlog) == [(1, 501)]
    assert backlog.size_bytes == 50_000


def test_it_is_due_when_it_is_enough(backlog):
    add(backlog, 1)
    backlog.leave()
    add(backlog, 1023)
    assert not backlog.is_due
    add(backlog, 1)
    assert backlog.is_due


def test_kinds_become_entries_and_sequences_go_on(backlog):
    add(backlog, 2)
    add(backlog, 3, PICKLED)
    backlog.add_block(typed(BLOCK, 7), b"block", 10, 13)
    add(backlog, 1)
    backlog.leave()
    sent = backlog.next_to_send()
    assert [(each.count, each.kind, each.token, each.sequence) for each in sent.entries] == [
        (2, PLAIN, 0, 1), (3, PICKLED, 0, 3), (10, BLOCK, 7, 6), (1, PLAIN, 0, 16),
    ]  # fmt: skip
    assert {each.producer for each in sent.entries} == {"p"}
    assert msgspec.msgpack.decode(sent.entries[0].data) == [b"x" * 92] * 2
    assert (sent.last, sent.events) == (16, 16)


def test_a_large_event_goes_by_itself_in_slices(backlog):
    add(backlog, 2)
    backlog.add(PLAIN, b"y" * (5 << 20), 5 << 20)
    backlog.leave()
    small, large = backlog.sent
    assert (small.last, large.after, large.last) == (2, 2, 3)
    assert large.entries[0].data == b""
    assert max(map(len, large.slices)) == log_calls.MAX_CALL_BYTES
    assert msgspec.msgpack.decode(b"".join(large.slices)) == [b"y" * (5 << 20)]


def test_only_so_many_are_under_way(backlog):
    for _ in range(20):
        add(backlog, 1)
        backlog.leave()
    assert send_all(backlog) == [(n, n + 1) for n in range(8)]
    backlog.logged_up_to(3)
    assert send_all(backlog) == [(8, 9), (9, 10), (10, 11)]


def test_another_keeper_gets_all_that_is_not_logged(backlog):
    for _ in range(4):
        add(backlog, 1)
        backlog.leave()
    send_all(backlog)
    backlog.logged_up_to(2)
    backlog.send_again()
    assert send_all(backlog) == [(-1, 3), (3, 4)]
    assert backlog.logged == 2
    backlog.logged_up_to(4)
    assert (backlog.size_bytes, backlog.last_sent) == (0, 4)


def test_what_is_skipped_leaves_a_hole_in_the_sequence(backlog):
    add(backlog, 2)
    backlog.skip(3)
    add(backlog, 1)
    backlog.leave()
    assert [(each.sequence, each.count) for each in backlog.sent[0].entries] == [(1, 2), (6, 1)]
    backlog.skip(1)
    backlog.leave()
    assert backlog.last_sent == 6


def test_the_oldest_that_was_not_sent_is_dropped(backlog):
    for _ in range(12):
        add(backlog, 1)
        backlog.leave()
    send_all(backlog)
    assert backlog.droppable_bytes == 400
    assert backlog.drop_oldest(150) == 2
    assert [each.last for each in backlog.sent] == [*range(1, 9), 11, 12]
    assert backlog.size_bytes == 1000
    assert backlog.drop_oldest(10_000) == 2
    assert (backlog.last_sent, backlog.droppable_bytes) == (8, 0)
    add(backlog, 1)
    backlog.leave()
    backlog.logged_up_to(8)
    assert send_all(backlog) == [(8, 13)]
