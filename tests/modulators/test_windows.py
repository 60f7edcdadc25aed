"""Windows and clusters."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.modulators import Cluster, MovingAverage, SlidingWindow, Uncluster, try_out
from tests.modulators.events import TRADES, Trade, at_work, prices


def test_a_window_of_the_last_events():
    assert try_out(SlidingWindow(2), [1, 2, 3]) == [[1], [1, 2], [2, 3]]


def test_windows_that_share_no_event():
    assert try_out(SlidingWindow(3, every=3), range(7)) == [[0, 1, 2], [3, 4, 5], [4, 5, 6]]


def test_a_window_of_time(clock):
    replica = at_work(SlidingWindow(seconds=1))
    for moment in (0, 0.5, 1.0, 1.2, 5):
        clock.now = 1000 + moment
        replica.enqueue([moment])
    assert replica.take() == [[0], [0, 0.5], [0, 0.5, 1.0], [0.5, 1.0, 1.2], [5]]
    assert try_out(SlidingWindow(size=2, seconds=1), [1, 2, 3])[-1] == [2, 3]


def test_a_flush_shows_each_event_once():
    replica = at_work(SlidingWindow(4, every=4))
    replica.enqueue([1, 2])
    replica.flush()
    replica.flush()
    assert replica.take() == [[1, 2]]


def test_objects_in_a_window_are_plain():
    (*_, last) = try_out(SlidingWindow(len(TRADES)), TRADES)
    assert last == [{"symbol": "RAY", "price": 70.0}] * len(TRADES)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.integers(1, 5))
def test_a_moving_average(values, size):
    averages = try_out(MovingAverage(None, size), values)
    expected = [np.mean(values[max(0, i - size + 1) : i + 1]) for i in range(len(values))]
    assert averages == pytest.approx(expected, abs=1e-4)


def test_averages_of_small_numbers_and_arrays_do_not_overflow():
    assert try_out(MovingAverage(None, 2), [np.uint8(255), np.uint8(255)]) == [255, 255]
    assert try_out(MovingAverage(None, 2), [np.full(2, 255, "u1")] * 2)[1].tolist() == [255, 255]
    assert try_out(MovingAverage("price", 2), prices(Decimal(1), Decimal(2))) == [Decimal(1), Decimal("1.5")]


def test_a_cluster_is_complete_by_size():
    assert try_out(Cluster(size=2), [1, 2, 3]) == [[1, 2], [3]]
    a, b = prices(1, 2, 3, symbol="A"), prices(1, symbol="B")
    assert try_out(Cluster(by="symbol", size=2), [a[0], b[0], a[1], a[2]]) == [a[:2], b, a[2:]]


def test_no_event_waits_for_longer_than_the_seconds(clock):
    modulator = Cluster(seconds=1, by=lambda event: event // 100)
    replica = at_work(modulator)
    for moment in range(0, 400, 10):
        clock.now = 1000 + moment / 100
        replica.enqueue([moment])
        if moment % 50 == 40:
            replica.period()
        for cluster in replica.take():
            assert moment - cluster[0] <= 100
    assert modulator.period_seconds == 0.5
    assert Cluster(size=3).period_seconds is None


@given(st.lists(st.integers()), st.integers(1, 5))
def test_unclustered_is_what_was_clustered(events, size):
    assert try_out(Cluster(size=size), events, Uncluster()) == events


def test_objects_in_a_cluster_are_made_again():
    trades = [Trade("RAY", 1.0), Trade("A", 2.0)]
    assert try_out(Cluster(size=2), trades) == [[{"symbol": "RAY", "price": 1.0}, {"symbol": "A", "price": 2.0}]]
    assert try_out(Cluster(size=2), trades, Uncluster(Trade)) == trades


def test_what_has_been_sent_is_not_changed_afterwards():
    replica = at_work(Cluster(size=5))
    replica.enqueue([1])
    replica.flush()
    replica.enqueue([2])
    assert replica.take() == [[1]]


@pytest.mark.parametrize(
    "make",
    [
        SlidingWindow, lambda: SlidingWindow(2, every=3), lambda: SlidingWindow(0), lambda: SlidingWindow(seconds=0),
        Cluster, lambda: Cluster(size=0), lambda: Cluster(seconds=-1), lambda: MovingAverage("x", 0),
    ],
)  # fmt: skip
def test_windows_and_clusters_without_an_end_are_refused(make):
    with pytest.raises(ValueError, match=r"give|or more|above|from"):
        make()


def test_uncluster_reads_only_clusters():
    with pytest.raises(TypeError, match="what Cluster has sent"):
        Uncluster().receive("no cluster")
    with pytest.raises(TypeError, match="the events' class"):
        Uncluster(make="Trade")  # type: ignore[arg-type]
