"""Endpoints that join and leave at random over real sockets, some killed: nothing of them stays."""

from __future__ import annotations

import os

import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.churn import CHANNELS, usage, visit
from tests.faults.scene import Scene, wait_for

SEED = int(os.environ.get("FAULTS_SEED", "1"))
PROCESSES = 6
SECONDS = 5.0
LEAST_VISITS = 200
# Python gives memory back late, and what is remembered of the gone is bounded, not nothing.
MAX_GROWTH_BYTES = 15 << 20


def test_nothing_stays_of_endpoints_that_came_and_went(scene: Scene, capsys: pytest.CaptureFixture[str]):
    consumers = [scene.consumer(node, f"visited-{i}") for i, node in enumerate(scene.cluster.nodes)]
    visit(scene, 2, 1.0, SEED)  # all that is made once is made
    wait_until(lambda: endpoints(scene) == len(consumers) + 1)
    before = usage(scene)
    visits, killed = visit(scene, PROCESSES, SECONDS, SEED, LEAST_VISITS)
    wait_until(lambda: endpoints(scene) == len(consumers) + 1)
    wait_until(lambda: all(scene.concentrator(node).flows == 0 for node in scene.cluster.nodes))
    after = usage(scene)
    grown = {name: bytes_now - before.memory_bytes[name] for name, bytes_now in after.memory_bytes.items()}
    with capsys.disabled():
        print(f"\n  seed {SEED}: {visits} endpoints came and went, {killed} processes were killed; grown by", end=" ")
        print({name.partition(":")[2][:15]: f"{count / 1e6:.1f} MB" for name, count in grown.items()}, end="")
    assert after.files == before.files
    assert max(grown.values()) < MAX_GROWTH_BYTES
    for name, count in after.threads.items():
        # Ray's pools grow to their size; ours have none.
        assert count <= before.threads[name] + 4, name
    for name, count in after.descriptors.items():
        assert count <= before.descriptors[name] + 8, name
    for number in range(CHANNELS):
        stats = ec.channel(f"visited-{number}", namespace=scene.namespace).stats()
        assert (stats.producers, stats.consumers) == (0, 1 if number < len(consumers) else 0)
    for consumer in consumers:
        wait_for(dict.fromkeys(ray.get(consumer.holdings.remote()), 0), consumer.holdings)


def endpoints(scene: Scene) -> int:
    return sum(scene.concentrator(node).endpoints for node in scene.cluster.nodes)
