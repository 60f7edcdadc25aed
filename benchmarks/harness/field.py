"""One producer and some consumers of echannel_ray in actors, in a namespace of their own, driven from outside."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from echannel_ray.benchmarks.harness.parties import Consumer, Producer
from echannel_ray.benchmarks.harness.pinning import place
from echannel_ray.benchmarks.harness.samples import Plan

if TYPE_CHECKING:
    from typing_extensions import Self

ANSWER_SECONDS = 120.0
SHUTDOWN_SECONDS = 30.0


def answer(ref: Any, seconds: float = ANSWER_SECONDS) -> Any:
    """What an actor answers, or each of several."""
    return ray.get(ref, timeout=seconds)


def start(cls: type, *arguments: Any, node: str | None = None) -> Any:
    """An actor of a plain class, that takes no CPU from Ray's accounts."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False) if node else None
    return ray.remote(cls).options(num_cpus=0, scheduling_strategy=strategy).remote(*arguments)


class Field:
    """`consumers` processes and a producer; `nodes` are the node ids of the producer and of the consumers."""

    producer_class: type = Producer
    consumer_class: type = Consumer

    def __init__(
        self, plan: Plan, namespace: str, consumers: int = 1, nodes: tuple[str | None, str | None] = (None, None)
    ) -> None:
        self.producer = start(self.producer_class, namespace, plan.seed, node=nodes[0])
        self.consumers = [start(self.consumer_class, namespace, node=nodes[1]) for _ in range(consumers)]
        self._listeners: dict[str, list[Any]] = {}
        self.producer_pid = int(answer(self.producer.pid.remote()))
        self.consumer_pids = [int(pid) for pid in answer([consumer.pid.remote() for consumer in self.consumers])]
        self.concentrator_pids = [int(pid) for pid in answer(self.producer.concentrators.remote())]

    def place(self, placement: str) -> None:
        """Pin the producer as the source, the concentrators and consumers as the rest."""
        place(placement, [self.producer_pid], [*self.concentrator_pids, *self.consumer_pids])

    def connect(self, names: list[str], consumers: int | None = None) -> None:
        """Open channels in the producer, and in the first consumers (or in all)."""
        listeners = self.consumers[:consumers]
        answer(self.producer.open.remote(names))
        answer([consumer.subscribe.remote(names) for consumer in listeners])
        self._listeners |= dict.fromkeys(names, listeners)

    def rate(self, kind: str, names: list[str], events: int) -> float:
        """Events a second, from the first `publish` until the slowest consumer's handler had the last one."""
        listeners = self._listeners[names[0]]
        answer([consumer.expect.remote(events) for consumer in listeners])
        began = answer(self.producer.publish.remote(kind, events, names))
        ended = max(answer([consumer.ended.remote() for consumer in listeners]))
        return events / (float(ended) - float(began))

    def rate_of_loans(self, kind: str, name: str, events: int) -> float:
        """As `rate`, with arrays that the producer was loaned, and writes each time."""
        listeners = self._listeners[name]
        answer([consumer.expect.remote(events) for consumer in listeners])
        began = answer(self.producer.publish_loaned.remote(kind, events, name))
        ended = max(answer([consumer.ended.remote() for consumer in listeners]))
        return events / (float(ended) - float(began))

    def publish_seconds(self, kind: str, names: list[str], events: int) -> float:
        """Seconds of an event in such a series."""
        return 1 / self.rate(kind, names, events)

    def connect_reading(self, name: str) -> None:
        """Open a channel in the producer and in the consumers, which read each byte of what comes."""
        answer(self.producer.open.remote([name]))
        answer([consumer.subscribe_reading.remote(name) for consumer in self.consumers])
        self._listeners[name] = self.consumers

    def is_relayed(self, name: str, event: Any, events: int) -> bool:
        """Whether what is delivered on a channel goes by a concentrator, and not straight to the consumer."""
        before = int(answer(self.producer.packs_relayed.remote()))
        self.deliver_seconds(name, event, events)
        return int(answer(self.producer.packs_relayed.remote())) - before >= events

    def deliver_seconds(self, name: str, event: Any, events: int) -> float:
        """Seconds of a synchronous delivery."""
        return float(answer(self.producer.deliver_seconds.remote(name, event, events)))

    def close(self) -> None:
        """Stop the namespace and its parties."""
        try:
            answer(self.producer.shutdown.remote(), SHUTDOWN_SECONDS)
        finally:
            for actor in (self.producer, *self.consumers):
                ray.kill(actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # else the first error says more
                raise
