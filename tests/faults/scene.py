"""Who takes part in a test of faults, and what is done to them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private.node import Node

import echannel_ray as ec
from echannel_ray.actors import startup
from echannel_ray.ids import node_number
from echannel_ray.models import ConcentratorPart, Status
from tests.clusters import LocalCluster, on, wait_until
from tests.faults.parties import ConsumerActor, LoadActor

# A restart takes Ray about a second; the goal for service to be back is 5.
BACK_SECONDS = 15.0

Handle = Any


class Scene:
    """One namespace on the cluster."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._actors: list[Handle] = []

    # ---- who takes part ----

    def consumer(self, node: Node, channel: str, **how: Any) -> Handle:
        actor = self.keep(ConsumerActor.options(**on(node), num_cpus=0, max_concurrency=8).remote(self.namespace))
        ray.get(actor.subscribe.remote(channel, **how))
        return actor

    def load(self, node: Node, number: int, channel: str, **how: Any) -> Handle:
        actor = self.keep(LoadActor.options(**on(node), num_cpus=0, max_concurrency=8).remote(self.namespace, number))
        ray.get(actor.start.remote(channel, **how))
        return actor

    def keep(self, actor: Handle) -> Handle:
        """End it with the test."""
        self._actors.append(actor)
        return actor

    def clear(self) -> None:
        """End all actors of the test."""
        while self._actors:
            ray.kill(self._actors.pop())

    # ---- parts ----

    def status(self) -> Status:
        found: Status = ec.status(self.namespace)
        return found

    def concentrator(self, node: Node) -> ConcentratorPart:
        """As it describes itself; `status()` would wait for all others too."""
        return ConcentratorPart.model_validate(self.describe(node))

    def describe(self, node: Node) -> dict[str, Any]:
        """All that a node's concentrator says of itself."""
        name = startup.concentrator_name(self.namespace, node_number(node.node_id))
        described: dict[str, Any] = startup.call(lambda: startup.find(name), "describe")
        return described

    def pids(self) -> dict[str, int]:
        """Of all parts, by name."""
        status = self.status()
        parts = [status.name_server, *status.managers, *status.concentrators]
        return {part.name: part.pid for part in parts if part.pid}


def kill(pid: int) -> None:
    """`kill -9`, and wait until it is gone (its parent may not have noticed yet)."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # another fault may have been faster
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process does nothing meanwhile, but its links stay."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: all(_state(thread) in "TtZX" for thread in Path(f"/proc/{pid}/task").iterdir()))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile
            os.kill(pid, signal.SIGCONT)


def _state(thread: Path) -> str:
    """What the kernel says that a thread does: T is stopped, t by a debugger, Z and X are dead."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def wait_for(wanted: Any, method: Any, *args: Any) -> None:
    """Ask an actor until it answers this."""
    wait_until(lambda: ray.get(method.remote(*args)) == wanted)


def seconds_until(predicate: Callable[[], object], timeout: float = BACK_SECONDS) -> float:
    """How long it took until it held."""
    began = time.monotonic()
    wait_until(predicate, timeout)
    return time.monotonic() - began


def published(loads: Iterable[Handle]) -> list[int]:
    """How far each producer has come."""
    return ray.get([load.progress.remote() for load in loads], timeout=30)


def seconds_until_flowing(
    loads: dict[int, Handle], consumers: Iterable[Handle], channel: str, timeout: float = BACK_SECONDS
) -> float:
    """Seconds from now until each consumer has something of each producer that was published after now."""
    consumers = list(consumers)
    before = dict(zip(loads, published(loads.values()), strict=True))
    seen: list[dict[int, int]] = []

    def is_flowing() -> bool:
        seen[:] = ray.get([c.progress.remote(channel) for c in consumers], timeout=30)
        return all(progress.get(number, 0) > count for progress in seen for number, count in before.items())

    try:
        return seconds_until(is_flowing, timeout)
    except TimeoutError as error:
        raise TimeoutError(
            f"{error}: published {before}, since then {published(loads.values())}, arrived {seen}"
        ) from None


def check_all_arrived(loads: dict[int, Handle], consumers: Iterable[Handle], channel: str) -> int:
    """Stop the load: every consumer has got everything, once and in order. How many events that were."""
    totals = dict(zip(loads, ray.get([load.stop.remote() for load in loads.values()], timeout=60), strict=True))
    for consumer in consumers:
        wait_for(totals, consumer.progress, channel)
        assert ray.get(consumer.faults.remote(channel)) == []
    return sum(totals.values())
