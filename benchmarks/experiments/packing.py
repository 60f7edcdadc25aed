"""How close does adaptive packing come to the best fixed degree, which only a sweep finds, and what does it gain?

Fixed degrees from 1 (no packing) to 1,024, events of three sizes, one producer at full speed. JBora's policy climbs in
a field of its own, since it measures what its link carries; it has a hundredth of the paper's measuring interval, and
is on its way when the sweep ends: with the paper's own interval it would take hours to the best degree here.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import echannel_ray as ec
from echannel_ray.benchmarks.harness.paced import PackedField
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, interleave, sized

SIZES = {100: (28, 9.51), 1000: (11, 3.48), 10_000: (3, 1.76)}  # with JBora's best degree, and what it gained
DEGREES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CLIMBING = ec.Packing(degree="hill-climb", measuring_seconds=0.05)
ADAPTIVE, CLIMB = "adaptive", "hill-climb"
GOALS = (
    at_least(
        0.95, "adaptive packing at full speed, against the best degree", ".* B .*, adaptive", "the best degree, .*"
    ),
    at_least(0.98, "adaptive packing at full speed, against no packing", ".* B .*, adaptive", "no packing"),
    at_most(
        1.1, "adaptive packing at full speed: CPU, against the cheapest degree", "CPU .*, adaptive", "the cheapest .*"
    ),
)

FIGURES = tuple(
    Figure(
        f"packing-{size}",
        f"Throughput over the packing degree, {size:,} byte events",
        "packing degree",
        "events/s",
        log_x=True,
        paper="JBora, figure 1 and table 2",
    )
    for size in SIZES
)


def run(plan: Plan) -> list[Row]:
    """All degrees and both policies, in turns."""
    rows = []
    degrees = DEGREES[::2] if plan.short else DEGREES
    packings = {str(degree): ec.Packing(degree=degree) for degree in degrees} | {ADAPTIVE: ec.Packing()}
    with ExitStack() as stack:
        field = stack.enter_context(PackedField(plan, "bench-packing"))
        field.connect_packed(packings)
        climber = stack.enter_context(PackedField(plan, "bench-packing-climb"))
        climber.connect_packed({f"{CLIMB}-{size}-{place}": CLIMBING for size in SIZES for place in PLACEMENTS})
        for placement in PLACEMENTS:
            field.place(placement)
            climber.place(placement)
            for size in SIZES:
                rows += _compare(plan, field, climber, placement, size, [*packings])
    return rows


def _compare(
    plan: Plan, field: PackedField, climber: PackedField, placement: str, size: int, names: list[str]
) -> list[Row]:
    costs = {name: Samples("s", higher_is_better=False) for name in (*names, CLIMB)}
    variants = {name: _measure(plan, field, name, size, costs[name]) for name in names}
    climb = f"{CLIMB}-{size}-{placement}"
    events = int(variants["64"]() * (0.5 if plan.short else 1.0))
    variants[CLIMB] = partial(_full_speed, climber, climb, size, costs[CLIMB], events)
    rates = interleave(plan, variants, "events/s", higher_is_better=True)
    fixed = {name: rates[name] for name in names if name != ADAPTIVE}
    best = max(fixed, key=lambda name: fixed[name].median)
    cheapest = min(fixed, key=lambda name: costs[name].median)
    what = f"{size:,} B at full speed"
    ours, spent = rates[ADAPTIVE], costs[ADAPTIVE]
    degree, gain = SIZES[size]
    paper = f"JBora: {gain} times, with its best degree, {degree}"
    climbed = f"it had climbed to degree {climber.degree(climb):.0f}"
    rows = [
        Row(
            f"{what}, adaptive",
            placement,
            ours,
            f"the best degree, {best}",
            rates[best],
            statistic="median",
        ),
        Row(f"{what}, adaptive", placement, ours, "no packing", rates["1"], note=paper, statistic="median"),
        Row(f"{what}, the best degree, {best}", placement, rates[best], "no packing", rates["1"], note=paper),
        Row(f"{what}, hill climbing", placement, rates[CLIMB], f"the best degree, {best}", rates[best], note=climbed),
        Row(f"{what}, hill climbing", placement, rates[CLIMB], "no packing", rates["1"], note=climbed),
        Row(
            f"CPU of all processes per event, {what}, adaptive",
            placement,
            spent,
            f"the cheapest degree, {cheapest}",
            costs[cheapest],
            statistic="median",
        ),
    ]
    point = Row(
        "", placement, ours, f"adaptive, {placement}", ours, figure=f"packing-{size}", series=f"fixed, {placement}"
    )
    rows += [
        replace(point, measure=f"{what}, degree {degree}", ours=samples, x=float(degree))
        for degree, samples in fixed.items()
    ]
    return rows


def _measure(plan: Plan, field: PackedField, name: str, size: int, costs: Samples) -> Measure:
    return sized(plan, partial(_full_speed, field, name, size, costs), 5000)


def _full_speed(field: PackedField, name: str, size: int, costs: Samples, events: int) -> float:
    rate, cost = field.full_speed(name, [size], events, events)
    costs.values.append(cost)
    return rate
