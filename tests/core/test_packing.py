"""When packs leave: fixed, hill-climbing and adaptive, on simulated and recorded traces."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core.packing import Adaptive, Fixed, HillClimb, Packing, policy_of
from tests.core.packing_traces import (
    Costs,
    alternating,
    ask_and_wait,
    bursts,
    continuous,
    paced,
    recorded,
    scattered,
    simulate,
    steps,
)

INTERVAL = 0.002
DEGREES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Microseconds between the events of real programs: an actor that publishes for each request that tasks make of it,
# three threads that ask by one channel and wait for the answer by another, bursts of 15 with sleeps of 20 ms between.
RECORDED = json.loads(Path(__file__).with_name("recorded_gaps.json").read_text())


def climbing(measuring_seconds: float = 0.05) -> HillClimb:
    return HillClimb(INTERVAL, measuring_seconds)


def best_static(source, seconds, costs=None) -> tuple[int, float]:
    """The degree that a static sweep finds best, and its rate."""
    rates = {degree: simulate(Fixed(degree, INTERVAL), source(), seconds, costs).rate() for degree in DEGREES}
    best = max(rates, key=rates.__getitem__)
    return best, rates[best]


def test_options_give_the_policies():
    assert isinstance(policy_of(Packing()), Adaptive)
    assert isinstance(policy_of(Packing("hill-climb")), HillClimb)
    fixed = policy_of(Packing(64, 0.5))
    assert (fixed.degree, fixed.unasked, fixed.due_at(10.0)) == (64, 63, 10.5)


# ---- JBora's ----


def climb(policy: HillClimb, rates: list[float]) -> list[int]:
    """The degrees after steps with these rates."""
    policy.left(0.0, 1, 100, 0.0)
    degrees = []
    for step, rate in enumerate(rates, 1):
        policy.left(step * 10.0, int(rate * 10), 100, 0.0)
        degrees.append(policy.degree)
    return degrees


@pytest.mark.parametrize(
    ("rates", "degrees"),
    [
        ([100, 110, 120, 130], [2, 3, 4, 5]),  # what raised the throughput is done again
        ([100, 110, 105, 108, 112], [2, 3, 2, 1, 1]),  # down since it fell, and on since it rose: until the least
        ([100, 110, 105, 100, 104], [2, 3, 2, 3, 4]),  # down only while that raises it
        ([100, 100, 100], [2, 2, 2]),  # steady
        ([100, 50, 40, 30, 60], [2, 1, 2, 1, 1]),
    ],
)
def test_the_rule_of_the_paper(rates, degrees):
    assert climb(HillClimb(INTERVAL, 5.0), rates) == degrees


def test_a_step_takes_two_measures():
    policy = HillClimb(INTERVAL, 5.0)
    policy.left(0.0, 1, 100, 0.0)
    for at in (2.0, 5.0, 9.9):
        policy.left(at, 10, 1000, 0.0)
        assert policy.degree == 1
    policy.left(10.0, 10, 1000, 0.0)
    assert policy.degree == 2


def test_climbing_finds_the_neighbourhood_of_a_peak_one_by_one():
    costs = Costs(fixed=40e-6, each=1e-6, crowding=0.3e-6)
    best, rate = max(
        ((degree, simulate(Fixed(degree, 1.0), continuous(), 1.0, costs).rate()) for degree in range(1, 40)),
        key=lambda found: found[1],
    )
    run = simulate(HillClimb(1.0, 0.05), continuous(), 10.0, costs)
    degrees = [degree for at, degree in run.degrees if at > 5.0]
    assert 8 < best < 16
    assert best - 4 <= min(degrees) <= best <= max(degrees) <= best + 4
    assert run.rate(5.0, 10.0) > 0.95 * rate
    # A step up takes two measures, so the way there takes as many.
    first = next(at for at, degree in run.degrees if degree == best)
    assert first > (best - 1) * 2 * 0.05


def test_climbing_does_not_fall_back_to_one_when_another_load_comes_and_goes():
    costs = Costs(fixed=40e-6, each=1e-6, crowding=0.3e-6, factor=lambda now: 3.0 if 4.0 < now < 4.3 else 1.0)
    run = simulate(HillClimb(1.0, 0.05), continuous(), 8.0, costs)
    assert min(degree for at, degree in run.degrees if 3.9 < at < 8.0) >= 6


# ---- ours: what it must do ----


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_a_continuous_source_gets_the_best_rate_within_a_second(size):
    _, best = best_static(lambda: continuous(size), 1.0)
    run = simulate(Adaptive(INTERVAL), continuous(size), 2.0)
    assert run.rate(0.0, 1.0) > 0.95 * best  # on the way there too
    assert run.rate(1.0, 2.0) > 0.97 * best
    assert run.rate(0.0, 2.0) > 0.98 * simulate(Fixed(1, INTERVAL), continuous(size), 2.0).rate()


def test_it_is_there_after_milliseconds():
    run = simulate(Adaptive(INTERVAL), continuous(), 0.2)
    assert run.packed(0.01, 0.02) > 0.8 * run.packed(0.02, 0.06)  # then it tries longer ones
    assert run.packed(0.15, 0.2) > 200


@pytest.mark.parametrize("per_second", [1, 10, 100, 1000])
def test_an_idle_link_sends_at_once(per_second):
    run = simulate(Adaptive(INTERVAL), paced(per_second), 2.0 + 2 / per_second)
    assert max(run.waits) == 0.0
    assert run.packed() == 1


@pytest.mark.parametrize("per_second", [100, 1000, 3000])
def test_events_that_come_as_they_like_hardly_wait_at_low_load(per_second):
    run = simulate(Adaptive(INTERVAL), scattered(per_second), 3.0)
    waits = sorted(run.waits)
    assert waits[len(waits) // 2] == 0.0
    assert sum(waits) / len(waits) < 50e-6


@pytest.mark.parametrize("interval", [0.00002, 0.0005, 0.002, 0.02, 1.0])
@pytest.mark.parametrize(
    "source",
    [
        lambda: continuous(),
        lambda: scattered(20_000),
        lambda: paced(5000),
        lambda: bursts(15, 0.020),
        lambda: steps((100, 0.2), (50_000, 0.2), (5000, 0.2)),
        *(partial(recorded, gaps) for gaps in RECORDED.values()),
    ],
)
def test_no_event_waits_longer_than_the_interval(interval, source):
    longest = max(simulate(Adaptive(interval), source(), 2.0).waits)
    sending = Costs().of(0.0, 1024, 1024 * 1000)  # a pack that was leaving when the time came
    assert longest <= interval + sending


@pytest.mark.parametrize(("events", "every"), [(15, 0.020), (5, 0.020), (2, 0.005)])
def test_bursts_that_are_little_load_wait_for_nothing(events, every):
    run = simulate(Adaptive(INTERVAL), bursts(events, every), 2.0)
    assert max(run.waits) == 0.0


@pytest.mark.parametrize("name", ["requests", "bursts"])
def test_recorded_loads_that_are_low_wait_for_nothing(name):
    run = simulate(Adaptive(INTERVAL), recorded(RECORDED[name]), 3.0)
    assert max(run.waits) == 0.0


def test_recorded_questions_are_gathered_no_longer_than_the_interval():
    gaps = RECORDED["questions"]
    run, bare = (simulate(policy, recorded(gaps), 3.0) for policy in (Adaptive(INTERVAL), Fixed(1, INTERVAL)))
    assert run.rate() == pytest.approx(bare.rate(), rel=0.01)
    assert max(run.waits) <= INTERVAL + Costs().of(0.0, 100, 10_000)


@pytest.mark.parametrize("make", [partial(Fixed, 8, INTERVAL), climbing], ids=["fixed", "hill-climb"])
@pytest.mark.parametrize("source", [partial(bursts, 15, 0.02), partial(alternating, 1000, 3000, 300_000)])
def test_the_other_policies_keep_to_the_interval_too(make, source):
    run = simulate(make(), source(), 1.0)
    assert max(run.waits) <= INTERVAL + Costs().of(0.0, 1024, 1 << 20)
    assert run.events > 0


@pytest.mark.parametrize(
    ("events", "every"),
    [(10, 0.001), (15, 0.0005), (5, 0.0001), (50, 0.001), (20, 0.0001), (100, 0.0005), (200, 0.001)],
)
def test_half_of_the_events_of_bursts_wait_less_than_a_pack_keeps_its_receivers(events, every):
    run = simulate(Adaptive(INTERVAL), bursts(events, every, 100), 2.0)
    waits = sorted(run.waits)
    assert waits[len(waits) // 2] <= 40e-6
    assert run.rate() == pytest.approx(events / every, rel=0.02)


@pytest.mark.parametrize("per_second", [5000, 20_000, 50_000, 100_000, 200_000])
def test_events_that_come_evenly_wait_little_and_their_packs_leave_time_for_others(per_second):
    run = simulate(Adaptive(INTERVAL), paced(per_second), 2.0)
    waits = sorted(run.waits)
    assert waits[len(waits) // 2] <= 40e-6
    packs = [at for at, _ in run.departures if at > 1.0]
    assert (packs[-1] - packs[0]) / len(packs) > 36e-6


def test_the_end_of_a_burst_is_not_what_most_of_it_waits_for():
    run = simulate(Adaptive(INTERVAL), bursts(50, 0.001, 100), 2.0)
    late = sum(wait > 200e-6 for wait in run.waits)
    assert late < 0.25 * len(run.waits)


def test_where_a_consumer_lags_packs_are_as_long_as_can_be():
    policy = Adaptive(INTERVAL)
    policy.lags(0.5)
    run = simulate(policy, paced(100_000), 3.0)
    assert run.packed(0.1, 1.0) > 100
    assert run.packed(2.0, 3.0) < 10  # a second after it has lagged last


def test_longer_packs_stay_where_they_bring_more_events():
    run = simulate(Adaptive(INTERVAL), continuous(), 3.0)
    assert run.packed(1.0, 3.0) > 200
    by_the_clock = simulate(Adaptive(INTERVAL), paced(200_000), 3.0)
    assert by_the_clock.packed(1.0, 3.0) < 20


def test_sizes_that_change_move_it_at_once():
    def source():
        return alternating(1000, 3000, 300_000)

    _, best = best_static(source, 2.0)
    run = simulate(Adaptive(INTERVAL), source(), 2.0)
    assert run.rate() > 0.95 * best


def test_a_step_of_the_load_is_followed_within_a_tenth_of_a_second():
    run = simulate(Adaptive(INTERVAL), steps((200, 1.0), (100_000, 1.0)), 4.0)
    for began in (0.0, 2.0):
        assert run.packed(began + 0.1, began + 1.0) == 1
        assert run.packed(began + 1.1, began + 2.0) > 4


def test_another_load_makes_packs_longer_and_goes_without_a_trace():
    def crowded(now: float) -> float:
        return 10.0 if 1.0 < now < 2.0 else 1.0

    run = simulate(Adaptive(INTERVAL), paced(60_000), 3.0, Costs(factor=crowded))
    before, meanwhile, after = run.packed(0.8, 1.0), run.packed(1.8, 2.0), run.packed(2.8, 3.0)
    assert meanwhile > 2 * before
    assert after == pytest.approx(before, rel=0.1)


def degree_where_others_have_the_core(publish_seconds: float, is_delayed: bool) -> int:
    """Of a source that runs for 0.7 ms, then not for 4 ms: it is kept from running, or it waits for something."""
    policy = Adaptive(INTERVAL)
    now = delayed = 0.0
    for _ in range(20):
        until = now + 0.0007
        while now < until:
            events = policy.unasked + 1
            filling = publish_seconds * (events - 1)
            now += 12e-6 + publish_seconds + filling
            policy.left(now, events, 100 * events, 6e-6, filling_seconds=filling, delayed_seconds=delayed)
        now += 0.004
        delayed += 0.004 * is_delayed
    return policy.degree if policy.unasked else 1


def test_a_source_that_shares_its_core_has_long_packs_whatever_its_rate():
    assert degree_where_others_have_the_core(0.3e-6, is_delayed=True) >= 200


def test_a_source_that_does_something_else_has_not():
    assert degree_where_others_have_the_core(0.3e-6, is_delayed=False) < 100
    assert degree_where_others_have_the_core(60e-6, is_delayed=True) < 10


def test_it_does_not_oscillate():
    run = simulate(Adaptive(INTERVAL), paced(100_000), 3.0)
    packs = sorted(events for at, events in run.departures if at > 1.0)
    usual = packs[len(packs) // 2]
    assert sum(events for events in packs if abs(events - usual) <= 1) > 0.9 * sum(packs)  # but for trials


def test_a_thread_that_was_stopped_for_a_while_changes_nothing():
    policy = Adaptive(INTERVAL)
    now = 0.0
    for number in range(2000):
        now += 0.01
        assert policy.due_at(now) == now
        policy.left(now, 1, 100, 0.005 if number % 50 == 0 else 12e-6)
    assert 10e-6 < policy.cost_seconds < 15e-6


@pytest.mark.parametrize("callers", [1, 2, 3, 4, 8, 32])
@pytest.mark.parametrize("interval", [0.0005, 0.002, 0.05])
def test_who_waits_for_answers_is_not_held_up(callers, interval):
    bare = ask_and_wait(Fixed(1, interval), callers, 4.0)
    run = ask_and_wait(Adaptive(interval), callers, 4.0)
    assert run.rate(1.0) > 0.93 * bare.rate(1.0)
    if callers <= 4:  # more of them are as well served by packs
        assert sorted(run.waits)[len(run.waits) // 2] <= 1e-6
    assert sorted(run.waits)[len(run.waits) // 2] <= 40e-6


def test_a_stream_that_follows_on_questions_is_gathered_at_once():
    policy = Adaptive(INTERVAL)
    ask_and_wait(policy, 4, 1.0)
    source = ((1.0 + at, size) for at, size in continuous())
    run = simulate(policy, source, 2.0)
    _, best = best_static(continuous, 0.2)
    assert run.rate(1.1, 2.0) > 0.9 * best


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5000), st.integers(0, 1 << 22), st.floats(0, 10)), max_size=200),
    st.floats(1e-5, 60),
)
def test_whatever_is_measured_gives_a_time_and_a_degree(packs, interval):
    policies = [Adaptive(interval), HillClimb(interval, 0.01), Fixed(7, interval)]
    now = 1000.0
    for pause, events, size_bytes, seconds in packs:
        now += pause
        for policy in policies:
            assert now <= policy.due_at(now) <= now + interval + 1e-9
            policy.left(now, events, size_bytes, seconds)
            assert 1 <= policy.degree <= 65_536
            assert 0 <= policy.unasked < 65_536
            assert policy.typical(now) >= 1


def test_what_is_told_of_a_link_that_fell_idle():
    policy = Adaptive(INTERVAL)
    simulate(policy, continuous(), 0.5)
    assert policy.typical(0.5) > 100
    assert policy.typical(1.5) == 1


def test_packs_without_events_change_nothing():
    policy = Adaptive(INTERVAL)
    for second in range(50):
        policy.left(second + 0.9999, 0, 0, 1e-5)
        assert policy.due_at(second + 1.0) == second + 1.0
        policy.left(second + 1.0, 1, 100, 1e-5)
    assert policy.load < Adaptive.SPARE


def test_climbing_stays_where_it_is_while_nothing_is_sent():
    policy = climbing(0.01)
    simulate(policy, continuous(), 0.5)
    degree = policy.degree
    policy.left(500.0, 1, 100, 0.0)
    policy.left(1000.0, 1, 100, 0.0)
    assert policy.degree == degree > 1


def test_large_events_are_not_held_for_what_packing_does_not_save():
    run = simulate(Adaptive(INTERVAL), paced(1000, size=100_000), 2.0)
    assert max(run.waits) == 0.0
