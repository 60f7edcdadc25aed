"""What does an event cost when producer and consumer are in one process? Against a queue between two threads."""

from __future__ import annotations

import queue
import threading
import time

import ray

from echannel_ray.benchmarks.harness.field import SHUTDOWN_SECONDS, answer, start
from echannel_ray.benchmarks.harness.parties import Consumer, Producer
from echannel_ray.benchmarks.harness.pinning import CORES, pin
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, interleave
from echannel_ray.consumers.bare_methods import bare

OURS = "publish and handle in one process"
GOALS = (at_most(2e-6, "producer and consumer in one process, at full rate", OURS),)


class Loopback(Consumer):
    """Publishes to itself."""

    def __init__(self, namespace: str, seed: int) -> None:
        super().__init__(namespace)
        self._producer = Producer(namespace, seed)

    def open(self) -> None:
        """Both ends of one channel."""
        self._producer.open(["events"])
        self.subscribe(["events"])

    def publish_seconds(self, events: int) -> float:
        """Seconds an event by a channel, until the handler had the last one."""
        self.expect(events)
        began = self._producer.publish("small dict", events, ["events"])
        return (self.ended() - began) / events

    def deliver_seconds(self, events: int) -> float:
        """Seconds of an event that is delivered."""
        return self._producer.deliver_seconds("events", b"." * 100, events)

    def queue_seconds(self, events: int) -> float:
        """Seconds an event by a `SimpleQueue` and a thread that calls the handler."""
        self.expect(events)
        handover: queue.SimpleQueue[object] = queue.SimpleQueue()
        handle = bare(self.handle)  # as a channel calls it

        def consume() -> None:
            for _ in range(events):
                handle(handover.get())

        thread = threading.Thread(target=consume)
        thread.start()
        began = time.monotonic()
        for number in range(events):
            handover.put(number)
        thread.join()
        return (self.ended() - began) / events


def run(plan: Plan) -> list[Row]:
    """One process, its threads on one core and then on any."""
    events = 20_000 if plan.short else 100_000
    rows = []
    party = start(Loopback, "bench-same-process", plan.seed)
    try:
        answer(party.open.remote())
        pid = answer(party.pid.remote())
        for placement, cores in (("one", CORES[-1:]), ("free", CORES)):
            pin(pid, cores)
            samples = interleave(
                plan,
                {
                    "ours": lambda: float(answer(party.publish_seconds.remote(events))),
                    "deliver": lambda: float(answer(party.deliver_seconds.remote(events // 10))),
                    "queue.SimpleQueue": lambda: float(answer(party.queue_seconds.remote(events))),
                },
                "s",
                higher_is_better=False,
            )
            ours, plain = samples["ours"], samples["queue.SimpleQueue"]
            rows.append(Row(OURS, placement, ours))
            rows.append(Row(OURS, placement, ours, "queue.SimpleQueue", plain))
            rows.append(Row("deliver in one process, 100 bytes", placement, samples["deliver"]))
        answer(party.shutdown.remote(), SHUTDOWN_SECONDS)
    finally:
        ray.kill(party)
    return rows
