"""Ray clusters of several nodes on this machine, bound to loopback, and what tests do to them."""

from __future__ import annotations

import contextlib
import inspect
import ipaddress
import random
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import psutil
import ray
from ray._private import services
from ray._private.node import Node
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import echannel_ray as ec
from echannel_ray.ids import RAY_NAMESPACE, node_number
from echannel_ray.retained.log_directory import directory_of

OBJECT_STORE_BYTES = 100 * 1024 * 1024


class LocalCluster:
    """A Ray cluster of some nodes, each with a raylet of its own; this process is its driver, on the first node.

    Its processes also end when this process is killed: Ray asks the kernel for that.
    """

    def __init__(
        self, nodes: int = 1, cpus: int = 4, environments: Sequence[dict[str, str]] = (), metrics: bool = False
    ) -> None:
        """`environments` are variables of the first nodes, one after the other. With `metrics` each node's agent shows
        Prometheus, at its `metrics_export_port`, what was told to it each second, instead of each ten.
        """
        self._cpus = cpus
        self._environments = environments
        self._metrics = metrics
        self._cluster = Cluster()
        self.nodes: list[Node] = []
        try:
            for _ in range(nodes):
                self.add_node()
            self.join()
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """For `ray.init` in another process."""
        return str(self._cluster.address)

    def join(self) -> None:
        """This process is its driver from now on."""
        with _driver_on(self.nodes[0]):
            ray.init(address=self.address, log_to_driver=False)

    def add_node(self) -> Node:
        """One more node, ready for work."""
        options: dict[str, Any] = {"metrics_export_port": free_port()} if self._metrics else {}
        if self._metrics and not self.nodes:  # the others have it from the head
            options["_system_config"] = {"metrics_report_interval_ms": 1000}
        node: Node = self._cluster.add_node(
            num_cpus=self._cpus,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            # No test sees what Ray's autoscaler does, nor what its workers print.
            no_monitor=True,
            include_log_monitor=False,
            env_vars=dict(*self._environments[len(self.nodes) :][:1]),
            **options,
        )
        self.nodes.append(node)
        return node

    def kill_node(self, node: Node) -> None:
        """`kill -9` to the raylet of a node and to all that it started, as when the machine dies.

        Returns when they are gone. Ray itself takes about 15 s more to call the node dead.
        """
        if node.head:
            raise ValueError("the first node has the driver and the GCS: kill another one")
        processes = processes_of(node)
        for process in processes:  # the raylet comes first; stopped, it can't start a worker that we would miss
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        kill([*processes, *processes_of(node)])
        self.nodes.remove(node)
        self._cluster.worker_nodes.discard(node)
        node.kill_all_processes(check_alive=False, allow_graceful=False)

    def processes(self) -> list[psutil.Process]:
        """All processes of all nodes, workers included; not this one."""
        return [process for node in self.nodes for process in processes_of(node)]

    def stop(self) -> None:
        """End it, and every process that it started."""
        processes = self.processes()
        try:
            ray.shutdown()
            self._cluster.shutdown()
        finally:
            kill(processes)
            self.nodes.clear()


@contextlib.contextmanager
def _driver_on(node: Node) -> Iterator[None]:
    """Drivers join this node. Newer versions of Ray take the first one by themselves, older ones any of the machine."""
    if "node_name" in inspect.signature(services.get_node_to_connect_for_driver).parameters:
        yield
        return
    with mock.patch.object(
        services, "get_node_to_connect_for_driver", lambda address, _: services.get_node(address, node.node_id)
    ):
        yield


class LastingCluster:
    """The cluster of two nodes that one module of tests after the other has; it starts when the first asks for it.

    A module gets it without namespaces and without actors of others. It may kill what it made, its own nodes included.
    """

    def __init__(self) -> None:
        self._running: LocalCluster | None = None

    @contextlib.contextmanager
    def joined(self) -> Iterator[LocalCluster]:
        """This process is its driver meanwhile."""
        if self._running is None:
            self._running = LocalCluster(nodes=2, cpus=16)
        else:
            self._running.join()
        try:
            # Ray may take a node for alive that a module before this one has killed.
            wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2, timeout=60)
            yield self._running
            end_namespaces()
        finally:
            ray.shutdown()  # Ray ends the actors that are not detached

    def stop(self) -> None:
        """End it, if it ever began."""
        if self._running is not None:
            self._running.stop()


def end_namespaces() -> None:
    """`shutdown` of all that there are, and no logs on disk for who uses their names again."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    for namespace in {each["name"].partition(":")[0] for each in actors if each["namespace"] == RAY_NAMESPACE}:
        ec.shutdown(namespace)
        for node in ray.nodes():
            shutil.rmtree(directory_of(namespace, node_number(node["NodeID"])), ignore_errors=True)


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on. It is below those that connections are given: one of
    these might have it before its server does.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def on(node: Node) -> dict[str, Any]:
    """Options that place an actor or a task on a node: `Actor.options(**on(node))`."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=False)}


def processes_of(node: Node) -> list[psutil.Process]:
    """What a node runs: its own processes, each followed by its children."""
    found = []
    for info in [info for infos in node.all_processes.values() for info in infos]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(info.process.pid)
            found += [process, *process.children(recursive=True)]
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """`kill -9`, and wait until they are gone. A process that got the id of one of them meanwhile is left alone."""
    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=30)
    if alive:
        raise TimeoutError(f"killed, and still there after 30 s: {alive}")


def open_to_others(processes: Iterable[psutil.Process]) -> list[str]:
    """The listening sockets of these processes that other machines can reach: there should be none."""
    reachable = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            reachable += [
                f"{process.name()} (pid {process.pid}): {connection.laddr}"
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN and not _is_loopback(connection.laddr.ip)
            ]
    return reachable


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def wait_until(predicate: Callable[[], object], timeout: float = 30) -> None:
    """Poll until the predicate holds. Only for states that no call can wait for, as Ray's view of its nodes.

    The longer it has waited, the more seldom it looks: a look often asks several processes.
    """
    began = time.monotonic()
    while not predicate():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"still not so after {timeout} s")
        time.sleep(min(0.02 + waited / 20, 0.1))
