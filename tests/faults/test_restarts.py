"""`kill -9` of the parts of a namespace, again and again, under load."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent import futures
from itertools import chain
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.parties import numbered
from tests.faults.scene import (
    BACK_SECONDS,
    Scene,
    check_all_arrived,
    kill,
    seconds_until_flowing,
    stopped,
)

DELIVERED_BY = 1_000_000


def _parts(scene: Scene, kinds: str) -> list[str]:
    first, second = (node.node_id[:16] for node in scene.cluster.nodes)
    named = {
        "head's concentrator": f"{scene.namespace}:concentrator-{first}",
        "other concentrator": f"{scene.namespace}:concentrator-{second}",
        "manager 0": f"{scene.namespace}:manager-0",
        "manager 1": f"{scene.namespace}:manager-1",
        "name server": f"{scene.namespace}:name-server",
    }
    return [name for kind, name in named.items() if kinds in (kind, "all")]


ROUNDS = [
    "head's concentrator",
    "other concentrator",
    "manager 0",
    "manager 1",
    "name server",
    "all",
    "other concentrator",
    "all",
]


def test_nothing_is_lost_doubled_or_reordered_and_service_is_back(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    consumers = [scene.consumer(node, "events") for node in (first, second)]
    members = [scene.consumer(node, "shared", group="members") for node in (first, second)]
    for consumer in consumers:
        ray.get(consumer.subscribe.remote("delivered"))
    loads = {i: scene.load(node, i, "events", pause_seconds=0.005) for i, node in enumerate((first, second), 1)}
    shared = {3: scene.load(second, 3, "shared", burst=5)}
    channel = ec.channel("events", namespace=scene.namespace)
    seconds_until_flowing(loads, consumers, "events")
    with Delivering(scene) as delivering:
        for round_number, victims in enumerate(ROUNDS):
            pids = scene.pids()
            for name in _parts(scene, victims):
                kill(pids[name])
            began = time.monotonic()
            with futures.ThreadPoolExecutor(2) as outage:
                # Issued while the part is away: they wait for it, and then they work.
                opening = outage.submit(ec.channel, f"new-{round_number}", namespace=scene.namespace)
                subscribing = outage.submit(channel.subscribe)
                flowing = seconds_until_flowing(loads, consumers, "events")
                opening.result(BACK_SECONDS)
                subscription = subscribing.result(BACK_SECONDS)
                opened = time.monotonic() - began
            subscription.get(timeout=BACK_SECONDS)
            subscription.close()
            with capsys.disabled():
                print(f"\n  kill -9 of {victims}: events flow after {flowing:.2f} s, subscribe() returned after "
                      f"{opened:.2f} s", end="")  # fmt: skip
    with capsys.disabled():
        print(
            f"\n  {delivering.count} deliveries meanwhile, of which the longest took {delivering.longest:.2f} s", end=""
        )
    assert check_all_arrived(loads, consumers, "events") > 0
    for consumer in consumers:
        assert ray.get(consumer.faults.remote("delivered")) == []
        assert ray.get(consumer.progress.remote("delivered")) == {DELIVERED_BY: delivering.count}
    # Nobody of the group died, so each event came to one of them, once.
    total = ray.get(shared[3].stop.remote())
    wait_until(lambda: len(_of_all(members, "shared")) >= total)
    assert _of_all(members, "shared") == list(range(1, total + 1))


def _of_all(members: list[Any], channel: str) -> list[int]:
    """The numbers that any of them got, sorted."""
    return sorted(chain(*ray.get([member.numbers.remote(channel) for member in members])))


class Delivering:
    """Delivers one event after the other, each of which both consumers have to handle, whatever happens meanwhile."""

    def __init__(self, scene: Scene) -> None:
        self._producer = ec.channel("delivered", namespace=scene.namespace).producer()
        self._stopping = threading.Event()
        self._pool = futures.ThreadPoolExecutor(1)
        self.count = 0
        self.longest = 0.0

    def __enter__(self) -> Delivering:
        self._running = self._pool.submit(self._run)
        return self

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            began = time.monotonic()
            receipt = self._producer.deliver(numbered(DELIVERED_BY, self.count + 1)).result(timeout=BACK_SECONDS)
            self.count += 1
            assert receipt.consumers == 2
            self.longest = max(self.longest, time.monotonic() - began)

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._running.result(BACK_SECONDS)
        self._pool.shutdown()
        self._producer.close()


def test_time_limits_hold_while_a_part_is_away(scene: Scene):
    """A thread that waits for something must not be the one that waits for the concentrator."""
    first, second = scene.cluster.nodes
    consumer = scene.consumer(second, "waited")
    channel = ec.channel("waited", namespace=scene.namespace)
    producer = channel.producer()
    subscription = ec.channel("quiet", namespace=scene.namespace).subscribe()
    assert producer.deliver(numbered(1, 1)).result(timeout=BACK_SECONDS).consumers == 1
    longest = 0.0
    for number, node in enumerate((first, second), 2):
        killed = scene.concentrator(node)
        kill(killed.pid)
        delivery = producer.deliver(numbered(1, number))
        back = futures.ThreadPoolExecutor(1).submit(scene.concentrator, node)
        while not back.done():
            for wait in (subscription.get, delivery.result):
                began = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    wait(timeout=0.05)
                longest = max(longest, time.monotonic() - began)
        assert (back.result().pid != killed.pid, back.result().restarts) == (True, killed.restarts + 1)
        assert delivery.result(timeout=BACK_SECONDS).consumers == 1
    assert ray.get(consumer.faults.remote("waited")) == []
    assert longest < 0.5
    subscription.close()


def test_a_subscription_that_was_given_up_during_an_outage_holds_up_nobody(scene: Scene):
    """Its producer has not confirmed it when its concentrator dies, and its time is over before that is back."""
    first, second = scene.cluster.nodes
    consumers = [scene.consumer(first, "given-up")]
    loads = {1: scene.load(second, 1, "given-up", size_bytes=1000, burst=100)}
    channel = ec.channel("given-up", namespace=scene.namespace)
    seconds_until_flowing(loads, consumers, "given-up")
    with stopped(ray.get(loads[1].pid.remote())), futures.ThreadPoolExecutor(1) as pool:
        subscribing = pool.submit(channel.subscribe, timeout=0.6)
        with pytest.raises(futures.TimeoutError):
            subscribing.result(0.3)  # by then the manager waits for the producer
        kill(scene.concentrator(first).pid)
        with pytest.raises(TimeoutError):
            subscribing.result(BACK_SECONDS)
    wait_until(lambda: channel.stats().consumers == 1)
    wait_until(lambda: ray.get(loads[1].holdings.remote())["recipients"] == 1)
    seconds_until_flowing(loads, consumers, "given-up")
    check_all_arrived(loads, consumers, "given-up")
