"""A Ray of our own on the loopback for the benchmarks: one node, or several in one machine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

GONE_SECONDS = 30.0
_several: list[Cluster] = []  # the one that runs, if it has several nodes: a process has one Ray at a time


@contextmanager
def running_ray(nodes: int) -> Iterator[None]:
    """Start Ray, connect this process as driver, and end what was started."""
    os.environ.pop("RAY_ADDRESS", None)
    # A folder of its own: another Ray of this machine neither finds this one nor is found by it.
    with tempfile.TemporaryDirectory(prefix="ecb-", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        yield from _one_node() if nodes == 1 else _several_nodes(nodes)


def _one_node() -> Iterator[None]:
    try:
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1"
        )
        yield
    finally:
        ray.shutdown()


def _several_nodes(nodes: int) -> Iterator[None]:
    cluster = Cluster()
    _several.append(cluster)
    try:
        for number in range(nodes):
            add_node(**({"include_dashboard": False} if number == 0 else {}))
        ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.1")
        yield
    finally:
        _several.clear()
        ray.shutdown()
        cluster.shutdown()


def add_node(**options: Any) -> Any:
    """One more node for the Ray of several nodes that runs; it has a `node_id`."""
    (cluster,) = _several
    return cluster.add_node(num_cpus=2, node_ip_address="127.0.0.1", **options)


def kill_node(node: Any) -> None:
    """`kill -9` to all that such a node runs, as when its machine dies: its raylet first, which would start more."""
    (cluster,) = _several
    processes = _processes_of(node)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    for process in {*processes, *_processes_of(node)}:
        kill(process.pid)
    cluster.worker_nodes.discard(node)
    node.kill_all_processes(check_alive=False, allow_graceful=False)


def kill(pid: int) -> None:
    """`kill -9`; when this returns, the process does nothing any more and its sockets are closed."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.kill()
        end = time.monotonic() + GONE_SECONDS
        while process.status() != psutil.STATUS_ZOMBIE:  # until its parent has looked
            if time.monotonic() > end:
                raise TimeoutError(f"killed, and still there after {GONE_SECONDS:.0f} s: {process}")
            time.sleep(0.0005)


def _processes_of(node: Any) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for started in node.all_processes.values():
        for each in started:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(each.process.pid)
                found += [process, *process.children(recursive=True)]
    return found


def node_ids() -> list[str]:
    """The ids of the live nodes, the driver's first."""
    here = ray.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    return [here, *others]
