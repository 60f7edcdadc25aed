"""Rounds, turns, and how long a turn lasts."""

from __future__ import annotations

from functools import partial

import pytest

from echannel_ray.benchmarks.harness.samples import Plan, Samples, best_of, interleave, sized

SHORT, LONG = Plan(short=True, seed=1), Plan(short=False, seed=1)


class Turns:
    """Variants that note when it was their turn: a figure is the number of the turn."""

    def __init__(self, plan: Plan, names: str) -> None:
        self.taken: list[str] = []
        self.samples = interleave(plan, {name: partial(self._take, name) for name in names}, "s", False)

    def _take(self, name: str) -> float:
        self.taken.append(name)
        return float(len(self.taken))


@pytest.mark.parametrize("plan", [SHORT, LONG])
def test_each_round_has_each_variant_once(plan):
    turns = Turns(plan, "abc")
    rounds = [turns.taken[begin : begin + 3] for begin in range(0, len(turns.taken), 3)]
    assert len(rounds) == plan.rounds
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1  # not always in the same order
    assert [turns.taken[int(value) - 1] for value in turns.samples["b"].values] == ["b"] * plan.rounds


def test_the_order_is_that_of_the_seed():
    first, second, other = (Turns(Plan(short=False, seed=seed), "abcd").taken for seed in (1, 1, 2))
    assert first == second != other


def test_a_turn_lasts_as_long_as_planned():
    counts: list[int] = []

    def rate_of(count: int) -> float:
        counts.append(count)
        return 10_000.0

    measure = sized(LONG, rate_of, first_count=10)
    assert counts == [10, 2500]  # trials, which don't count
    assert measure() == 10_000.0
    assert counts[-1] == 10_000 * LONG.sample_seconds


@pytest.mark.parametrize(("rate", "count"), [(1.0, 10), (1e12, 2_000_000)])
def test_a_turn_has_some_events_and_not_too_many(rate: float, count: int) -> None:
    counts: list[int] = []

    def rate_of(count: int) -> float:
        counts.append(count)
        return rate

    sized(SHORT, rate_of, first_count=10)()
    assert counts[-1] == count


def test_the_best_counts():
    fast, slow = Samples("s", False, [3.0, 1.0, 2.0]), Samples("s", False, [5.0])
    assert (fast.best, fast.median, fast.worst, fast.spread) == (1.0, 2.0, 3.0, 2.0)
    rates = Samples("events/s", True, [3.0, 1.0])
    assert (rates.best, rates.worst) == (3.0, 1.0)
    assert best_of({"loop, packs of 1": slow, "loop, packs of 16": fast, "other": fast}, "loop") == (
        "loop, packs of 16",
        fast,
    )
