"""Sampling, throttling and difference."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.modulators import AtMostRate, Difference, EveryNth, Throttle, WithProbability, try_out
from echannel_ray.modulators.differences import distance
from tests.modulators.events import Trade, at_work, prices


def test_every_nth():
    assert try_out(EveryNth(1), range(3)) == [0, 1, 2]
    assert try_out(EveryNth(4), range(9)) == [0, 4, 8]


def test_a_rate_is_kept_after_bursts_and_pauses(clock):
    replica = at_work(AtMostRate(10, burst=3))
    passed = []
    for moment in range(300):
        clock.now = 1000 + moment / 100 + (60 if moment >= 200 else 0)
        replica.enqueue([moment])
        passed += replica.take()
    assert passed[:3] == [0, 1, 2]
    assert [sum(first <= each < first + 100 for each in passed) for first in (0, 100, 200)] == [12, 10, 12]


def test_a_rate_that_is_changed_while_it_works(clock):
    share = SimpleNamespace(per_second=1.0)
    replica = at_work(AtMostRate(share))
    passed = []
    for moment in range(160):
        clock.now = 1000 + moment / 8
        share.per_second = 1.0 if moment < 80 else 4.0
        replica.enqueue([moment])
        passed += replica.take()
    assert [sum(first <= each < first + 80 for each in passed) for first in (0, 80)] == [10, 40]


def test_a_probability_of_each_event():
    events = list(range(10_000))
    some = try_out(WithProbability(0.3, seed=1), events)
    assert 2700 < len(some) < 3300
    assert try_out(WithProbability(0.3, seed=1), events) == some
    assert try_out(WithProbability(0.3), events) != try_out(WithProbability(0.3), events)
    assert try_out(WithProbability(1), events) == events
    assert try_out(WithProbability(0), events) == []


def test_throttle_sends_the_newest_and_never_loses_the_last(clock):
    replica = at_work(Throttle(1))
    sent = []
    for moment in range(35):
        clock.now = 1000 + moment / 10
        replica.enqueue([moment])
        if moment % 5 == 0:
            replica.period()
        sent += [(moment, event) for event in replica.take()]
    assert sent == [(0, 0), (10, 10), (20, 20), (30, 30)]
    clock.now = 1003.9
    replica.period()
    assert replica.take() == []
    clock.now = 1004.0
    replica.period()
    replica.period()
    assert replica.take() == [34]
    replica.flush()
    assert replica.take() == []


def test_throttle_flushes_what_it_holds(clock):
    replica = at_work(Throttle(1))
    replica.enqueue([1, 2, 3])
    replica.flush()
    replica.enqueue([4])
    assert replica.take() == [1, 3]
    clock.now += 1
    replica.period()
    assert replica.take() == [4]


def test_throttle_by_key_keeps_the_order_and_forgets_silent_keys(clock):
    replica = at_work(Throttle(1, by="symbol"))
    a, b = prices(1, 2, 3, symbol="A"), prices(1, 2, symbol="B")
    replica.enqueue([a[0], b[0], a[1], b[1], a[2]])
    clock.now += 1
    replica.period()
    assert replica.take() == [a[0], b[0], b[1], a[2]]
    clock.now += 1
    replica.period()
    assert replica.modulator._sent_at == {}


def test_a_new_event_takes_the_place_of_one_that_is_due(clock):
    replica = at_work(Throttle(1))
    replica.enqueue([1, 2])
    clock.now += 1
    replica.enqueue([3])
    replica.flush()
    assert replica.take() == [1, 3]


def test_difference_from_what_was_last_sent():
    assert try_out(Difference("price", 1), prices(0, 0.6, 1.2, 1.8, 2.2, 1)) == prices(0, 1.2, 2.2, 1)


def test_difference_by_key_and_of_several_fields():
    rows = [(1, 0, "a"), (2, 0, "a"), (1, 0.5, "a"), (1, 0.5, "b"), (2, 3, "a")]
    events = [dict(zip(("id", "x", "state"), row, strict=True)) for row in rows]
    assert try_out(Difference(["x", "state"], 1, by="id"), events) == [*events[:2], *events[3:]]
    assert try_out(Difference("x", 1, by=["id", "state"]), events) == [*events[:2], *events[3:]]


def test_without_a_threshold_any_difference_counts():
    assert try_out(Difference(), [1, 1, 1.0, 1.001, "a", "a", None, None]) == [1, 1.001, "a", None]


def test_difference_of_arrays():
    one = np.zeros((2, 2), "u1")
    events = [one, one + 1, one + 2, one, np.zeros(3, "u1"), np.zeros(3), np.ones((3, 1))]
    passed = try_out(Difference(None, 2), events)
    assert [id(each) for each in passed] == [id(events[i]) for i in (0, 2, 3, 4, 6)]


nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (1, 3, 2), (nan, nan, 0), (nan, 1, inf), (inf, inf, 0), (inf, -inf, inf), (inf, 1, inf), ("a", "a", 0),
        ("a", "b", inf), (None, 1, inf), (True, False, 1), (1j, -1j, 2), (10**400, 0, 10**400), ((1,), (1,), 0),
    ],
)  # fmt: skip
def test_how_far_values_are_apart(one, other, apart):
    assert distance(one, other) == apart
    if isinstance(one, float) and isinstance(other, float):
        assert distance(np.array([one, 0]), np.array([other, 0])) == apart


@given(st.lists(st.integers(0, 255), min_size=1), st.integers(0, 255))
def test_distances_of_small_types_do_not_overflow(values, other):
    array = np.array(values, "u1")
    assert distance(array, np.full_like(array, other)) == max(abs(value - other) for value in values)
    assert distance(np.uint8(values[0]), np.uint8(other)) == abs(values[0] - other)
    assert distance(np.array([], "u1"), np.array([], "u1")) == 0


@given(st.lists(st.floats(-1e6, 1e6)), st.floats(0.1, 1e3))
def test_a_consumer_is_never_further_from_the_truth_than_the_threshold(values, threshold):
    replica = at_work(Difference(None, threshold))
    seen = None
    for value in values:
        replica.enqueue([value])
        seen = next(iter(replica.take()), seen)
        assert abs(seen - value) < threshold


@pytest.mark.parametrize(
    ("cls", "arguments", "error"),
    [
        (EveryNth, {"n": 0}, ValueError), (EveryNth, {"n": 1.5}, TypeError), (EveryNth, {"n": True}, TypeError),
        (AtMostRate, {"per_second": 0}, ValueError), (AtMostRate, {"per_second": inf}, ValueError),
        (AtMostRate, {"per_second": "5"}, TypeError), (AtMostRate, {"per_second": 5, "burst": 0}, ValueError),
        (WithProbability, {"p": 1.1}, ValueError), (WithProbability, {"p": nan}, ValueError),
        (WithProbability, {"p": 0.5, "seed": "s"}, TypeError), (Throttle, {"seconds": 0}, ValueError),
        (Throttle, {"seconds": 1, "by": 5}, TypeError), (Difference, {"threshold": -1}, ValueError),
        (Difference, {"fields": []}, ValueError), (Difference, {"threshold": nan}, ValueError),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(cls, arguments, error):
    with pytest.raises(error, match=next(reversed(arguments))):
        cls(**arguments)


def test_what_is_held_back_is_the_event_itself(clock):
    replica = at_work(Throttle(1))
    held = Trade("RAY", 1.0)
    replica.enqueue([Trade("RAY", 0.0), held])
    replica.flush()
    assert replica.take()[1] is held
