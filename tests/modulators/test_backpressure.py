"""What is sent when the transport can't take everything."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.modulators import NewestOnly, Priority, TopK, try_out
from tests.modulators.events import at_work, prices


def test_the_newest_of_all_or_of_each_key():
    assert try_out(NewestOnly(), [1, 2, 3]) == [3]
    a, b = prices(1, 2, symbol="A"), prices(1, 2, symbol="B")
    assert try_out(NewestOnly(by="symbol"), [a[0], b[0], a[1], b[1]]) == [a[1], b[1]]


def test_the_most_urgent_first_and_equal_ones_as_published():
    events = [(0, "a"), (5, "b"), (0, "c"), (5, "d"), (9, "e")]
    assert [name for _, name in try_out(Priority(lambda event: event[0]), events)] == ["e", "b", "d", "a", "c"]
    assert [name for _, name in try_out(Priority(lambda event: event[0], smallest_first=True), events)] == [
        "a", "c", "b", "d", "e",
    ]  # fmt: skip


def test_when_too_many_wait_the_least_urgent_goes():
    assert try_out(Priority(None, max_waiting=3), [4, 1, 5, 2, 3]) == [5, 4, 3]
    assert try_out(Priority(None, smallest_first=True, max_waiting=2), [4, 1, 5, 2]) == [1, 2]


def test_the_k_largest_of_what_waits():
    replica = at_work(TopK(2, "price"))
    replica.enqueue(prices(3, 1, 2))
    assert replica.dequeue(1) == prices(3)
    replica.enqueue(prices(9, 0, 1))
    assert replica.dequeue(10) == prices(9, 2)
    assert replica.dequeue(10) == []


@pytest.mark.parametrize(
    "modulator",
    [NewestOnly(), NewestOnly("symbol"), Priority("price"), TopK(2, "price")],
    ids=["newest", "newest by symbol", "priority", "top"],
)
def test_while_the_transport_keeps_up_everything_passes(modulator):
    replica = at_work(modulator)
    for event in prices(3, 1, 2):
        replica.enqueue([event])
        (sent,) = replica.dequeue(5)
        assert sent is event


def test_priorities_that_have_no_order():
    assert try_out(Priority(None), [1, math.nan, -math.inf, 2])[:2] == [2, 1]
    assert try_out(TopK(1, None), [math.nan, 1, math.nan]) == [1]
    assert try_out(Priority(None, smallest_first=True), [np.uint8(5), np.uint8(0), np.uint8(7)]) == [0, 5, 7]
    assert try_out(Priority("urgent"), [{"urgent": False}, {"urgent": True}]) == [{"urgent": True}, {"urgent": False}]


@given(st.lists(st.one_of(st.integers(0, 20), st.none())), st.integers(1, 5), st.booleans())
def test_no_event_is_sent_twice_and_the_queues_agree(steps, limit, smallest_first):
    replica = at_work(Priority(lambda event: event[0], smallest_first, limit))
    waiting: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step is not None:
            replica.enqueue([(step, number)])
            waiting.append((step, number))
            waiting.sort(key=lambda each: (each[0] if smallest_first else -each[0], each[1]))
            del waiting[limit:]
        else:
            assert replica.dequeue(1) == waiting[:1]
            del waiting[:1]
        assert len(replica.waiting) == len(waiting)
    assert replica.dequeue(100) == waiting


@given(st.lists(st.one_of(st.tuples(st.integers(0, 3), st.integers()), st.none())))
def test_each_key_ends_with_its_newest(steps):
    replica = at_work(NewestOnly(by=lambda event: event[0]))
    received: dict[int, int] = {}
    for step in steps:
        if step is None:
            received.update(replica.dequeue(1))
        else:
            replica.enqueue([step])
    received.update(replica.dequeue(100))
    assert received == dict(step for step in steps if step is not None)


def test_arguments_that_make_no_sense_are_refused():
    for make in (lambda: TopK(0, "x"), lambda: Priority("x", max_waiting=0)):
        with pytest.raises(ValueError, match="or more"):
            make()
    with pytest.raises(TypeError, match="field"):
        Priority(5)  # type: ignore[arg-type]
