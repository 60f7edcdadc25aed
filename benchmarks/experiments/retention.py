"""What does it cost that a channel retains its events, in memory or on disk, and how quickly are they replayed?"""

from __future__ import annotations

from functools import partial

from echannel_ray.benchmarks.harness import records
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.retaining import RetainingField
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave, sized

KIND = "100 bytes"
ORDINARY = "a channel that retains nothing"
RETAINING = {"in memory": False, "on disk": True}
GOALS = (
    at_least(0.6, "`publish` retained in memory, against an ordinary channel", "publish, .*, in memory", ORDINARY),
    at_least(0.4, "`publish` retained on disk, against an ordinary channel", "publish, .*, on disk", ORDINARY),
)
REPLAYED_EVENTS, SHORT_REPLAYED_EVENTS = 1_000_000, 100_000
DELIVERIES, SHORT_DELIVERIES = 500, 100


def run(plan: Plan) -> list[Row]:
    """Publishing under each placement; deliveries and replay under the last."""
    with RetainingField(plan, "bench-retention") as field:
        for name, disk in RETAINING.items():
            field.create_retaining(name, disk)
        channels = [ORDINARY, *RETAINING]
        field.connect(channels)
        rows = []
        for placement in PLACEMENTS:
            field.place(placement)
            variants = {name: sized(plan, partial(field.rate, KIND, [name]), 5000) for name in channels}
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            rows += [
                Row(f"publish, {KIND}, {name}", placement, samples[name], ORDINARY, samples[ORDINARY])
                for name in RETAINING
            ]
        deliveries = SHORT_DELIVERIES if plan.short else DELIVERIES
        delivers = {name: partial(field.deliver_seconds, name, b"x" * 100, deliveries) for name in channels}
        samples = interleave(plan, delivers, "s", higher_is_better=False)
        rows += [Row(f"deliver, {name}", placement, samples[name], ORDINARY, samples[ORDINARY]) for name in RETAINING]
        samples = interleave(plan, _replays(plan, field), "events/s", higher_is_better=True)
        return rows + [Row(f"replay of {name}", placement, replayed) for name, replayed in samples.items()]


def _replays(plan: Plan, field: RetainingField) -> dict[str, Measure]:
    """Of what is published here for that."""
    events = SHORT_REPLAYED_EVENTS if plan.short else REPLAYED_EVENTS
    variants: dict[str, Measure] = {}
    for where, disk in RETAINING.items():
        name = f"replayed {where}"
        field.create_retaining(name, disk)
        field.fill(name, KIND, events)
        variants[f"{events:,} events of {KIND} {where}"] = partial(field.replay_rate, name, events)
        name, dtype = f"records {where}", records.quote()
        field.create_retaining(name, disk, dtype)
        count = field.fill_with_records(name, "quotes", dtype, events)
        variants[f"{count:,} records of 100 B {where}, one by one"] = partial(field.replay_rate, name, count)
        variants[f"{count:,} records of 100 B {where}, as Arrow"] = partial(field.replay_rate, name, count, "arrow")
    return variants
