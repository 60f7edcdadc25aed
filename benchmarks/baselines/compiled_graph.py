"""A Ray compiled graph of one actor method: actor calls whose messages go through shared memory instead of Ray's RPC.

It takes so many inputs before their results must be fetched, `IN_FLIGHT` (Ray's default). One way, the oldest is
fetched as the next goes in, which keeps that many on their way.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import cycle, islice
from typing import Any

import ray
from ray.dag import InputNode

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls, Caller
from echannel_ray.benchmarks.harness.field import answer, start

IN_FLIGHT = 10


class GraphCaller(Caller):
    """Compiles the graph, feeds it, and measures."""

    def __init__(self, callee: Any) -> None:
        with InputNode() as event:
            node = callee.handle.bind(event)
        self._graph = node.experimental_compile()

    def round_trip_seconds(self, callees: list[Any], event: Any, count: int) -> float:
        """Seconds of an execution and its result."""
        execute, get = self._graph.execute, ray.get
        began = time.perf_counter()
        for _ in range(count):
            get(execute(event))
        return (time.perf_counter() - began) / count

    def one_way_rate(self, callees: list[Any], events: list[Any], count: int) -> float:
        """Executions a second with as many in flight as there may be."""
        execute, get, waiting = self._graph.execute, ray.get, deque[Any]()
        began = time.perf_counter()
        for event in islice(cycle(events), count):
            if len(waiting) == IN_FLIGHT:
                get(waiting.popleft())
            waiting.append(execute(event))
        for result in waiting:
            get(result)
        return count / (time.perf_counter() - began)

    def tear_down(self) -> None:
        """End the graph's loop in the callee."""
        self._graph.teardown()


class CompiledGraph(ActorCalls):
    """A caller and a callee whose method is compiled, which from then on answers the graph alone."""

    def _start_caller(self) -> Any:
        return start(GraphCaller, self._callees[0])

    def close(self) -> None:
        """End the graph and the actors."""
        try:
            answer(self._caller.tear_down.remote())
        finally:
            super().close()
