"""Rates of counters that are read in rounds."""

from __future__ import annotations

import pytest

from echannel_ray.models import ChannelStats
from echannel_ray.overview.rate_meter import RateMeter


def rates_of(values, times=None):
    """What a meter makes of a counter with these values."""
    meter = RateMeter()
    rates = []
    for at, value in zip(times or range(len(values)), values, strict=True):
        rates.append(meter.rate("x", value, at))
        meter.end_round()
    return rates


def test_are_of_the_time_between_two_rounds():
    assert rates_of([100, 300, 300], [10.0, 14.0, 15.0]) == [None, 50, 0]


def test_in_no_time_nothing_is_known():
    assert rates_of([1, 2, 3], [1.0, 1.0, 3.0]) == [None, None, 1]


def test_latencies_are_those_since_the_round_before():
    meter = RateMeter()
    found = []
    for at, latency in enumerate([{"0.001": 1000}, {"0.001": 1000, "1": 98, "2": 2}, {"0.001": 1000, "1": 98, "2": 2}]):
        found.append(meter.latencies(ChannelStats(channel="trades", latency=latency), at))
        meter.end_round()
    (before, _), (median, rare), after = found
    assert median is not None
    assert rare is not None
    assert before is None
    assert 0.5 <= median <= 1 < rare <= 2
    assert after == (None, None)


def test_a_node_that_did_not_answer_makes_no_traffic():
    missing_in_two_rounds = [100, 200, 50, 50, 400]
    assert rates_of(missing_in_two_rounds) == [None, 100, None, None, pytest.approx(200 / 3)]


def test_a_process_that_was_lost_for_good_is_no_longer_waited_for():
    found = rates_of([1000 if at < 5 else 10 * at for at in range(30)])
    assert found[4] == 0
    assert found[8] is None
    assert found[29] == 10


def test_what_was_not_asked_for_is_forgotten():
    meter = RateMeter()
    meter.rate("x", 1, 1.0)
    meter.end_round()
    meter.end_round()
    assert meter.rate("x", 2, 2.0) is None
