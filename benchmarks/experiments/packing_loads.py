"""What does packing do to latency and CPU where the load is low, or comes in bursts?

By the clock, from one event in 10 ms to JBora's bursts and 200 a ms; medians are from `publish` to the handler, and
the best degree at a rate is the one with the least that keeps up. And threads that each wait for the answer to what
they published before they publish again: who gathers would only delay them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import echannel_ray as ec
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.paced import Load, Outcome, PackedField
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave

PACKINGS = {
    "no packing": ec.Packing(degree=1),
    "degree 4": ec.Packing(degree=4),
    "degree 8": ec.Packing(degree=8),
    "degree 16": ec.Packing(degree=16),
    "degree 32": ec.Packing(degree=32),
    "degree 64": ec.Packing(degree=64),
    "degree 256": ec.Packing(degree=256),
    "hill-climb": ec.Packing(degree="hill-climb", measuring_seconds=0.05),
    "adaptive": ec.Packing(),
}
LOW = {"1 every 10 ms": (1, 0.01), "1 every ms": (1, 0.001)}
BURSTS = {"15 every 20 ms": (15, 0.02), "5 every 20 ms": (5, 0.02), "2 every 5 ms": (2, 0.005)}
HIGH = {
    "10 every ms": (10, 0.001),
    "5 every 0.1 ms": (5, 0.0001),
    "50 every ms": (50, 0.001),
    "20 every 0.1 ms": (20, 0.0001),
    "200 every ms": (200, 0.001),
}
_KEEPS_UP = 0.98  # of the highest rate that any of them had

CALLERS = (1, 2, 8)
_QUESTIONS = {f"{name}, there": PACKINGS[name] for name in ("no packing", "adaptive")}
_BACK = {there: there.replace("there", "back") for there in _QUESTIONS}

FIGURES = (
    Figure(
        "packing-cpu",
        "CPU of all processes per event, over the load",
        "events/s",
        "CPU per event",
        log_x=True,
        log_y=True,
        paper="JBora, figure 4 and table 3",
    ),
    Figure(
        "packing-latency",
        "Median latency over the load",
        "events/s",
        "from publish to the handler",
        log_x=True,
        log_y=True,
        paper="JBora, figure 4 and table 3",
    ),
)

BEST = "against the best degree that keeps up"
GOALS = (
    at_least(0.98, "questions and answers with adaptive packing, against no packing", "questions .*", "no packing"),
    at_most(
        1.05,
        "latency of a lone event with adaptive packing, against no packing",
        "median latency, 1 every .*, adaptive",
        "no packing",
    ),
    at_least(0.99, "throughput of bursts with adaptive packing", "throughput, .*", ".*"),
    at_most(
        1.1,
        "CPU at 200 events a millisecond with adaptive packing",
        "CPU .*, 200 every ms, .*, against the cheapest",
        ".*",
    ),
    at_most(1.3, f"latency with adaptive packing, {BEST}", f"median latency, .*, {BEST}", ".*"),
)


def run(plan: Plan) -> list[Row]:
    """Each load with each packing, in turns."""
    rows = []
    with PackedField(plan, "bench-packing-loads") as field:
        field.connect_packed(PACKINGS, timing=True)
        answer(field.producer.open_with.remote(_QUESTIONS | {back: _QUESTIONS[there] for there, back in _BACK.items()}))
        for there, back in _BACK.items():
            answer(field.consumers[0].relay.remote(there, back))
        for placement in PLACEMENTS:
            field.place(placement)
            rows += _with_answers(plan, field, placement)
            for name in PACKINGS:
                field.under(name, Load(10, 0.001, 0.1))
            for loads in (LOW, BURSTS, HIGH):
                for what, (burst, every) in loads.items():
                    size = 1000 if loads is BURSTS else 100
                    load = Load(burst, every, 0.25 if plan.short else 0.4, size)
                    rows += _rows(plan, field, placement, what, load, loads)
    return rows


def _with_answers(plan: Plan, field: PackedField, placement: str) -> list[Row]:
    """Callers that each wait for the answer to a question before they ask the next."""
    rows = []
    seconds = 0.25 if plan.short else 0.5
    for callers in CALLERS:
        variants = {there: partial(_ask_and_wait, field, there, callers, seconds) for there in _QUESTIONS}
        for measure in variants.values():
            measure()
        rates = interleave(plan, variants, "questions/s", higher_is_better=True)
        ours, bare = rates["adaptive, there"], rates["no packing, there"]
        what = f"questions and answers, {callers} {'caller' if callers == 1 else 'callers'}, adaptive"
        rows.append(Row(what, placement, ours, "no packing", bare, statistic="median"))
    return rows


def _ask_and_wait(field: PackedField, there: str, callers: int, seconds: float) -> float:
    return float(answer(field.producer.ask_and_wait.remote(there, _BACK[there], callers, seconds)))


def _rows(plan: Plan, field: PackedField, placement: str, what: str, load: Load, loads: object) -> list[Row]:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in PACKINGS}
    order, generator = [*PACKINGS], plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        for name in order:
            outcomes[name].append(field.under(name, load))

    def samples(name: str, unit: str, of: Callable[[Outcome], float]) -> Samples:
        return Samples(unit, unit == "events/s", [of(outcome) for outcome in outcomes[name]])

    rates = {name: samples(name, "events/s", lambda each: each.rate) for name in PACKINGS}
    latencies = {name: samples(name, "s", lambda each: each.median_seconds) for name in PACKINGS}
    costs = {name: samples(name, "s", lambda each: each.cpu_seconds_per_event) for name in PACKINGS}
    fixed = [name for name in PACKINGS if name != "adaptive"]
    least_rate = _KEEPS_UP * max(rates[name].median for name in fixed)
    keeping_up = [name for name in fixed if name != "hill-climb" and rates[name].median >= least_rate]
    quickest = min(keeping_up, key=lambda name: latencies[name].median)
    per_second = load.burst / load.every_seconds
    tails = {name: samples(name, "s", lambda each: each.p99_seconds) for name in ("adaptive", "no packing")}
    what_tail = f"p99 latency, {what}, adaptive"
    rows = [
        Row(what_tail, placement, tails["adaptive"], "no packing", tails["no packing"], statistic="median"),
        Row(
            f"median latency, {what}, adaptive, {BEST}",
            placement,
            latencies["adaptive"],
            quickest,
            latencies[quickest],
            statistic="median",
        ),
    ]
    for name in fixed:
        packed = outcomes["adaptive"][0].events_per_pack
        note = f"{packed:.1f} events in a pack" if name == "no packing" else ""
        rows += [
            Row(
                f"median latency, {what}, adaptive", placement, latencies["adaptive"], name, latencies[name], note=note,
                figure="packing-latency", x=per_second, series=f"adaptive, {placement}",
            ),
            Row(
                f"CPU of all processes per event, {what}, adaptive", placement, costs["adaptive"], name, costs[name],
                note=note,
                figure="packing-cpu", x=per_second, series=f"adaptive, {placement}",
            ),
        ]  # fmt: skip
    if loads is BURSTS:
        best = max(fixed, key=lambda name: rates[name].best)
        # The source limits all of them: who falls behind it can be seen here, nothing else.
        rows.append(Row(f"throughput, {what}, adaptive", placement, rates["adaptive"], best, rates[best]))
    if loads is HIGH:
        best = min(fixed, key=lambda name: costs[name].best)
        what = f"CPU of all processes per event, {what}, adaptive, against the cheapest"
        rows.append(Row(what, placement, costs["adaptive"], best, costs[best]))
    return rows
