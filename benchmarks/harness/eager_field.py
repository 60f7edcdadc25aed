"""Fields of parties with eager handlers, and what a modulator saves at both ends of a wire between two nodes."""

from __future__ import annotations

from itertools import chain
from typing import Any

from echannel_ray.benchmarks.harness.cluster import node_ids
from echannel_ray.benchmarks.harness.eager import TIERS, EagerParty
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.pinning import place
from echannel_ray.benchmarks.harness.rows import Figure, Row
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.usage import cpu_seconds

IN_CONSUMER = "in the consumer"
WHERE = (IN_CONSUMER, *TIERS)

MEASURES = {
    "bytes": ("bytes between nodes", "bytes between nodes", "bytes"),
    "producing": ("CPU of the producer's node", "CPU time", "s"),
    "consuming": ("CPU of the consumer's node", "CPU time", "s"),
}
Costs = dict[str, Samples]  # of an event that was published, by those names


class EagerField(Field):
    """A field whose parties have eager handlers; each can produce and consume."""

    producer_class = EagerParty
    consumer_class = EagerParty

    def connect_eagerly(self, name: str, modulator: Any, tier: str | None, consumers: int = 1) -> float:
        """Open a channel in the producer and in the first consumers; the seconds that the first `subscribe` took."""
        answer(self.producer.open_admitting.remote(name))
        listeners = self.consumers[:consumers]
        seconds = [answer(each.subscribe_eagerly.remote(name, modulator, tier)) for each in listeners]
        self._listeners[name] = listeners
        return float(seconds[0])

    def all_pids(self) -> list[int]:
        """Of everybody who works on an event."""
        sandboxes = answer([party.sandbox_pids.remote() for party in (self.producer, *self.consumers)])
        return [self.producer_pid, *self.consumer_pids, *self.concentrator_pids, *chain.from_iterable(sandboxes)]

    def place_all(self, placement: str, sources: list[int] | None = None) -> None:
        """As `place`, the sandboxes too: they are among the rest. The producer is the source, or those that are."""
        chosen = sources or [self.producer_pid]
        place(placement, chosen, [pid for pid in self.all_pids() if pid not in chosen])


class TwoNodes(EagerField):
    """A producer and a consumer on two nodes, with a channel for each of `WHERE`: there the filter is."""

    def __init__(self, plan: Plan, namespace: str) -> None:
        here, there = node_ids()[:2]
        super().__init__(plan, namespace, nodes=(there, here))
        self.consumer = self.consumers[0]
        self._plan = plan
        self._concentrators = [answer(party.concentrator.remote()) for party in (self.producer, self.consumer)]

    def costs(self, prefix: str, events: int) -> dict[str, Costs]:
        """Publish what the producer has prepared, with each of the channels in turn."""
        for where in WHERE:  # modulators that remember what they sent have something to remember then
            self._publish(f"{prefix}{where}", events)
        costs = {where: {key: Samples(unit, False) for key, (*_, unit) in MEASURES.items()} for where in WHERE}
        order, generator = [*WHERE], self._plan.random()
        for _ in range(self._plan.rounds):
            generator.shuffle(order)
            for where in order:
                for key, each in self._publish(f"{prefix}{where}", events).items():
                    costs[where][key].values.append(each)
        return costs

    def _publish(self, name: str, events: int) -> dict[str, float]:
        producers = [self.producer_pid, self._concentrators[0], *answer(self.producer.sandbox_pids.remote())]
        consumers = [self.consumer_pids[0], self._concentrators[1]]
        crossed = self._crossed()
        before = cpu_seconds(producers), cpu_seconds(consumers)
        answer(self.producer.publish_prepared.remote(name))
        answer(self.consumer.drain_one.remote(name))
        after = cpu_seconds(producers), cpu_seconds(consumers)
        used = self._crossed() - crossed, after[0] - before[0], after[1] - before[1]
        return {key: each / events for key, each in zip(MEASURES, used, strict=True)}

    def _crossed(self) -> int:
        return int(answer(self.producer.all_bytes_between_nodes.remote()))


def figures(name: str, title: str, x_label: str) -> tuple[Figure, ...]:
    """The plots of `rows`."""
    return tuple(
        Figure(f"{name}_{key}", f"{title}: {measure}", x_label, f"{y} per event", paper="JECho, section 5")
        for key, (measure, y, _) in MEASURES.items()
    )


def rows(name: str, what: str, percent: float, costs: dict[str, Costs]) -> list[Row]:
    """What modulators of both tiers take of that which a filter in the consumer takes."""
    return [
        Row(
            f"{measure} per event published, {what}, {tier}",
            "free",
            costs[tier][key],
            f"filtered {IN_CONSUMER}",
            costs[IN_CONSUMER][key],
            figure=f"{name}_{key}",
            x=percent,
            series=tier,
        )
        for key, (measure, *_) in MEASURES.items()
        for tier in TIERS
    ]
