"""Nodes are asked by a task each, in bounded time. What they run is shipped, as they may have another version of us."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from echannel_ray.actors.startup import ray_nodes
from echannel_ray.doctor.findings import Finding, problem
from echannel_ray.doctor.machine_facts import Facts

_LOOK_SECONDS = 45.0  # starting a worker on a busy machine takes its time
_CLOCK_SECONDS = 5.0
_AT_ONCE = 16
_ROUNDS = 3


def living_nodes() -> list[str]:
    """The ids of the nodes that are there, as Ray sees it."""
    return [str(node["NodeID"]) for node in ray_nodes() if node["Alive"]]


def ask_nodes(node_ids: list[str]) -> tuple[list[Facts], list[Finding]]:
    """What the nodes are like; and what is wrong with those that do not say it."""
    look = ray.remote(_shipped_look())
    asked: dict[Any, str] = {_on(look, node).remote(node[:16]): node for node in node_ids}
    ready, waiting = ray.wait([*asked], num_returns=len(asked), timeout=_LOOK_SECONDS) if asked else ([], [])
    facts, failed = [], []
    for each in ready:
        try:
            facts.append(Facts.model_validate(ray.get(each)))
        except Exception as error:  # whatever keeps a worker from running it
            failed.append(_of(asked[each], f"a task failed: {str(error).strip().splitlines()[-1]}"))
    for each in waiting:
        ray.cancel(each)
        failed.append(_of(asked[each], f"a task was not answered within {_LOOK_SECONDS:g} s"))
    order = {node[:16]: number for number, node in enumerate(node_ids)}
    return sorted(facts, key=lambda each: order[each.node]), failed


def ask_clocks(node_ids: list[str]) -> Iterator[tuple[str, tuple[float, float]]]:
    """How much each node's clock is ahead of ours, at least and at most; those that don't answer are left out."""
    clock = ray.remote(_shipped_clock())

    def ask(node: str) -> tuple[float, float] | None:
        least, most = float("-inf"), float("inf")
        for _ in range(_ROUNDS):  # the first may wait for a worker, and says less
            before = time.time()
            try:
                there = ray.get(_on(clock, node).remote(), timeout=_CLOCK_SECONDS)
            except Exception:  # those that don't answer are named already
                return None
            least, most = max(least, there - time.time()), min(most, there - before)
        return least, most

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for node, limits in zip(node_ids, pool.map(ask, node_ids), strict=True):
            if limits is not None:
                yield node[:8], limits


def _on(task: Any, node: str) -> Any:
    # It takes none of the node's CPUs: one that is all taken answers too.
    return task.options(num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))


def _of(node: str, says: str) -> Finding:
    advice = "look at `ray status` and the raylet's log on that node"
    return problem("nodes", says, advice, [node[:8]])


def _shipped_look() -> Callable[[str], dict[str, Any]]:
    def look(node: str) -> dict[str, Any]:
        # Made inside a function it travels by value.
        import platform
        import socket

        try:
            from echannel_ray.doctor import machine_facts
        except ImportError as error:
            return {
                "node": node,
                "host": socket.gethostname(),
                "python": platform.python_version(),
                "import_error": str(error),
            }
        return machine_facts.look(node).model_dump()

    return look


def _shipped_clock() -> Callable[[], float]:
    def clock() -> float:
        import time

        return time.time()

    return clock
