"""`kill -9` of a whole node."""

from __future__ import annotations

import time

import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.scene import Scene, check_all_arrived, seconds_until_flowing, wait_for

GIVEN_UP_SECONDS = 15.0  # the goal is 5


def test_a_node_that_dies_is_given_up_and_one_that_joins_is_served(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    third = scene.cluster.add_node()
    consumers = [scene.consumer(node, "events") for node in (first, second)]
    loads = {i: scene.load(node, i, "events") for i, node in enumerate((first, second), 1)}
    lost_consumer = scene.consumer(third, "events")
    lost_load = scene.load(third, 3, "events")
    seconds_until_flowing({**loads, 3: lost_load}, [*consumers, lost_consumer], "events")
    held = ray.get(consumers[0].holdings.remote())
    # One that handles nothing keeps a producer waiting: until its node is given up.
    scene.consumer(third, "full", hold=True)
    waiting = scene.load(second, 4, "full", size_bytes=1000, burst=500)
    full = ec.channel("full", namespace=scene.namespace)
    wait_until(lambda: full.stats().blocked_producers == 1)
    delivery = full.producer().deliver(b"\0" * 12)
    blocked_at = ray.get(waiting.progress.remote())

    killed_at = time.monotonic()
    scene.cluster.kill_node(third)
    dead_after = time.monotonic() - killed_at
    wait_until(lambda: is_suspected_or_gone(scene, third.node_id), GIVEN_UP_SECONDS)
    suspected_after = time.monotonic() - killed_at
    with pytest.raises(ec.DeliveryFailed):
        delivery.result(timeout=GIVEN_UP_SECONDS)
    failed_after = time.monotonic() - killed_at
    wait_until(lambda: ray.get(waiting.progress.remote()) > blocked_at + 1000, GIVEN_UP_SECONDS)
    given_up_after = time.monotonic() - killed_at
    with capsys.disabled():
        print(f"\n  kill -9 of a node (took {dead_after:.2f} s): suspected after {suspected_after:.2f} s, ", end="")
        print(f"deliver failed after {failed_after:.2f} s, publish went on after {given_up_after:.2f} s", end="")
    # The rest goes on.
    seconds_until_flowing(loads, consumers, "events")
    wait_until(lambda: ray.get(consumers[0].holdings.remote())["received_streams"] == held["received_streams"] - 1)
    wait_until(lambda: ec.channel("events", namespace=scene.namespace).stats().producers == 2)
    prefix = ray.get([consumer.progress.remote("events") for consumer in consumers])
    status = scene.status()
    assert all(part.error is None for part in [status.name_server, *status.managers])
    assert third.node_id not in [concentrator.node_id for concentrator in status.concentrators]

    fourth = scene.cluster.add_node()
    joined = scene.consumer(fourth, "later")
    later = {5: scene.load(second, 5, "later"), 6: scene.load(fourth, 6, "later")}
    staying = scene.consumer(first, "later")
    check_all_arrived(later, [joined], "later")
    assert ray.get(staying.progress.remote("later")).keys() <= {5, 6}
    totals = {number: ray.get(load.stop.remote()) for number, load in loads.items()}
    for consumer, before in zip(consumers, prefix, strict=True):
        wait_for({**totals, 3: before[3]}, consumer.progress, "events")
        assert ray.get(consumer.faults.remote("events")) == []
    scene.clear()
    scene.cluster.kill_node(fourth)


def is_suspected_or_gone(scene: Scene, node_id: str) -> bool:
    found = [node for node in scene.status().nodes if node.node_id == node_id]
    return not found or found[0].suspected or not found[0].joined
