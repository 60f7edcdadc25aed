"""How soon is service back after `kill -9` of a part, and how soon is a consumer or a node missed that has died?

Beside what the guarantees promise: 5 s for service, 2 s for a consumer, 5 s for a node. A part is killed and asked for
all that it could hold up: events from one node to another, `subscribe`, a new channel, and what `status` says. A
consumer that handles nothing is killed, alone or with its node, while a delivery waits for it and `publish` is held up
by its window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from echannel_ray.benchmarks.harness.cluster import add_node, kill, kill_node, node_ids
from echannel_ray.benchmarks.harness.field import SHUTDOWN_SECONDS, answer, start
from echannel_ray.benchmarks.harness.outages import Client, Sink, Source
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples

NAMESPACE, KNOWN, FULL, DELIVERED = "bench-recovery", "moments", "full", "delivered"
TIMES, SHORT_TIMES = 20, 3
PARTS = ("a concentrator", "a manager", "the name server")
GOALS = (
    at_most(5, "service is back after `kill -9` of a part", f"kill -9 of ({'|'.join(PARTS)}): .*, worst"),
    at_most(2, "a consumer that dies is let go of", "kill -9 of a consumer .*, worst"),
    at_most(5, "a node that dies is given up", "kill -9 of a node: .*, worst"),
)
SERVICES = ("events flow", "subscribe returns", "a new channel is open", "all parts answer")
RELEASES = ("publish goes on", "deliver fails")


def run(plan: Plan) -> list[Row]:
    """Each kind of death in turn, so often."""
    times = SHORT_TIMES if plan.short else TIMES
    with _staged() as stage:
        rows = _of_parts(stage, times)
        for where, node in (("on the producer's node", stage.here), ("on another node", stage.there)):
            rows += _of_consumers(stage, times, where, node)
        rows += _of_nodes(stage, times)
    return rows


@dataclass
class _Stage:
    """A source here and a sink there, neither on the head, and who asks for service at each."""

    here: str
    there: str
    source: Any
    sink: Any
    clients: dict[str, Any]

    def parts(self) -> dict[str, int]:
        """The processes of the parts, when all are there and events flow."""
        found: dict[str, int] = answer(self.clients[self.here].parts.remote(KNOWN))
        answer(self.sink.flows_at.remote(time.monotonic()))
        return found


@contextmanager
def _staged() -> Iterator[_Stage]:
    _, here, there = node_ids()[:3]
    source, sink = start(Source, NAMESPACE, node=here), start(Sink, NAMESPACE, node=there)
    clients = {node: start(Client, NAMESPACE, node=node) for node in (here, there)}
    try:
        answer(sink.take.remote(KNOWN))
        answer(sink.let_pass.remote([FULL, DELIVERED]))
        answer(source.publish_moments.remote(KNOWN))
        yield _Stage(here, there, source, sink, clients)
        answer(source.shutdown.remote(), SHUTDOWN_SECONDS)
    finally:
        for actor in (source, sink, *clients.values()):
            ray.kill(actor)


def _of_parts(stage: _Stage, times: int) -> list[Row]:
    seconds = {(part, service): _seconds() for part in PARTS for service in SERVICES}
    for number in range(times):
        for part in PARTS:
            node = (stage.here, stage.there)[number % 2]
            pids = stage.parts()
            names = {"a concentrator": next(name for name in pids if name in node or node in name)}
            pid = pids[names.get(part, part.partition(" ")[2])]
            killed_at = time.monotonic()
            kill(pid)
            serving = stage.clients[node].serves_at.remote(KNOWN, f"new-{number}-{part}")
            flowing = stage.sink.flows_at.remote(time.monotonic())
            moments = (answer(flowing), *answer(serving))
            for service, moment in zip(SERVICES, moments, strict=True):
                seconds[part, service].values.append(moment - killed_at)
    return [
        row for (part, service), samples in seconds.items() for row in _rows(f"kill -9 of {part}: {service}", samples)
    ]


def _of_consumers(stage: _Stage, times: int, where: str, node: str) -> list[Row]:
    def killed() -> float:
        hanging = _hanging(stage, node)
        pid = int(answer(hanging.pid.remote()))
        answer(stage.source.wait_for_one_that_hangs.remote(FULL, DELIVERED))
        killed_at = time.monotonic()
        kill(pid)
        return killed_at

    return _released(stage, times, f"kill -9 of a consumer {where}", killed)


def _of_nodes(stage: _Stage, times: int) -> list[Row]:
    def killed() -> float:
        node = add_node()
        hanging = _hanging(stage, node.node_id)  # noqa: F841 - Ray ends an actor that nobody refers to
        answer(stage.source.wait_for_one_that_hangs.remote(FULL, DELIVERED))
        killed_at = time.monotonic()
        kill_node(node)
        return killed_at

    return _released(stage, times, "kill -9 of a node", killed)


def _hanging(stage: _Stage, node: str) -> Any:
    stage.parts()  # nothing of the death before is left
    hanging = start(Sink, NAMESPACE, node=node)
    answer(hanging.hang.remote([FULL, DELIVERED]))
    return hanging


def _released(stage: _Stage, times: int, what: str, killed: Callable[[], float]) -> list[Row]:
    seconds = {release: _seconds() for release in RELEASES}
    for _ in range(times):
        killed_at = killed()
        moments = answer(stage.source.moments_of_release.remote())
        for release, moment in zip(RELEASES, moments, strict=True):
            seconds[release].values.append(moment - killed_at)
    return [row for release, each in seconds.items() for row in _rows(f"{what}: {release}", each)]


def _seconds() -> Samples:
    return Samples("s", higher_is_better=False)


def _rows(measure: str, samples: Samples) -> list[Row]:
    """What is promised is promised each time."""
    note = f"of {len(samples.values)}"
    return [
        Row(f"{measure}, median", "free", samples, note=note, statistic="median"),
        Row(f"{measure}, worst", "free", samples, note=note, statistic="worst"),
    ]
