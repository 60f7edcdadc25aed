"""What becomes of a `reset` when parts are killed half-way: while producers make its modulator ready, and are held."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.node import Node

import echannel_ray as ec
from echannel_ray.actors import startup
from tests.clusters import on, wait_until
from tests.faults.parties import Process
from tests.faults.scene import BACK_SECONDS, Scene, kill

ADMISSION = ec.Admission(tiers=("inline",), max_seconds_per_event=120.0)


class Tagged(ec.FIFOModulator):
    """Says of each event by which pair it came."""

    def __init__(self, pair: int) -> None:
        self.pair = pair

    def enqueue(self, event: Any) -> None:
        self.emit((self.pair, *event))


class Held(Tagged):
    """Made by a producer when a file is there; until then its installation is half-way. Refused where the file says."""

    def __init__(self, pair: int, folder: Path) -> None:
        super().__init__(pair)
        self.folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder = state["folder"]
        (folder / f"begun-{os.getpid()}").touch()
        go = folder / "go"
        while not go.exists():
            threading.Event().wait(0.01)
        if str(os.getpid()) in go.read_text():
            raise ValueError("not here")
        vars(self).update(state)


class Source(Process):
    """A producer that admits inline modulators."""

    def __init__(self, namespace: str, channel: str) -> None:
        ec.connect(namespace=namespace)
        self._producer = ec.channel(channel).producer(admission=ADMISSION)

    def publish(self, number: int, numbers: range) -> None:
        for each in numbers:
            self._producer.publish((number, each))
        self._producer.drain(timeout=60)

    def installed(self) -> list[str]:
        return [branch.derived.key for branch in self._producer._publisher.sink.branches if branch.host is not None]


class Installation:
    """Two producers, one per node, a consumer in this process, and a `reset` that is held half-way at both."""

    def __init__(self, scene: Scene, channel: str, folder: Path) -> None:
        self.scene = scene
        self.folder = folder
        self.channel = ec.channel(channel, namespace=scene.namespace)
        self.sources = {n: self.source(node) for n, node in enumerate(scene.cluster.nodes, 1)}
        self.pids = {n: ray.get(source.pid.remote()) for n, source in self.sources.items()}
        self.seen: list[tuple[int, int, int]] = []
        self.subscription = self.channel.subscribe(self.seen.append, modulator=Tagged(0), tier="inline")

    def source(self, node: Node) -> Any:
        actor = ray.remote(Source).options(**on(node), num_cpus=0)
        return self.scene.keep(actor.remote(self.scene.namespace, self.channel.name))

    def publish(self, numbers: range) -> None:
        """At all producers; all of it has arrived when this returns."""
        ray.get([source.publish.remote(n, numbers) for n, source in self.sources.items()], timeout=90)

    @contextmanager
    def held(self) -> Iterator[Future[None]]:
        """The `reset` has begun, and no producer is ready; at the end of the block it goes on."""
        with ThreadPoolExecutor(1) as pool:
            resetting = pool.submit(self.subscription.reset, Held(1, self.folder), tier="inline")
            try:
                wait_until(lambda: {f"begun-{pid}" for pid in self.pids.values()} <= {*os.listdir(self.folder)})
                yield resetting
            finally:
                if not (self.folder / "go").exists():
                    self.go()

    def go(self, refusing: str = "") -> None:
        """Let producers go on; one of this pid refuses."""
        (self.folder / "new").write_text(refusing)
        (self.folder / "new").rename(self.folder / "go")

    def check(self, expected: list[tuple[int, range]]) -> None:
        """Each producer's events arrived once and in order, by these pairs, one after the other."""
        wanted = [(pair, each) for pair, numbers in expected for each in numbers]
        self.subscription.drain(timeout=60)
        for number in self.sources:
            assert [(pair, each) for pair, n, each in self.seen if n == number] == wanted


@pytest.fixture
def installation(scene: Scene, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(scene, request.node.name, tmp_path)
    yield made
    made.subscription.close()


def victims(scene: Scene, what: str) -> list[int]:
    """The processes to be killed."""
    head, other = scene.cluster.nodes
    pids = scene.pids()
    managers = [pids[startup.manager_name(scene.namespace, slot)] for slot in (0, 1)]
    chosen = {
        "managers": managers,
        "concentrator of the consumer": [scene.concentrator(head).pid],
        "concentrator of a producer": [scene.concentrator(other).pid],
        "name server": [pids[startup.name_server_name(scene.namespace)]],
    }
    chosen["all"] = [pid for each in chosen.values() for pid in each]
    return chosen[what]


WHAT = ("managers", "concentrator of the consumer", "concentrator of a producer", "name server", "all")


@pytest.mark.parametrize("what", WHAT)
def test_a_reset_takes_effect_everywhere_when_parts_were_killed_half_way(
    scene: Scene, installation: Installation, what: str
):
    installation.publish(range(10))
    with installation.held() as resetting:
        for pid in victims(scene, what):
            kill(pid)
        assert not resetting.done()
        installation.publish(range(10, 20))
    resetting.result(BACK_SECONDS * 4)
    installation.publish(range(20, 30))
    installation.check([(0, range(20)), (1, range(20, 30))])
    assert len(installation.channel.stats().derived) == 1


@pytest.mark.parametrize("what", ["managers", "all"])
def test_what_a_producer_refuses_leaves_the_old_pair_when_parts_were_killed_half_way(
    scene: Scene, installation: Installation, what: str
):
    installation.publish(range(10))
    with installation.held() as resetting:
        for pid in victims(scene, what):
            kill(pid)
        installation.publish(range(10, 20))
        installation.go(refusing=str(installation.pids[2]))
    with pytest.raises(ec.ModulatorRefused, match="not here"):
        resetting.result(BACK_SECONDS * 4)
    installation.publish(range(20, 30))
    installation.check([(0, range(30))])
    assert len(installation.channel.stats().derived) == 1
    for source in installation.sources.values():
        wait_until(lambda: len(ray.get(source.installed.remote())) == 1)  # noqa: B023


def test_a_producer_that_is_killed_half_way_need_not_have_it(scene: Scene, installation: Installation):
    installation.publish(range(10))
    with installation.held() as resetting:
        kill(installation.pids[2])
        del installation.sources[2]
        installation.publish(range(10, 20))
    resetting.result(BACK_SECONDS * 4)
    installation.publish(range(20, 30))
    installation.check([(0, range(20)), (1, range(20, 30))])


def test_a_consumer_that_is_killed_half_way_leaves_nothing(scene: Scene, installation: Installation, tmp_path: Path):
    class Consumer(Process):
        def __init__(self, channel: ec.EventChannel) -> None:
            self.subscription = channel.subscribe(print)

        def reset(self, folder: Path) -> None:
            self.subscription.reset(Held(2, folder), tier="inline")

    folder = tmp_path / "consumer"
    folder.mkdir()
    consumer = scene.keep(ray.remote(Consumer).options(num_cpus=0, max_concurrency=2).remote(installation.channel))
    pid = ray.get(consumer.pid.remote())
    resetting = consumer.reset.remote(folder)
    wait_until(lambda: len(os.listdir(folder)) == 2)
    kill(pid)
    (folder / "go").touch()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(resetting)
    wait_until(lambda: len(installation.channel.stats().derived) == 1)
    installation.publish(range(10))
    installation.check([(0, range(10))])
