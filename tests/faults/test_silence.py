"""Links that are cut and processes that are stopped, and go on after a while: suspected, held, and nothing is lost."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import ray
from ray._private.node import Node

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.proxy import put_between
from tests.faults.scene import Scene, check_all_arrived, seconds_until, seconds_until_flowing, stopped

SILENT_SECONDS = 2.0  # the soak has longer ones


def stage(scene: Scene, channel: str) -> tuple[dict[int, Any], list[Any]]:
    consumers = [scene.consumer(node, channel) for node in scene.cluster.nodes]
    loads = {i: scene.load(node, i, channel) for i, node in enumerate(scene.cluster.nodes, 1)}
    seconds_until_flowing(loads, consumers, channel)
    return loads, consumers


def stay_silent() -> None:
    """The time itself is the fault here: there is nothing to wait for."""
    threading.Event().wait(SILENT_SECONDS)


def test_processes_that_are_stopped_for_a_while_are_suspected_and_held(
    scene: Scene, capsys: pytest.CaptureFixture[str]
):
    first, second = scene.cluster.nodes
    loads, consumers = stage(scene, "stopped")
    # Of this one a window is full within a second.
    scene.consumer(second, "much")
    much = {3: scene.load(first, 3, "much", size_bytes=10_000, burst=5)}
    pids = {
        "a consumer": ray.get(consumers[1].pid.remote()),
        "a producer": ray.get(loads[2].pid.remote()),
        "a concentrator": scene.concentrator(second).pid,
    }
    for who, pid in pids.items():
        with stopped(pid):
            if who == "a concentrator":
                noticed = seconds_until(lambda: suspected_peers(scene, first))
            else:
                noticed = seconds_until(lambda: scene.concentrator(second).suspected_endpoints)
            stay_silent()
            assert scene.concentrator(first).peers == 1
            if who == "a concentrator":
                wait_until(lambda: ec.channel("much", namespace=scene.namespace).stats().blocked_producers == 1)
        back = seconds_until_flowing(loads, consumers, "stopped")
        with capsys.disabled():
            print(f"\n  SIGSTOP of {who}: suspected after {noticed:.2f} s, flowing {back:.2f} s after SIGCONT", end="")
        wait_until(lambda: not scene.concentrator(second).suspected_endpoints and not suspected_peers(scene, first))
    check_all_arrived(loads, consumers, "stopped")
    ray.get(much[3].stop.remote())
    assert ec.channel("much", namespace=scene.namespace).stats().blocked_milliseconds > 0


def suspected_peers(scene: Scene, node: Node) -> list[int]:
    """The nodes that the concentrator of this one suspects."""
    found: list[int] = scene.describe(node)["suspected"]
    return found


def test_a_link_between_nodes_that_is_cut_for_a_while(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, _ = scene.cluster.nodes
    loads, consumers = stage(scene, "cut")
    proxy = put_between(scene)
    try:
        seconds_until_flowing(loads, consumers, "cut")
        proxy.be_silent(True)
        noticed = seconds_until(lambda: suspected_peers(scene, first))
        stay_silent()
        proxy.be_silent(False)
        back = seconds_until_flowing(loads, consumers, "cut")
        wait_until(lambda: not suspected_peers(scene, first))
        proxy.refuse()
        stay_silent()
        assert len([node for node in scene.status().nodes if node.joined]) == 2, "its raylet's port does not refuse"
        proxy.accept_again()
        again = seconds_until_flowing(loads, consumers, "cut")
        with capsys.disabled():
            print(f"\n  link cut: suspected after {noticed:.2f} s; events flow {back:.2f} s after it was silent, "
                  f"{again:.2f} s after it was broken", end="")  # fmt: skip
        check_all_arrived(loads, consumers, "cut")
    finally:
        proxy.close()
