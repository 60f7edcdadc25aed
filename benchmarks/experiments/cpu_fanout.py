"""What do eight consumers on another node cost the producer's process, and the link, compared with one?

The eight share a core, so that the producer waits most of the time: beside them is one consumer that takes as long.
"""

from __future__ import annotations

import time
from typing import Any

import echannel_ray as ec
from echannel_ray.benchmarks.harness.cluster import node_ids
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.parties import Consumer
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.usage import cpu_seconds
from echannel_ray.consumers.bare_methods import bare

CONSUMERS = {"one": 1, "eight": 8, "slow": 1}
SLOW_NS = 1000
GOALS = (
    at_most(1.1, "producer's CPU with 8 consumers, against one", "producer's CPU per event, .*", "1 consumer"),
    at_most(1.1, "bytes between nodes with 8 consumers, against one", "bytes between nodes .*", "1 consumer"),
)


class Listener(Consumer):
    """Counts, on one of the channels as slowly as eight that share a core."""

    def subscribe(self, names: list[str]) -> None:
        """Count the events of these channels from now on."""
        if names != ["slow"]:
            super().subscribe(names)
            return
        count, clock = bare(self.handle), time.perf_counter_ns

        def handle(event: Any) -> None:
            until = clock() + SLOW_NS
            while clock() < until:
                pass
            count(event)

        ec.channel("slow").subscribe(handle)


class Hall(Field):
    """Its consumers are such listeners."""

    consumer_class = Listener


def run(plan: Plan) -> list[Row]:
    """Three channels, one with all consumers and two with the first, in turns. The producer has a core of its own."""
    events = 20_000 if plan.short else 100_000
    here, there = node_ids()[:2]
    costs = {name: Samples("s", higher_is_better=False) for name in CONSUMERS}
    crossed = {name: Samples("bytes", higher_is_better=False) for name in CONSUMERS}
    with Hall(plan, "bench-cpu-fanout", consumers=max(CONSUMERS.values()), nodes=(here, there)) as field:
        for name, consumers in CONSUMERS.items():
            field.connect([name], consumers)
        field.place("two")
        for name in CONSUMERS:
            field.rate("100 bytes", [name], events // 4)
        for _ in range(plan.rounds):
            for name in CONSUMERS:
                bytes_before = answer(field.producer.bytes_between_nodes.remote(name))
                cpu_before = cpu_seconds([field.producer_pid])
                field.rate("100 bytes", [name], events)
                costs[name].values.append((cpu_seconds([field.producer_pid]) - cpu_before) / events)
                bytes_after = answer(field.producer.bytes_between_nodes.remote(name))
                crossed[name].values.append((bytes_after - bytes_before) / events)
    return [
        Row("producer's CPU per event, 8 consumers", "two", costs["eight"], "1 consumer", costs["one"]),
        Row(
            "producer's CPU per event, 8 consumers",
            "two",
            costs["eight"],
            "1 consumer that takes as long",
            costs["slow"],
        ),
        Row(
            "bytes between nodes per event of 100 B, 8 consumers",
            "two",
            crossed["eight"],
            "1 consumer",
            crossed["one"],
        ),
    ]
