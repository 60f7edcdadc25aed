"""`kill -9` while records and blocks of them are under way, and what is known of formats afterwards."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
import ray

import echannel_ray as ec
from tests.clusters import on
from tests.faults.parties import Checker, Consumer, Load, Process
from tests.faults.scene import BACK_SECONDS, Scene, check_all_arrived, kill, seconds_until_flowing

# Its first bytes are what `Checker` looks at.
RECORD = np.dtype([("producer", "<u4"), ("number", "<u8"), ("filling", "S84")])
BLOCK = 700


class BlockLoad(Load):
    """Publishes numbered records in blocks, and a few one by one."""

    def _run(self, burst: int, pause_seconds: float, size_bytes: int) -> None:
        assert self._producer is not None
        try:
            while not self._stopping.wait(pause_seconds):
                block = np.zeros(BLOCK, RECORD)
                block["producer"] = self._number
                block["number"] = np.arange(self.published + 1, self.published + BLOCK + 1)
                block["filling"] = b"."
                self._producer.publish_many(block[:-2])
                for record in block[-2:]:
                    self._producer.publish(record)
                self.published += BLOCK
        except BaseException as error:
            self._error = error


class RecordConsumer(Consumer):
    """Checks records, one by one or in batches."""

    def subscribe_typed(self, channel: str, batches: str | None) -> None:
        checker = self._checkers[channel] = Checker()

        def handle(event: Any) -> None:
            for record in event if batches else (event,):
                checker(record.tobytes())

        self._subscriptions[channel] = ec.channel(channel).subscribe(
            handle, event_type=RECORD, batches=batches, on_error=self._gaps(channel).append
        )


@dataclasses.dataclass
class Base:
    number: int


@dataclasses.dataclass
class Wider:
    number: int
    venue: str


@dataclasses.dataclass
class WithDefault:
    number: int
    venue: str = "unknown"


class Party(Process):
    """Publishes and consumes records as it is told."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self._released = threading.Event()
        self._changed = threading.Condition()
        self._events: list[Any] = []

    def produce(self, channel: str) -> None:
        self._producer = ec.channel(channel).producer()

    def publish(self, events: list[Any]) -> None:
        self._producer.publish_many(events)
        self._producer.drain(BACK_SECONDS)

    def consume(self, channel: str, event_type: Any, is_held: bool = False) -> None:
        if not is_held:
            self._released.set()
        self._subscription = ec.channel(channel).subscribe(self._handle, event_type=event_type)

    def _handle(self, event: Any) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
        self._released.wait()

    def release(self) -> None:
        self._released.set()

    def received(self, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._events) >= count, BACK_SECONDS), self._events
            return [*self._events]

    def schema(self, channel: str) -> dict[str, str] | None:
        return ec.channel(channel).schema()


_remote: Any = ray.remote


def start(scene: Scene, cls: type, node: Any, *arguments: Any) -> Any:
    """An actor of the class on this node, which ends with the test."""
    return scene.keep(
        _remote(cls).options(**on(node), num_cpus=0, max_concurrency=8).remote(scene.namespace, *arguments)
    )


def kill_managers(scene: Scene) -> None:
    for manager in scene.status().managers:
        kill(manager.pid)


def test_of_blocks_nothing_is_lost_doubled_or_reordered(scene: Scene):
    first, second = scene.cluster.nodes
    ec.channel("blocks", RECORD, namespace=scene.namespace)
    consumers = [start(scene, RecordConsumer, node) for node in (first, second)]
    ray.get([each.subscribe_typed.remote("blocks", how) for each, how in zip(consumers, (None, "numpy"), strict=True)])
    loads = {number: start(scene, BlockLoad, node, number) for number, node in enumerate((first, second), 1)}
    ray.get([load.start.remote("blocks", pause_seconds=0.02) for load in loads.values()])
    seconds_until_flowing(loads, consumers, "blocks")
    for victims in ((second,), (first,), (first, second)):
        for node in victims:
            kill(scene.concentrator(node).pid)
        seconds_until_flowing(loads, consumers, "blocks")
    total = check_all_arrived(loads, consumers, "blocks")
    assert total > 0
    assert total % BLOCK == 0


def test_formats_and_extensions_outlive_their_managers(scene: Scene):
    first, second = scene.cluster.nodes
    ec.channel("extended", Base, namespace=scene.namespace)
    producer, early = start(scene, Party, second), start(scene, Party, first)
    ray.get(early.consume.remote("extended", Base))
    ray.get(producer.produce.remote("extended"))
    ray.get(producer.publish.remote([Base(1), Wider(2, "X")]))
    kill_managers(scene)
    late = start(scene, Party, first)
    assert ray.get(late.schema.remote("extended")) == {"number": "int", "venue": "str"}
    ray.get(late.consume.remote("extended", WithDefault))
    with pytest.raises(ec.TypeMismatch, match="'venue'") as caught:
        ec.channel("extended", dataclasses.make_dataclass("Other", [("number", int), ("venue", int)]),
                   namespace=scene.namespace).producer()  # fmt: skip
    assert caught.value.field == "venue"
    ray.get(producer.publish.remote([Base(3), Wider(4, "Y"), {"number": 5}]))
    assert ray.get(late.received.remote(3)) == [WithDefault(3), WithDefault(4, "Y"), WithDefault(5)]
    assert ray.get(early.received.remote(5)) == [Base(number) for number in range(1, 6)]


def test_records_of_a_producer_that_has_died_are_read_after_a_restart(scene: Scene):
    """The consumer meets their format for the first time when both the producer and the manager are gone."""
    first, second = scene.cluster.nodes
    ec.channel("died", Base, namespace=scene.namespace)
    producer = start(scene, Party, second)
    ray.get(producer.produce.remote("died"))
    ray.get(producer.publish.remote([Base(0)]))
    kill_managers(scene)
    consumer = start(scene, Party, first)
    ray.get(consumer.consume.remote("died", WithDefault, is_held=True))
    ray.get(producer.publish.remote([Base(1)]))
    assert ray.get(consumer.received.remote(1)) == [WithDefault(1)]
    ray.get(producer.publish.remote([Wider(2, "X")]))
    kill(ray.get(producer.pid.remote()))
    kill_managers(scene)
    ray.get(consumer.release.remote())
    assert ray.get(consumer.received.remote(2)) == [WithDefault(1), WithDefault(2, "X")]
