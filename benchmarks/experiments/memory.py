"""How much memory does an idle concentrator hold, above an empty Ray actor and for each idle channel?"""

from __future__ import annotations

import ray

from echannel_ray.benchmarks.baselines.actor_calls import Callee
from echannel_ray.benchmarks.harness.field import Field, answer, start
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.usage import resident_bytes

CHANNELS = 4096
SHORT_CHANNELS = 512
GOALS = (
    at_most(20e6, "an idle concentrator's memory, above an empty actor", "idle concentrator above an empty actor"),
    at_most(4096, "a concentrator's memory for each idle channel", "concentrator: per channel without .*"),
    at_most(
        4096,
        "a concentrator's memory for each producer and consumer of an idle channel",
        "concentrator: per producer and consumer .*",
    ),
)


def run(plan: Plan) -> list[Row]:
    """Resident memory before and after channels are created, and after they have a producer and a consumer each."""
    count = SHORT_CHANNELS if plan.short else CHANNELS
    empty = start(Callee)
    empty_bytes = resident_bytes([answer(empty.pid.remote())])
    rows = []
    with Field(plan, "bench-memory") as field:
        parts = {
            "concentrator": field.concentrator_pids,
            "managers": answer(field.producer.managers.remote()),
            "producer's process": [field.producer_pid],
            "consumer's process": field.consumer_pids,
        }
        before = {part: resident_bytes(pids) for part, pids in parts.items()}
        rows.append(
            Row(
                "idle concentrator above an empty actor",
                "free",
                _one(before["concentrator"] - empty_bytes),
                note=f"{before['concentrator'] / 1e6:.0f} MB, the empty actor {empty_bytes / 1e6:.0f} MB",
            )
        )
        names = [f"idle-{number}" for number in range(count)]
        answer(field.producer.create.remote(names))
        rows += _growth(parts, before, count, "channel without producers and consumers")
        before = {part: resident_bytes(pids) for part, pids in parts.items()}
        field.connect(names)
        rows += _growth(parts, before, count, "producer and consumer of an idle channel")
    ray.kill(empty)
    return rows


def _growth(parts: dict[str, list[int]], before: dict[str, int], count: int, what: str) -> list[Row]:
    rows = []
    for part, pids in parts.items():
        each = _one((resident_bytes(pids) - before[part]) / count)
        rows.append(Row(f"{part}: per {what}", "free", each))
    return rows


def _one(value: float) -> Samples:
    return Samples("bytes", higher_is_better=False, values=[value])
