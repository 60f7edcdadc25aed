"""Endpoints that join and leave at random, and what they must not leave behind."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
from ray._private.node import Node

import echannel_ray as ec
from echannel_ray.ids import node_number
from echannel_ray.transport.unix import SocketDirectory
from tests.clusters import on
from tests.faults.parties import Process
from tests.faults.scene import Scene, kill, wait_for

CHANNELS = 5


class Visitor(Process):
    """Joins, takes part in some channels, and leaves, until it is told to stop (or killed)."""

    def __init__(self, namespace: str, seed: int) -> None:
        self._namespace = namespace
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.visits = 0
        self._error: BaseException | None = None
        self._first_usage: tuple[int, int] | None = None

    def begin(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._visit()
                self.visits += 1
        except BaseException as error:
            self._error = error

    def _visit(self) -> None:
        choose = self._random
        with ec.connect(self._namespace):
            channels = [ec.channel(f"visited-{choose.randrange(CHANNELS)}") for _ in range(2)]
            subscriptions = [each.subscribe(lambda event: None) for each in channels[: choose.randrange(3)]]
            producers = [each.producer(overflow="drop_oldest") for each in channels[: choose.randrange(3)]]
            for producer in producers:
                producer.publish_many([b"." * choose.randrange(500)] * choose.randrange(50))
            if choose.random() < 0.2:
                self._stopping.wait(choose.random() / 5)
            opened = [*subscriptions, *producers]
            for each in choose.sample(opened, choose.randrange(len(opened) + 1)):
                each.close()

    def count(self) -> int:
        """How often it was there so far."""
        return self.visits

    def finish(self) -> int:
        """How often it was there."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(30)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"a visit does not end, after {self.visits}")
        return self.visits

    def usage(self) -> tuple[int, int]:
        """Threads and descriptors of this process."""
        process = psutil.Process()
        return process.num_threads(), process.num_fds()

    def own_threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("echannel")]


class Usage(NamedTuple):
    """What the parts of a namespace hold."""

    threads: dict[str, int]
    descriptors: dict[str, int]
    memory_bytes: dict[str, int]
    files: int


def usage(scene: Scene) -> Usage:
    """Measured at all parts and in the nodes' socket directories."""
    processes = {name: psutil.Process(pid) for name, pid in scene.pids().items()}
    files = 0
    for node in scene.cluster.nodes:
        files += len([*Path(SocketDirectory(scene.namespace, node_number(node.node_id))).iterdir()])
    return Usage(
        {name: process.num_threads() for name, process in processes.items()},
        {name: process.num_fds() for name, process in processes.items()},
        {name: process.memory_info().rss for name, process in processes.items()},
        files,
    )


def visit(scene: Scene, processes: int, seconds: float, seed: int, least_visits: int = 0) -> tuple[int, int]:
    """Have so many processes visit for so long, some killed and replaced: how many visits, and how many were killed.

    It goes on for longer where that is not enough for `least_visits`.
    """
    choose = random.Random(seed)
    visitors = [_visitor(scene, choose) for _ in range(processes)]
    ray.get([visitor.begin.remote() for visitor in visitors], timeout=120)
    killed = counted = 0
    began = time.monotonic()
    pause = threading.Event()
    while time.monotonic() - began < seconds or counted + _visits(visitors) < least_visits:
        pause.wait(min(seconds / 6, 5.0))
        victim = visitors.pop(choose.randrange(len(visitors)))
        counted += _visits([victim])
        kill(ray.get(victim.pid.remote()))
        killed += 1
        visitors.append(_visitor(scene, choose))
        visitors[-1].begin.remote()
    counted += sum(ray.get([visitor.finish.remote() for visitor in visitors], timeout=120))
    for visitor in visitors:
        wait_for([], visitor.own_threads)
    return counted, killed


def _visits(visitors: list[Any]) -> int:
    return sum(ray.get([visitor.count.remote() for visitor in visitors], timeout=120))


def _visitor(scene: Scene, choose: random.Random) -> Any:
    node: Node = choose.choice(scene.cluster.nodes)
    remote: Any = ray.remote(Visitor)
    return scene.keep(
        remote.options(**on(node), num_cpus=0, max_concurrency=4).remote(scene.namespace, choose.randrange(1 << 30))
    )
