"""Segments between processes of a node, when one of them dies: nobody sees what was not published, and all is freed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import ray

import echannel_ray as ec
from tests.clusters import on, wait_until
from tests.faults.parties import Process
from tests.faults.scene import BACK_SECONDS, Scene, check_all_arrived, kill, seconds_until_flowing

LENGTH = 50_000
LARGE: dict[str, Any] = {"burst": 4, "pause_seconds": 0.002, "size_bytes": 400_000}


def numbers_of(events: list[Any]) -> list[int]:
    """Which ones they are; -1 for one that is not whole."""
    return [int(event[0]) if (event == event[0]).all() else -1 for event in events]


class ArrayKeeper(Process):
    """A consumer that keeps the last so many arrays as they came."""

    def __init__(self, namespace: str, most: int) -> None:
        ec.connect(namespace=namespace)
        self._most = most
        self._events: list[Any] = []
        self._count = 0
        self._lock = threading.Lock()
        self._faults: list[int] = []

    def subscribe(self, channel: str) -> None:
        ec.channel(channel).subscribe(self._handle)

    def _handle(self, event: Any) -> None:
        with self._lock:
            if event.flags.writeable or int(event[0]) != self._count or not (event == event[0]).all():
                self._faults.append(self._count)
            self._count += 1
            self._events.append(event)
            del self._events[: -self._most]

    def leave(self) -> None:
        """Leave at once, without waiting for anything."""
        from echannel_ray.session import session_for

        session_for(None)._end()

    def count(self) -> int:
        return self._count

    def faults(self) -> list[int]:
        return self._faults

    def kept(self) -> list[int]:
        with self._lock:
            return numbers_of(self._events)


class ArrayPublisher(Process):
    """Publishes numbered arrays, on loan or not, as long as it is wanted."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._published = 0

    def start(self, channel: str, is_loaned: bool) -> None:
        self._producer = ec.channel(channel).producer()
        self._thread = threading.Thread(target=self._run, args=[is_loaned], daemon=True)
        self._thread.start()

    def _run(self, is_loaned: bool) -> None:
        while not self._stopping.wait(0.0005):
            array = self._producer.loan(LENGTH) if is_loaned else np.empty(LENGTH)
            array[:] = self._published
            self._producer.publish(array)
            self._published += 1

    def stop(self) -> int:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join(BACK_SECONDS)
        self._producer.drain(BACK_SECONDS)
        return self._published

    def in_segments(self) -> int:
        return self._producer._publisher.stream.in_segments

    def used_slots(self) -> int:
        """How many slots somebody has, once all that is over was noticed."""
        store = self._producer._publisher.endpoint.exchange.store
        store.tick(0.0)
        with store._lock:
            store._look_at_processes()
            store._tidy()
            store._arenas.validate()
            return sum(len(arena.leased) + len(arena.lent) for arena in store._arenas.arenas.values())

    def ledgers(self) -> int:
        """Of how many consumers it knows what they hold."""
        store = self._producer._publisher.endpoint.exchange.store
        return len({endpoint for shared in store._shared.values() for endpoint in shared.ledgers})


KeeperActor = ray.remote(ArrayKeeper)
PublisherActor = ray.remote(ArrayPublisher)


def keeper(scene: Scene, channel: str, most: int = 8) -> Any:
    first = scene.cluster.nodes[0]
    actor = scene.keep(KeeperActor.options(**on(first), num_cpus=0, max_concurrency=4).remote(scene.namespace, most))
    ray.get(actor.subscribe.remote(channel))
    return actor


def publisher(scene: Scene, channel: str, is_loaned: bool) -> Any:
    first = scene.cluster.nodes[0]
    actor = scene.keep(PublisherActor.options(**on(first), num_cpus=0, max_concurrency=4).remote(scene.namespace))
    ray.get(actor.start.remote(channel, is_loaned))
    wait_until(lambda: ray.get(actor.in_segments.remote()) > 50)
    return actor


@pytest.mark.parametrize("is_loaned", [False, True], ids=["array", "loan"])
def test_what_a_consumer_held_is_free_when_it_is_killed(scene: Scene, is_loaned: bool):
    name = f"held-{is_loaned}"
    dying, staying = keeper(scene, name), keeper(scene, name, most=1)
    source = publisher(scene, name, is_loaned)
    kill(ray.get(dying.pid.remote()))
    wait_until(lambda: ray.get(source.holdings.remote())["recipients"] == 1)
    total = ray.get(source.stop.remote())
    wait_until(lambda: ray.get(staying.count.remote()) == total)
    assert ray.get(staying.faults.remote()) == []
    # What the one keeps that lives; and a loan, which the publisher still has at hand.
    wait_until(lambda: ray.get(source.used_slots.remote()) <= 2)
    assert ray.get(source.ledgers.remote()) == 1


@pytest.mark.parametrize("is_loaned", [False, True], ids=["array", "loan"])
def test_consumers_keep_what_they_have_of_a_producer_that_is_killed(scene: Scene, is_loaned: bool):
    name = f"orphans-{is_loaned}"
    consumer = keeper(scene, name)
    source = publisher(scene, name, is_loaned)
    kill(ray.get(source.pid.remote()))
    wait_until(lambda: ray.get(consumer.holdings.remote())["received_flows"] == 0)
    before = ray.get(consumer.kept.remote())
    assert len(before) == 8
    assert before == [*range(before[0], before[0] + 8)]
    keeper(scene, f"{name}-again")
    another = publisher(scene, f"{name}-again", is_loaned)  # which uses memory of its own
    assert ray.get(consumer.kept.remote()) == before
    assert ray.get(consumer.faults.remote()) == []
    ray.get(another.stop.remote())


def test_a_consumer_that_has_left_keeps_what_it_has(scene: Scene):
    consumer, staying = keeper(scene, "left"), keeper(scene, "left", most=1)
    source = publisher(scene, "left", is_loaned=False)
    ray.get(consumer.leave.remote())
    wait_until(lambda: ray.get(source.holdings.remote())["recipients"] == 1)
    before = ray.get(consumer.kept.remote())
    total = ray.get(source.stop.remote())
    wait_until(lambda: ray.get(staying.count.remote()) == total)
    assert ray.get(consumer.kept.remote()) == before
    assert -1 not in before
    assert ray.get(source.used_slots.remote()) >= len(before) - 1
    kill(ray.get(consumer.pid.remote()))
    wait_until(lambda: ray.get(source.used_slots.remote()) <= 1)


def test_large_events_while_the_concentrator_dies_again_and_again(scene: Scene):
    first = scene.cluster.nodes[0]
    consumers = [scene.consumer(first, "restarts") for _ in range(2)]
    load = scene.load(first, 1, "restarts", **LARGE)
    for _ in range(3):
        seconds_until_flowing({1: load}, consumers, "restarts")
        kill(scene.concentrator(first).pid)
        seconds_until_flowing({1: load}, consumers, "restarts")
        wait_until(lambda: scene.status().concentrators[0].endpoints)
    check_all_arrived({1: load}, consumers, "restarts")
    assert ec.channel("restarts", namespace=scene.namespace).stats().events_in_segments > 0


def test_large_events_while_direct_links_end(scene: Scene):
    first = scene.cluster.nodes[0]
    consumer = scene.consumer(first, "ending")
    load = scene.load(first, 1, "ending", **LARGE)
    ended = 0
    while ended < 10:
        seconds_until_flowing({1: load}, [consumer], "ending")
        ray.get([load.may_link_again.remote(), consumer.may_link_again.remote()])
        ended += ray.get(load.end_direct_links.remote())
    check_all_arrived({1: load}, [consumer], "ending")
    assert ec.channel("ending", namespace=scene.namespace).stats().events_in_segments > 0
