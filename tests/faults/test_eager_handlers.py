"""Eager handlers when parts of the namespace, sandboxes and producers are killed."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psutil
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.parties import Checker, Process
from tests.faults.scene import BACK_SECONDS, Scene, kill

ROUNDS = ("concentrators", "managers", "concentrators", "name server", "all")


class Tagged(ec.FIFOModulator):
    """Says of each event by which pair it came."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    def enqueue(self, event: Any) -> None:
        self.emit((self.turn, event))


class Untag:
    """The other half."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    def receive(self, event: Any) -> list[Any]:
        turn, original = event
        if turn != self.turn:
            raise AssertionError(f"an event of pair {turn} came to pair {self.turn}")
        return [original]


def victims(scene: Scene, what: str) -> list[int]:
    """The pids of some parts."""
    status = scene.status()
    parts = {
        "concentrators": status.concentrators,
        "managers": status.managers,
        "name server": [status.name_server],
    }
    chosen = [*parts.values()] if what == "all" else [parts[what]]
    return [part.pid for kind in chosen for part in kind]


def has_grown(checker: Checker, before: dict[int, int]) -> bool:
    """Whether something of each producer has come since."""
    return all(checker.last[producer] > number for producer, number in before.items())


def test_resets_lose_nothing_while_parts_are_killed(scene: Scene):
    first, second = scene.cluster.nodes
    channel = ec.channel("events", namespace=scene.namespace)
    checker = Checker()
    errors: list[Any] = []
    subscription = channel.subscribe(checker, modulator=Tagged(0), demodulator=Untag(0), on_error=errors.append)
    loads = {i: scene.load(node, i, "events") for i, node in enumerate((first, second), 1)}
    turn = 0
    for what in ROUNDS:
        wait_until(lambda: len(checker.last) == 2)
        with ThreadPoolExecutor(1) as pool:
            turn += 1
            # Issued while the parts die: it waits for them, and then it works.
            resetting = pool.submit(subscription.reset, Tagged(turn), Untag(turn))
            for pid in victims(scene, what):
                kill(pid)
            resetting.result(BACK_SECONDS * 2)
        wait_until(partial(has_grown, checker, dict(checker.last)), BACK_SECONDS)
    totals = {i: ray.get(load.stop.remote(), timeout=60) for i, load in loads.items()}
    wait_until(lambda: checker.last == totals, BACK_SECONDS)
    assert checker.faults == []
    assert errors == []
    assert subscription.stats().failed == 0
    (derived,) = channel.stats().derived.values()
    assert derived.consumers == 1
    subscription.close()


class Source(Process):
    """Publishes what it is told."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)

    def open(self, channel: str) -> None:
        self._producer = ec.channel(channel).producer()

    def publish(self, events: list[Any]) -> None:
        for event in events:
            self._producer.publish(event)
        self._producer.drain(timeout=30)

    def sandboxes(self) -> list[int]:
        """Those with a modulator at work; the spare one is not among them."""
        return [branch.host.sandbox.pid for branch in self._producer._publisher.sink.branches]

    def below(self) -> list[int]:
        """Zygote and sandboxes, the eldest first."""
        return [child.pid for child in psutil.Process().children(recursive=True)]


def source(scene: Scene, channel: str) -> Any:
    actor = scene.keep(ray.remote(Source).options(num_cpus=0).remote(scene.namespace))
    ray.get(actor.open.remote(channel))
    return actor


def test_a_sandbox_that_is_killed_is_replaced(scene: Scene):
    channel = ec.channel("sandboxes", namespace=scene.namespace)
    actor = source(scene, channel.name)
    events: list[Any] = []
    errors: list[Any] = []
    with channel.subscribe(events.append, modulator=Tagged(1), on_error=errors.append):
        ray.get(actor.publish.remote([1, 2, 3]))
        wait_until(lambda: len(events) == 3)
        for pid in reversed(ray.get(actor.below.remote())):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: errors)
        ray.get(actor.publish.remote([4, 5]))
        wait_until(lambda: len(events) == 5)
        assert events == [(1, number) for number in range(1, 6)]
        assert {type(error) for error in errors} == {ec.ModulatorFailed}


def test_what_a_killed_producer_left_ends_with_it(scene: Scene):
    channel = ec.channel("orphans", namespace=scene.namespace)
    actor = source(scene, channel.name)
    with channel.subscribe(print, modulator=Tagged(1)):
        below = ray.get(actor.below.remote())
        assert len(below) >= 2
        kill(ray.get(actor.pid.remote()))
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in below))


def test_a_consumer_that_dies_takes_its_modulators_with_it(scene: Scene):
    channel = ec.channel("mortal", namespace=scene.namespace)
    actor = source(scene, channel.name)

    class Mortal(Process):
        def subscribe(self, each: ec.EventChannel) -> None:
            self.subscription = each.subscribe(print, modulator=Tagged(1))

    consumer = scene.keep(ray.remote(Mortal).options(num_cpus=0).remote())
    ray.get(consumer.subscribe.remote(channel))
    assert len(channel.stats().derived) == 1
    (sandbox,) = ray.get(actor.sandboxes.remote())
    kill(ray.get(consumer.pid.remote()))
    wait_until(lambda: channel.stats().derived == {})
    wait_until(lambda: not psutil.pid_exists(sandbox))
