"""What trials of adaptive packing find, from what comes in their windows; and who is taken for crowded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

from echannel_ray.core.packing import Adaptive
from echannel_ray.core.trials import LengthTrials, Trials

STEP_SECONDS = 1e-4


def lengths_after(
    trials: LengthTrials, short: Iterator[float], long: Iterator[float], until: float, now: float
) -> float:
    """Feed it until then, with the next rate of the mode for each window; the time."""
    mode, rate = trials.are_long, 0.0
    rate = next(long if mode else short)
    while now < until:
        now += STEP_SECONDS
        trials.left(now, round(rate * STEP_SECONDS), is_busy=True)
        if trials.are_long != mode:
            mode = trials.are_long
            rate = next(long if mode else short)
    return now


def steady(rate: float) -> Iterator[float]:
    return repeat(rate)


def test_long_packs_that_bring_more_are_found():
    trials = LengthTrials()
    lengths_after(trials, steady(1e6), steady(1.1e6), 0.2, 0.0)
    assert trials.are_long


def test_as_much_either_way_stays_short():
    trials = LengthTrials()
    lengths_after(trials, steady(1e6), steady(1.05e6), 0.2, 0.0)
    assert not trials.are_long


def test_a_small_gain_must_be_there_in_each_pair():
    trials = LengthTrials()
    lengths_after(trials, chain([1e6, 1e6, 1e6, 1e6], steady(1e6)), chain([1.4e6, 1.4e6, 0.8e6], steady(1e6)), 0.2, 0.0)
    assert not trials.are_long


def test_long_packs_stay_while_they_bring_more_in_all():
    """They were given up for seconds where the short ones won a single pair by chance."""
    trials = LengthTrials()
    now = lengths_after(trials, steady(1.5e6), steady(3.5e6), 0.2, 0.0)
    lengths_after(trials, chain([2.9e6, 3.0e6, 3.6e6], steady(1.5e6)), chain([3.463e6], steady(3.5e6)), 0.5, now)
    assert trials.are_long
    assert trials._pause_seconds > 0.5  # the second trial is over


def bare_windows(rate_of: Callable[[bool], float]) -> int:
    """How many windows of the first second have nothing held."""
    trials = Trials(0.02, 0.0)
    now, count, held = 0.0, 0, True
    while now < 0.2:
        now += STEP_SECONDS
        trials.left(now, round(rate_of(trials.holds) * STEP_SECONDS), is_full=False, load=0.4)
        count += held and not trials.holds
        held = trials.holds
    assert trials.holds
    return count


def test_a_trial_ends_where_one_pair_shows_enough():
    assert bare_windows(lambda holds: 100_000 if holds else 20_000) == 1
    assert bare_windows(lambda holds: 100_000 if holds else 90_000) == 2


def test_time_in_which_others_had_the_core_does_not_count():
    """Held or not, it publishes as fast while it has the core, and has that half of the time where nothing is held."""
    trials = Trials(0.02, 0.0)
    now = delayed = 0.0
    while now < 2.0:
        events = round(100_000 * STEP_SECONDS)
        now += STEP_SECONDS
        if trials.holds:
            now, delayed = now + STEP_SECONDS, delayed + STEP_SECONDS
        trials.left(now, events, is_full=False, load=0.4, delayed_seconds=delayed)
    assert trials.holds


def test_who_answers_others_on_a_busy_core_is_held_up_seldom():
    """It always has something to do, until its packs are held: then nobody asks, and they wait for all their time."""
    policy = Adaptive(0.002)
    now = delayed = held = 0.0
    while now < 4.0:
        if policy.unasked:
            now, held = now + policy.hold_seconds, held + policy.hold_seconds
            policy.left(now, 1, 100, 6e-6, filling_seconds=policy.hold_seconds, delayed_seconds=delayed)
        else:
            now, delayed = now + 40e-6, delayed + 26e-6
            policy.left(now, 1, 100, 6e-6, delayed_seconds=delayed)
    assert held < 0.1 * now
