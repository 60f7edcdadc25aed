"""`kill -9` of the parts of a namespace, again and again, under load."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import echannel_ray as ec
from tests.faults.scene import (
    BACK_SECONDS,
    Scene,
    check_all_arrived,
    kill,
    seconds_until_flowing,
)


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


ROUNDS = ["head's concentrator", "other concentrator", "manager 0", "manager 1", "name server", "all", "other concentrator"]


def test_nothing_is_lost_doubled_or_reordered_and_service_is_back(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    consumers = [scene.consumer(node, "events") for node in (first, second)]
    loads = {i: scene.load(node, i, "events") for i, node in enumerate((first, second), 1)}
    seconds_until_flowing(loads, consumers, "events")
    took = {}
    for round_number, victims in enumerate(ROUNDS):
        pids = scene.pids()
        for name in _parts(scene, victims):
            kill(pids[name])
        with ThreadPoolExecutor(2) as outage:
            # Issued while the part is away: they wait for it, and then they work.
            opening = outage.submit(ec.channel, f"new-{round_number}", namespace=scene.namespace)
            subscribing = outage.submit(ec.channel("events", namespace=scene.namespace).subscribe)
            flowing = seconds_until_flowing(loads, consumers, "events")
            subscription = subscribing.result(BACK_SECONDS)
            opening.result(BACK_SECONDS)
        subscription.get(timeout=BACK_SECONDS)
        subscription.close()
        took[f"{round_number} {victims}"] = flowing
    with capsys.disabled():
        print("\nback after kill -9:", {name: f"{seconds:.2f} s" for name, seconds in took.items()})
    assert check_all_arrived(loads, consumers, "events") > 0
