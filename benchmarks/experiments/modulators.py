"""What do eager handlers cost per event, and what do they save?

Events through one that passes everything on; a filter that rejects nine of ten; eight consumers that share one; and
what others notice of one that is stuck. (What installing them costs is in `handlers`, what steering them in `shared`.)
"""

from __future__ import annotations

from functools import partial
from statistics import quantiles

import echannel_ray as ec
from echannel_ray.benchmarks.harness.eager import TIERS, OneInTen, OneInTenBytes, Stuck
from echannel_ray.benchmarks.harness.eager_field import EagerField
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave, sized
from echannel_ray.benchmarks.harness.usage import cpu_seconds

CONSUMERS = 8
GOALS = (
    at_least(0.6, "a modulator that passes everything on, inline", ".*, inline, 100 bytes", "no modulator"),
    at_least(0.4, "a modulator that passes everything on, in a sandbox", ".*, isolated, 100 bytes", "no modulator"),
    at_most(1, "an inline filter that rejects 90 %: producer's CPU", "producer's CPU per .*", "no filter"),
    at_most(
        1, "a filter in a sandbox that rejects 90 %: CPU of the whole path", "CPU of the whole path .*", "no filter"
    ),
    at_most(
        1.1,
        "producer's CPU with 8 consumers that have equal modulators, against one",
        "producer's CPU per event, .*",
        "1 consumer",
    ),
    at_most(2, "p99 of `deliver` while a modulator is stuck", "p99 of deliver while .*", "before"),
    at_most(1.25, "p99 of `deliver` after a stuck modulator was removed", "p99 of deliver after .*", "before"),
)


def run(plan: Plan) -> list[Row]:
    """All of it."""
    with EagerField(plan, "bench-modulators", consumers=CONSUMERS) as field:
        rows = _passing_through(plan, field)
        rows += _filtering(plan, field)
        rows += _sharing(plan, field)
        rows += _stuck(plan, field)
    return rows


def _passing_through(plan: Plan, field: EagerField) -> list[Row]:
    rows = []
    for kind in ("100 bytes", "small dict"):
        field.connect_eagerly(f"pass-{kind}-without", None, None)
        for tier in TIERS:
            field.connect_eagerly(f"pass-{kind}-{tier}", ec.FIFOModulator(), tier)
        for placement in PLACEMENTS:
            field.place_all(placement)
            variants = {
                variant: sized(plan, partial(field.rate, kind, [f"pass-{kind}-{variant}"]), 5000)
                for variant in ("without", *TIERS)
            }
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            rows += [
                Row(
                    f"a pass-through modulator, {tier}, {kind}",
                    placement,
                    samples[tier],
                    "no modulator",
                    samples["without"],
                )
                for tier in TIERS
            ]
    return rows


def _filtering(plan: Plan, field: EagerField) -> list[Row]:
    events = 20_000 if plan.short else 100_000
    rows = []
    for kind in ("100 bytes", "small dict"):
        names = {"without": None, "inline": "inline", "isolated": "isolated"}
        for variant, tier in names.items():
            modulator = OneInTen() if kind == "small dict" else OneInTenBytes()
            field.connect_eagerly(f"filter-{kind}-{variant}", modulator if tier else None, tier, 4)
        field.place_all("two")
        cpu = {each: Samples("s", higher_is_better=False) for each in names}
        whole = {each: Samples("s", higher_is_better=False) for each in names}
        for _ in range(plan.rounds):
            for variant in names:
                name = f"filter-{kind}-{variant}"
                pids = field.all_pids()
                before, all_before = cpu_seconds([field.producer_pid]), cpu_seconds(pids)
                answer(field.producer.publish.remote(kind, events, [name]))
                cpu[variant].values.append((cpu_seconds([field.producer_pid]) - before) / events)
                whole[variant].values.append((cpu_seconds(pids) - all_before) / events)
        rows += [
            Row(
                f"producer's CPU per {kind} event, inline filter that rejects 90 %, 4 consumers",
                "two",
                cpu["inline"],
                "no filter",
                cpu["without"],
            ),
            Row(
                f"CPU of the whole path per {kind} event, isolated filter that rejects 90 %, 4 consumers",
                "two",
                whole["isolated"],
                "no filter",
                whole["without"],
            ),
        ]
    return rows


def _sharing(plan: Plan, field: EagerField) -> list[Row]:
    events = 20_000 if plan.short else 100_000
    rows = []
    for tier in TIERS:
        for count in (1, CONSUMERS):
            field.connect_eagerly(f"share-{tier}-{count}", ec.FIFOModulator(), tier, count)
        field.place_all("two")
        cpu = {count: Samples("s", higher_is_better=False) for count in (1, CONSUMERS)}
        for _ in range(plan.rounds):
            for count, samples in cpu.items():
                name = f"share-{tier}-{count}"
                before = cpu_seconds([field.producer_pid])
                field.rate("100 bytes", [name], events)
                samples.values.append((cpu_seconds([field.producer_pid]) - before) / events)
        what = f"producer's CPU per event, {CONSUMERS} consumers with equal {tier} modulators"
        rows.append(Row(what, "two", cpu[CONSUMERS], "1 consumer", cpu[1]))
    return rows


def _stuck(plan: Plan, field: EagerField) -> list[Row]:
    count = 200 if plan.short else 500
    rows = []
    for tier in TIERS:
        name = f"stuck-{tier}"
        field.connect_eagerly(name, None, None)
        calm = Samples("s", higher_is_better=False)
        during = Samples("s", higher_is_better=False)
        after = Samples("s", higher_is_better=False)
        field.place_all("two")
        for _ in range(plan.rounds):
            calm.values.append(_p99(answer(field.producer.latencies.remote(name, count, 0.001))))
            victim = field.consumers[1]
            answer(victim.subscribe_eagerly.remote(name, Stuck(), tier))
            answer(field.producer.publish_one.remote(name, b"stuck"))
            during.values.append(_p99(answer(field.producer.latencies.remote(name, count, 0.001))))
            after.values.append(_p99(answer(field.producer.latencies.remote(name, count, 0.001))))
            answer(victim.close_one.remote(name))
        rows += [
            Row(f"p99 of deliver while a modulator is stuck, {tier}", "two", during, "before", calm),
            Row(f"p99 of deliver after it was removed, {tier}", "two", after, "before", calm),
        ]
    return rows


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98]
