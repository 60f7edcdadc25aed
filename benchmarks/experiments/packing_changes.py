"""Is adaptive packing near the best fixed degree in its first second, as sizes change, when others want the core?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import echannel_ray as ec
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.paced import Competitor, PackedField
from echannel_ray.benchmarks.harness.pinning import CORES, PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan, interleave, sized

DEGREES = (1, 6, 16, 64, 256, 1024)
ALTERNATING = [1000, 3000]
EVENTS_EACH = 20_000  # JBora had 300,000 of each, at a hundredth of the rate
GOALS = (
    at_least(0.95, "adaptive packing of a load that changes, against the best degree", ".*", "the best degree, .*"),
    at_least(0.98, "adaptive packing of a load that changes, against no packing", ".*", "no packing"),
)
BURST_SECONDS = 0.03  # how long the other load is there, and is away


def run(plan: Plan) -> list[Row]:
    """Full speed, in turns."""
    rows = []
    packings = {str(degree): ec.Packing(degree=degree) for degree in DEGREES} | {"adaptive": ec.Packing()}
    with PackedField(plan, "bench-packing-changes") as field:
        field.connect_packed(packings)
        for placement in PLACEMENTS:
            field.place(placement)
            alternate = {
                name: sized(plan, lambda n, name=name: field.full_speed(name, ALTERNATING, EVENTS_EACH, n)[0], 5000)  # type: ignore[misc]
                for name in packings
            }
            rows += _against_best(plan, placement, "1,000 and 3,000 B in turns", alternate)
            source_core = CORES[0] if placement == "two" else CORES[1 % len(CORES)]
            with Competitor(source_core, BURST_SECONDS, BURST_SECONDS):
                crowded = {
                    name: sized(plan, lambda n, name=name: field.full_speed(name, [1000], n, n)[0], 5000)  # type: ignore[misc]
                    for name in packings
                }
                rows += _against_best(plan, placement, "1,000 B, another load comes and goes", crowded)
            rows += _first_second(plan, field, placement)
    return rows


def _first_second(plan: Plan, field: PackedField, placement: str) -> list[Row]:
    """A policy that nobody has used: its interval makes it another one than those before."""
    names = iter(f"fresh-{placement}-{number}" for number in range(10_000))
    seconds = 0.3 if plan.short else 1.0

    def fresh() -> float:
        name = next(names)
        number = int(name.rsplit("-", 1)[1])
        answer(field.producer.open_with.remote({name: ec.Packing(interval_seconds=0.002 + number * 1e-9)}))
        answer(field.consumers[0].subscribe.remote([name]))
        return field.full_speed_for(name, 100, seconds)

    variants: dict[str, Callable[[], float]] = {
        str(degree): partial(field.full_speed_for, str(degree), 100, seconds) for degree in (1, 256, 1024)
    }
    return _against_best(plan, placement, "100 B, the first second", {**variants, "adaptive": fresh})


def _against_best(plan: Plan, placement: str, what: str, variants: dict[str, Callable[[], float]]) -> list[Row]:
    rates = interleave(plan, variants, "events/s", higher_is_better=True)
    best = max((name for name in rates if name != "adaptive"), key=lambda name: rates[name].median)
    ours = rates["adaptive"]
    return [
        Row(
            f"{what}, adaptive",
            placement,
            ours,
            f"the best degree, {best}",
            rates[best],
            statistic="median",
        ),
        Row(f"{what}, adaptive", placement, ours, "no packing", rates["1"], statistic="median"),
    ]
