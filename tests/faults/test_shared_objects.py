"""Shared objects when processes, concentrators and nodes die: nothing waits for the dead, and nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.session import session_for
from tests.clusters import on, wait_until
from tests.faults.parties import Process
from tests.faults.scene import BACK_SECONDS, Scene, kill, stopped

NOTICED_SECONDS = 10.0  # the goal is 2


class Counter(ec.SharedObject):
    count: int = 0
    other: int = 0


class Holder(Process):
    """Has a copy of a shared object, or its master."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self._climbing = threading.Event()
        self._climbed = 0
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._shared = Counter()

    def make(self) -> Counter:
        return self._shared

    def hold(self, shared: Counter) -> None:
        self._shared = shared

    def see(self) -> tuple[int, int, int]:
        seen = self._shared.snapshot()
        return seen.version, seen.count, seen.other

    def publish(self, **fields: int) -> int:
        for name, value in fields.items():
            setattr(self._shared, name, value)
        return self._shared.publish()

    def fails(self) -> list[str]:
        """What publishing and pulling raise, and whether that took long."""
        raised = []
        for act in (self._shared.pull, self._shared.publish):
            try:
                act(timeout=NOTICED_SECONDS)
            except Exception as error:
                raised.append(type(error).__name__)
        return raised

    def climb(self) -> None:
        """Count `other` up, each time publishing, until told to stop."""
        self._thread = threading.Thread(target=self._climb, daemon=True)
        self._thread.start()

    def _climb(self) -> None:
        try:
            while not self._climbing.wait(0.002):
                self._shared.other = self._climbed + 1
                self._shared.publish()
                self._climbed += 1
        except BaseException as error:
            self._error = error

    def climbed(self) -> int:
        if self._error is not None:
            raise self._error
        return self._climbed

    def stop(self) -> int:
        self._climbing.set()
        assert self._thread is not None
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.climbed()


HolderActor = ray.remote(Holder)


def holder(scene: Scene, node: Any) -> Any:
    options = {**on(node), "num_cpus": 0, "max_concurrency": 8}
    return scene.keep(HolderActor.options(**options).remote(scene.namespace))


def shared_here(scene: Scene) -> Counter:
    counter = Counter()
    session_for(scene.namespace)
    ec.connect(namespace=scene.namespace)
    return counter


def seconds_of(act: Any) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


@pytest.mark.parametrize("where", [0, 1])
def test_a_killed_copy_is_not_waited_for(scene: Scene, where: int, capsys: pytest.CaptureFixture[str]):
    counter = shared_here(scene)
    staying, dying = holder(scene, scene.cluster.nodes[1]), holder(scene, scene.cluster.nodes[where])
    ray.get([staying.hold.remote(counter), dying.hold.remote(counter)])
    counter.count = 1
    counter.publish()
    kill(ray.get(dying.pid.remote()))
    counter.count = 2
    seconds = seconds_of(lambda: counter.publish(timeout=NOTICED_SECONDS))
    with capsys.disabled():
        print(f"\n  publish after kill -9 of a copy: {seconds:.2f} s", end="")
    assert ray.get(staying.see.remote()) == (2, 2, 0)
    assert counter._echannel.master is not None
    assert len(counter._echannel.master._secondaries) == 1


def test_a_copy_that_dies_during_a_publish_ends_the_wait(scene: Scene):
    counter = shared_here(scene)
    dying = holder(scene, scene.cluster.nodes[0])
    ray.get(dying.hold.remote(counter))
    pid = ray.get(dying.pid.remote())
    with stopped(pid):
        counter.count = 1
        with pytest.raises(TimeoutError, match="version 1 is published"):
            counter.publish(timeout=0.5)
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        assert seconds_of(lambda: counter.publish(timeout=NOTICED_SECONDS)) < NOTICED_SECONDS
    assert counter.version == 1


def test_a_copy_that_was_stopped_gets_the_newest_version_only(scene: Scene):
    counter = shared_here(scene)
    slow = holder(scene, scene.cluster.nodes[1])
    ray.get(slow.hold.remote(counter))
    with stopped(ray.get(slow.pid.remote())):
        for number in range(1, 20):
            counter.count = number
            with pytest.raises(TimeoutError):
                counter.publish(timeout=0.02)
    assert counter.publish(timeout=NOTICED_SECONDS) == 19
    assert ray.get(slow.see.remote()) == (19, 19, 0)


@pytest.mark.parametrize("where", [0, 1])
def test_without_their_master_copies_keep_their_value(scene: Scene, where: int, capsys: pytest.CaptureFixture[str]):
    shared_here(scene)
    dying = holder(scene, scene.cluster.nodes[where])
    copies = [holder(scene, node) for node in scene.cluster.nodes]
    mine = ray.get(dying.make.remote())
    ray.get([each.hold.remote(mine) for each in copies])
    mine.count = 5
    assert mine.publish() == 1
    kill(ray.get(dying.pid.remote()))
    mine.count = 6
    began = time.monotonic()
    for act in (mine.publish, mine.pull):
        with pytest.raises(ec.MasterLost, match="gone"):
            act(timeout=NOTICED_SECONDS)
    with capsys.disabled():
        print(f"\n  MasterLost twice after kill -9 of the master: {time.monotonic() - began:.2f} s", end="")
    assert (mine.version, mine.count) == (1, 6)
    assert ray.get([each.fails.remote() for each in copies]) == [["MasterLost", "MasterLost"]] * 2
    assert ray.get([each.see.remote() for each in copies]) == [(1, 5, 0)] * 2
    # A copy of a copy has what it came with.
    late = holder(scene, scene.cluster.nodes[0])
    ray.get(late.hold.remote(mine))
    assert ray.get(late.see.remote()) == (1, 5, 0)
    assert ray.get(late.fails.remote()) == ["MasterLost", "MasterLost"]


def test_while_concentrators_are_killed_nothing_is_lost(scene: Scene):
    """Master and copies publish all the time; each publish is merged once, and in the end all have all of it."""
    first, second = scene.cluster.nodes
    counter = shared_here(scene)
    copies = [holder(scene, first), holder(scene, second)]
    ray.get([each.hold.remote(counter) for each in copies])
    ray.get(copies[1].climb.remote())
    stop, error = threading.Event(), []

    def climb() -> None:
        try:
            while not stop.wait(0.002):
                counter.count += 1
                counter.publish()
        except BaseException as raised:
            error.append(raised)

    mine = threading.Thread(target=climb)
    mine.start()
    for node in (first, second, first):
        before = counter.count, ray.get(copies[1].climbed.remote())
        kill(scene.concentrator(node).pid)

        def goes_on(before: tuple[int, int] = before) -> bool:
            return counter.count > before[0] + 20 and ray.get(copies[1].climbed.remote()) > before[1] + 20

        wait_until(goes_on, 2 * BACK_SECONDS)
    climbed = ray.get(copies[1].stop.remote(), timeout=60)
    stop.set()
    mine.join(30)
    assert not mine.is_alive()
    assert error == []
    version = counter.publish(timeout=NOTICED_SECONDS)
    assert counter.other == climbed
    assert version == counter.count + climbed
    for each in copies:
        assert ray.get(each.see.remote()) == (version, counter.count, climbed)


def test_with_the_node_of_the_master_it_is_lost(scene: Scene, capsys: pytest.CaptureFixture[str]):
    shared_here(scene)
    node = scene.cluster.add_node()
    dying = holder(scene, node)
    mine = ray.get(dying.make.remote(), timeout=60)
    copied = holder(scene, scene.cluster.nodes[1])
    ray.get(copied.hold.remote(mine))
    mine.count = 5
    mine.publish()
    counter = shared_here(scene)
    ray.get(dying.hold.remote(counter))
    scene.cluster.kill_node(node)
    counter.count = 1
    seconds = seconds_of(lambda: counter.publish(timeout=30))
    began = time.monotonic()
    with pytest.raises(ec.MasterLost):
        mine.pull(timeout=30)
    with capsys.disabled():
        print(f"\n  after its node died: publish {seconds:.2f} s, MasterLost {time.monotonic() - began:.2f} s", end="")
    assert ray.get(copied.fails.remote(), timeout=60) == ["MasterLost", "MasterLost"]
    assert ray.get(copied.see.remote()) == (1, 5, 0)
    # Nor does a concentrator wait for it that has never heard of that node.
    kill(scene.concentrator(scene.cluster.nodes[0]).pid)
    with pytest.raises(ec.MasterLost):
        mine.pull(timeout=30)
