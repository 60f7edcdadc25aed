"""What do eager handlers cost, and what do they save?

Installing and replacing them; events through one that passes everything on; a filter that rejects nine of ten; eight
consumers that share one; and what others notice of one that is stuck.
"""

from __future__ import annotations

from functools import partial
from statistics import median, quantiles
from typing import Any

import echannel_ray as ec
from benchmarks.harness.eager import TIERS, EagerConsumer, EagerProducer, Hundred, OneInTen, OneInTenBytes, Stuck
from benchmarks.harness.field import Field, answer
from benchmarks.harness.pinning import PLACEMENTS, place
from benchmarks.harness.rows import Row, at_least, at_most
from benchmarks.harness.samples import Plan, Samples, interleave, sized
from benchmarks.harness.usage import cpu_seconds

CONSUMERS = 8


class EagerField(Field):
    """A field of parties with eager handlers."""

    producer_class = EagerProducer
    consumer_class = EagerConsumer

    def connect_eagerly(self, name: str, modulator: Any, tier: str | None, consumers: int = 1) -> float:
        """Open a channel in the producer and in the first consumers; the seconds that the first `subscribe` took."""
        answer(self.producer.open_admitting.remote(name))
        listeners = self.consumers[:consumers]
        seconds = [answer(each.subscribe_eagerly.remote(name, modulator, tier)) for each in listeners]
        self._listeners[name] = listeners
        return float(seconds[0])

    def all_pids(self) -> list[int]:
        """Of everybody who works on an event."""
        sandboxes = answer(self.producer.sandbox_pids.remote())
        return [self.producer_pid, *self.consumer_pids, *self.concentrator_pids, *sandboxes]

    def place_all(self, placement: str) -> None:
        """As `place`, the sandboxes too: they are among the rest."""
        place(placement, [self.producer_pid], [pid for pid in self.all_pids() if pid != self.producer_pid])


def run(plan: Plan) -> list[Row]:
    """All of it."""
    with EagerField(plan, "bench-modulators", consumers=CONSUMERS) as field:
        rows = [*_installing(plan, field)]
        rows += _steering(plan, field)
        rows += _passing_through(plan, field)
        rows += _filtering(plan, field)
        rows += _sharing(plan, field)
        rows += _stuck(plan, field)
    return rows


def _installing(plan: Plan, field: EagerField) -> list[Row]:
    count = 5 if plan.short else 10
    rows = []
    calls = Samples("s", higher_is_better=False)
    field.connect_eagerly("calm", None, None)
    calls.values = [field.deliver_seconds("calm", b"event", 200) for _ in range(plan.rounds)]
    for tier in TIERS:
        field.connect_eagerly(f"warm-{tier}", Hundred(-1), tier)
        installs, resets = Samples("s", higher_is_better=False), Samples("s", higher_is_better=False)
        for turn in range(plan.rounds):
            names = [f"install-{tier}-{turn}-{number}" for number in range(count)]
            took = [field.connect_eagerly(name, Hundred(number), tier) for number, name in enumerate(names)]
            installs.values.append(median(took))
            numbers = [*range(1000, 1000 + count)]
            resets.values.append(median(answer(field.consumers[0].reset_seconds.remote(names[0], numbers, tier))))
            for name in names:
                answer(field.consumers[0].close_one.remote(name))
                answer(field.producer.close_one.remote(name))
        what = f"a modulator with 100 integers, {tier}"
        rows += [
            Row(f"installing {what}, median", "free", installs, "a deliver round trip", calls),
            Row(f"installing {what}, median", "free", installs, goal=at_most(0.010)),
            Row(f"replacing {what} by reset, median", "free", resets, goal=at_most(0.005)),
        ]
    return rows


def _steering(plan: Plan, field: EagerField) -> list[Row]:
    trips = 200 if plan.short else 1000
    rows = []
    field.connect_eagerly("steer-calm", None, None)
    for tier in TIERS:
        name = f"steer-{tier}"
        answer(field.producer.open_admitting.remote(name))
        answer(field.consumers[0].steer.remote(name, tier))
        for placement in PLACEMENTS:
            field.place_all(placement)
            samples = interleave(
                plan,
                {
                    "publish": lambda: float(answer(field.consumers[0].publish_shared_seconds.remote(trips))),
                    "deliver": partial(field.deliver_seconds, "steer-calm", b"." * 100, trips),
                },
                "s",
                higher_is_better=False,
            )
            rows.append(
                Row(
                    f"publish a shared object, prompt, one copy in an {tier} modulator",
                    placement,
                    samples["publish"],
                    "deliver",
                    samples["deliver"],
                    at_most(2),
                )
            )
        answer(field.consumers[0].close_one.remote(name))
        answer(field.producer.close_one.remote(name))
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
            goals = {"inline": at_least(0.6), "isolated": at_least(0.4)}
            rows += [
                Row(
                    f"a pass-through modulator, {tier}, {kind}",
                    placement,
                    samples[tier],
                    "no modulator",
                    samples["without"],
                    goals[tier] if kind == "100 bytes" else None,
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
                at_most(1),
            ),
            Row(
                f"CPU of the whole path per {kind} event, isolated filter that rejects 90 %, 4 consumers",
                "two",
                whole["isolated"],
                "no filter",
                whole["without"],
                at_most(1),
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
        rows.append(Row(what, "two", cpu[CONSUMERS], "1 consumer", cpu[1], at_most(1.1)))
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
            Row(f"p99 of deliver while a modulator is stuck, {tier}", "two", during, "before", calm, at_most(2)),
            Row(f"p99 of deliver after it was removed, {tier}", "two", after, "before", calm, at_most(1.25)),
        ]
    return rows


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98]
