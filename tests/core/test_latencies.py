"""Latencies: samples under their bounds, and what the counts say of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from echannel_ray.core.counters import add_up
from echannel_ray.core.latencies import BOUNDS_SECONDS, Latencies, quantile


def counted(*seconds: float) -> dict[str, int]:
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)
    return latencies.counts()


def test_a_sample_counts_under_the_smallest_bound_that_it_does_not_exceed():
    assert counted(0.001, 0.0011, 0.0, -1.0, 60.0, 61.0) == {"0.00005": 2, "0.001": 1, "0.002": 1, "60": 1, "inf": 1}


def test_bounds_are_three_for_each_power_of_ten():
    assert (BOUNDS_SECONDS[0], BOUNDS_SECONDS[-1]) == (50e-6, 60.0)
    assert all(1.9 < after / before <= 3 for before, after in pairwise(BOUNDS_SECONDS))
    for seconds in BOUNDS_SECONDS:
        (name,) = counted(seconds)
        assert float(name) == seconds


def test_nothing_is_said_without_samples():
    assert quantile({}, 0.5) is None
    assert counted() == {}


def test_quantiles_lie_between_the_bounds_of_their_samples():
    counts = counted(*[0.003] * 98, 0.3, 0.3)
    assert 0.002 < (quantile(counts, 0.5) or 0) < 0.005
    assert 0.2 < (quantile(counts, 0.99) or 0) < 0.5
    assert quantile(counts, 0.98) == pytest.approx(0.005)
    assert quantile(counts, 1.0) == 0.5


def test_of_what_took_longer_than_the_last_bound_only_that_is_known():
    assert quantile(counted(100.0, 200.0), 0.5) == 60.0


@pytest.mark.parametrize("fraction", [0.5, 0.99])
def test_counts_of_several_processes_add_up(fraction):
    sums: dict[str, int] = {}
    add_up(sums, counted(0.003, 0.003))
    add_up(sums, counted(0.003, 0.3))
    assert sums == counted(0.003, 0.003, 0.003, 0.3)
    assert quantile(sums, fraction) == quantile(counted(0.003, 0.003, 0.003, 0.3), fraction)
