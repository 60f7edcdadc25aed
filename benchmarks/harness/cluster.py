"""A Ray of our own on the loopback for the benchmarks: one node, or two in one machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.cluster_utils import Cluster


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
    try:
        for number in range(nodes):
            head = {"include_dashboard": False} if number == 0 else {}
            cluster.add_node(num_cpus=2, node_ip_address="127.0.0.1", **head)
        ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.1")
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def node_ids() -> list[str]:
    """The ids of the live nodes, the driver's first."""
    here = ray.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    return [here, *others]
