"""`kill -9` of the parts of a namespace, again and again, under load."""

from __future__ import annotations

import time
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
    channel = ec.channel("events", namespace=scene.namespace)
    for round_number, victims in enumerate(ROUNDS):
        pids = scene.pids()
        for name in _parts(scene, victims):
            kill(pids[name])
        began = time.monotonic()
        with ThreadPoolExecutor(2) as outage:
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
            print(f"\n  kill -9 of {victims}: events flow after {flowing:.2f} s, subscribe() returned after {opened:.2f} s", end="")
    assert check_all_arrived(loads, consumers, "events") > 0
