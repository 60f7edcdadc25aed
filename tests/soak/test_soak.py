"""All faults at random, under load, for minutes: everything arrives once and in order.

SOAK_SECONDS says for how long (600), SOAK_SEED which faults (a random one, which is printed).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.ids import node_number
from tests.clusters import LocalCluster, wait_until
from tests.faults.churn import visit
from tests.faults.intruder import Intruder, senseless
from tests.faults.proxy import put_between
from tests.faults.scene import Scene, check_all_arrived, kill, seconds_until_flowing, stopped

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SEED = int(os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(1 << 31))))
NAMESPACE = "soak"
BACK_SECONDS = 60.0
LONGEST_SILENCE_SECONDS = 10.0


@pytest.fixture
def scene() -> Iterator[Scene]:
    cluster = LocalCluster(nodes=2, cpus=16)
    try:
        ec.connect(namespace=NAMESPACE)
        yield Scene(cluster, NAMESPACE)
        ec.shutdown(NAMESPACE)
    finally:
        cluster.stop()


class Soak:
    """Who takes part from the beginning to the end, and the faults."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.random = random.Random(SEED)
        first, second = scene.cluster.nodes
        # Before anybody publishes: they are to get everything.
        self.consumers = [scene.consumer(node, channel) for channel in ("small", "large") for node in (first, second)]
        self.small = {
            number: scene.load(node, number, "small", pause_seconds=0.005) for number, node in ((1, first), (2, second))
        }
        self.large = {
            number: scene.load(node, number, "large", burst=1, pause_seconds=0.2, size_bytes=700_000)
            for number, node in ((3, first), (4, second))
        }
        self.faults: list[Callable[[random.Random], None]] = [
            self.kill_parts, self.kill_parts, self.kill_parts, self.stop_a_process, self.cut_the_link,
            self.kill_a_consumer, self.kill_a_producer, self.kill_a_node, self.visit, self.intrude,
        ]  # fmt: skip
        self.done: Counter[str] = Counter()
        self.expendable = 100

    def consuming(self) -> list[tuple[Any, str]]:
        return list(zip(self.consumers, ("small", "small", "large", "large"), strict=True))

    def step(self) -> None:
        """One fault, or two at once; then everything has to flow again."""
        chosen = self.random.sample(self.faults, self.random.choice([1, 1, 2]))
        seeds = [random.Random(self.random.randrange(1 << 30)) for _ in chosen]
        # Ray makes nodes in the main thread only.
        chosen.sort(key=lambda fault: fault == self.kill_a_node, reverse=True)
        names = [fault.__name__ for fault in chosen]
        began = time.monotonic()
        with ThreadPoolExecutor(2) as at_once:
            beside = [at_once.submit(fault, seed) for fault, seed in zip(chosen[1:], seeds[1:], strict=True)]
            chosen[0](seeds[0])
            for running in beside:
                running.result(10 * BACK_SECONDS)
        took = time.monotonic() - began
        print(f"  {' and '.join(names)} ({took:.1f} s)", end="", flush=True)
        small, large = self.consumers[:2], self.consumers[2:]
        back = seconds_until_flowing(self.small, small, "small", BACK_SECONDS)
        back += seconds_until_flowing(self.large, large, "large", BACK_SECONDS)
        self.done.update(names)
        print(f": back after {back:.2f} s", flush=True)
        for consumer, channel in self.consuming():
            assert ray.get(consumer.faults.remote(channel)) == []

    # ---- faults ----

    def kill_parts(self, choose: random.Random) -> None:
        pids = [*self.scene.pids().values()]
        for pid in choose.sample(pids, choose.choice([1, 1, 1, 2, len(pids)])):
            kill(pid)

    def stop_a_process(self, choose: random.Random) -> None:
        actors = [*self.small.values(), *self.large.values(), *self.consumers]
        pids = [*ray.get([actor.pid.remote() for actor in actors]), *self.scene.pids().values()]
        pid = choose.choice(pids)
        with contextlib.suppress(ProcessLookupError), stopped(pid):  # another fault may have killed it
            threading.Event().wait(choose.uniform(0.5, LONGEST_SILENCE_SECONDS))

    def cut_the_link(self, choose: random.Random) -> None:
        proxy = put_between(self.scene)
        try:
            proxy.be_silent(True)
            threading.Event().wait(choose.uniform(0.5, LONGEST_SILENCE_SECONDS))
            proxy.be_silent(False)
            if choose.random() < 0.5:
                proxy.refuse()
                threading.Event().wait(choose.uniform(0.5, LONGEST_SILENCE_SECONDS / 2))
                proxy.accept_again()
            # Started again, the one that listens tells its own port.
            kill(self.scene.concentrator(max(self.scene.cluster.nodes[:2], key=_number)).pid)
        finally:
            proxy.close()

    def kill_a_consumer(self, choose: random.Random) -> None:
        node = choose.choice(self.scene.cluster.nodes[:2])
        consumer = self.scene.consumer(node, "small", hold=choose.random() < 0.5)
        threading.Event().wait(choose.uniform(0.1, 2))
        kill(ray.get(consumer.pid.remote()))

    def kill_a_producer(self, choose: random.Random) -> None:
        self.expendable += 1
        node = choose.choice(self.scene.cluster.nodes[:2])
        channel = f"expendable-{self.expendable}"
        consumer = self.scene.consumer(choose.choice(self.scene.cluster.nodes[:2]), channel)
        load = self.scene.load(node, self.expendable, channel)
        threading.Event().wait(choose.uniform(0.1, 2))
        kill(ray.get(load.pid.remote()))
        wait_until(lambda: ray.get(consumer.holdings.remote())["received_streams"] == 0, BACK_SECONDS)
        assert ray.get(consumer.faults.remote(channel)) == []
        ec.channel(channel, namespace=NAMESPACE).delete()

    def kill_a_node(self, choose: random.Random) -> None:
        node = self.scene.cluster.add_node()
        self.scene.consumer(node, "small")
        threading.Event().wait(choose.uniform(0.1, 2))
        self.scene.cluster.kill_node(node)

    def visit(self, choose: random.Random) -> None:
        visit(self.scene, 3, choose.uniform(2, 10), choose.randrange(1 << 30))

    def intrude(self, choose: random.Random) -> None:
        intruder = Intruder(self.scene)
        for _ in range(200):
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError, TimeoutError):  # by another fault
                intruder.send(senseless(choose, intruder)[0])


def _number(node: Any) -> int:
    return node_number(node.node_id)


@pytest.mark.soak
def test_everything_arrives_once_and_in_order(scene: Scene, capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        print(f"\nSOAK_SEED={SEED} for {SECONDS:.0f} s")
        soak = Soak(scene)
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            soak.step()
        events = check_all_arrived(soak.small, soak.consumers[:2], "small")
        events += check_all_arrived(soak.large, soak.consumers[2:], "large")
        print(f"{events} events arrived once and in order, through {dict(soak.done)}")
