"""What follows from a row's samples."""

from __future__ import annotations

import math

import pytest

from echannel_ray.benchmarks.harness.rows import Row, at_least, at_most, failure, judged, skipped
from tests.benchmarks.made import rates, seconds


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("m", "one", rates(90.0, 100.0), "b", rates(100.0), at_least(1)), "met"),
        (Row("m", "one", rates(90.0, 99.0), "b", rates(100.0), at_least(1)), "missed"),
        (Row("m", "one", seconds(2.0, 3.0), "b", seconds(1.0), at_most(2)), "met"),
        (Row("m", "one", seconds(2.1, 3.0), "b", seconds(1.0), at_most(2)), "missed"),
        (Row("m", "one", seconds(2.0), goal=at_most(2)), "met"),
        (Row("m", "one", seconds(2.0), "b", seconds(1.0)), ""),
        (Row("m", "one", seconds(), "b", seconds(1.0), at_most(2)), "skipped"),
        (skipped("a baseline", "no server"), "skipped"),
        (failure("m", ValueError("a\nb")), "failed"),
    ],
)
def test_verdicts(row, verdict):
    assert row.verdict == row.as_dict()["verdict"] == verdict


@pytest.mark.parametrize(
    ("row", "deficit", "is_behind"),
    [
        (Row("m", "", rates(50.0), "b", rates(100.0)), 1.0, True),
        (Row("m", "", rates(100.0), "b", rates(50.0)), -0.5, False),
        (Row("m", "", seconds(3.0), "b", seconds(2.0)), 0.5, True),
        (Row("m", "", seconds(3.0, 4.6), "b", seconds(2.0)), 0.5, False),  # the spread is 0.53
        (Row("m", "", rates(0.0), "b", rates(50.0)), math.inf, True),
        (Row("m", "", rates(100.0)), None, False),
        (Row("m", "", rates(100.0), "b", rates()), None, False),
        (Row("m", "", rates(100.0), "b", rates(0.0)), None, False),
        (skipped("b", "no server"), None, False),
    ],
)
def test_how_much_better_the_baseline_is(row, deficit, is_behind):
    assert row.deficit == deficit
    assert row.is_behind is is_behind


def test_rows_are_judged_by_the_goal_that_names_them():
    goals = (
        at_most(2, "small", "deliver, 100 bytes", "pyzmq", "one"),
        at_most(3, "all", "deliver, .*", "pyzmq"),
        at_least(5, "itself", "made"),
    )
    rows = [
        Row("deliver, 100 bytes", "one", seconds(1.0), "pyzmq", seconds(1.0)),
        Row("deliver, 100 bytes", "two", seconds(1.0), "pyzmq", seconds(1.0)),
        Row("deliver, null", "one", seconds(1.0), "pyzmq, otherwise", seconds(1.0)),
        Row("made", "", rates(4.0)),
        Row("made", "", rates(4.0), "pyzmq", rates(1.0)),
        Row("made", "", rates(4.0), goal=at_least(1)),
    ]
    judges = [row.goal and row.goal.name for row in judged(rows, goals)]
    assert judges == ["small", "all", None, "itself", None, "itself"]
    assert [row.goal for row in judged(rows, [])] == [None] * len(rows)


def test_what_varies_is_doubted():
    assert Row("m", "", seconds(1.0, 1.25), "b", seconds(1.0, 1.2)).doubts == []
    wild = Row("m", "", seconds(1.0, 1.5), "b", seconds(1.0, 3.0))
    assert wild.doubts == ["spread is 50%", "the baseline's spread is 200%"]
    assert wild.as_dict()["doubts"] == wild.doubts


def test_best_median_and_spread_are_told_of_both_sides():
    told = Row("m", "", rates(1.0, 2.0, 4.0), "b", seconds(1.0, 3.0)).as_dict()
    assert (told["best"], told["median"], told["spread"]) == (4.0, 2.0, 0.75)
    assert (told["baseline_best"], told["baseline_median"], told["baseline_spread"]) == (1.0, 2.0, 2.0)
    assert told["ours"]["values"] == [1.0, 2.0, 4.0]
    assert skipped("b", "no server").as_dict()["best"] is None
