"""`kill -9` of processes that consume or produce."""

from __future__ import annotations

import time
from functools import partial

import pytest
import ray
from ray._private.node import Node

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.scene import Scene, check_all_arrived, kill, seconds_until, seconds_until_flowing, stopped, wait_for

NOTICED_SECONDS = 10.0  # the goal is 2


@pytest.mark.parametrize("where", ["on the producer's node", "on another node"])
def test_a_killed_consumer_is_let_go_of(scene: Scene, where: str, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    channel = f"consumer {where}".replace(" ", "-").replace("'", "")
    staying = scene.consumer(second, channel)
    # It handles nothing, so what it was sent stays unhandled, and soon the producer's window is full.
    dying = scene.consumer(first if where.startswith("on the") else second, channel, hold=True)
    load = scene.load(first, 1, channel, size_bytes=1000, burst=500)
    stats = ec.channel(channel, namespace=scene.namespace)
    wait_until(lambda: stats.stats().blocked_producers == 1)
    blocked_at = ray.get(load.progress.remote())
    delivery = ec.channel(channel, namespace=scene.namespace).producer().deliver(b"\0" * 12)
    killed_at = time.monotonic()
    kill(ray.get(dying.pid.remote()))
    with pytest.raises(ec.DeliveryFailed) as failed:
        delivery.result(timeout=NOTICED_SECONDS)
    failed_after = time.monotonic() - killed_at
    released_after = seconds_until(lambda: ray.get(load.progress.remote()) > blocked_at + 1000, NOTICED_SECONDS)
    released_after += time.monotonic() - killed_at - released_after
    with capsys.disabled():
        print(f"\n  kill -9 of a consumer {where}: deliver failed after {failed_after:.2f} s, "
              f"publish went on within {released_after:.2f} s", end="")  # fmt: skip
    [failure] = failed.value.failures
    assert "died" in failure.error
    assert stats.stats().consumers == 1
    assert stats.stats().blocked_producers == 0
    total = ray.get(load.stop.remote())
    wait_until(lambda: ray.get(staying.progress.remote(channel)).get(1) == total)
    assert ray.get(staying.faults.remote(channel)) == ["producer 0: 0 after 0 (repeated or late)"]
    assert ray.get(load.holdings.remote())["recipients"] == 1


def test_of_a_killed_producer_arrives_a_gapless_prefix_and_nothing_stays(scene: Scene):
    first, second = scene.cluster.nodes
    consumers = [scene.consumer(node, "producers") for node in (first, second)]
    loads = {1: scene.load(first, 1, "producers"), 2: scene.load(second, 2, "producers")}
    dying = scene.load(second, 3, "producers")
    seconds_until_flowing({**loads, 3: dying}, consumers, "producers")
    published = ray.get(dying.progress.remote())
    before = [ray.get(consumer.holdings.remote()) for consumer in consumers]
    flows = [scene.concentrator(node).flows for node in (first, second)]
    kill(ray.get(dying.pid.remote()))
    for consumer, held in zip(consumers, before, strict=True):
        less = {name: held[name] - 1 for name in ("received_streams", "received_flows", "received_routes")}
        wait_for({**held, **less}, consumer.holdings)
    for node, count in zip((first, second), flows, strict=True):
        wait_until(partial(_has_flows, scene, node, count - 1))
    wait_until(lambda: ec.channel("producers", namespace=scene.namespace).stats().producers == 2)
    prefixes = [ray.get(consumer.progress.remote("producers")).pop(3) for consumer in consumers]
    assert all(prefix > 0 for prefix in prefixes), (prefixes, published)
    seconds_until_flowing(loads, consumers, "producers")
    totals = {number: ray.get(load.stop.remote()) for number, load in loads.items()}
    for consumer, prefix in zip(consumers, prefixes, strict=True):
        wait_for({**totals, 3: prefix}, consumer.progress, "producers")
        assert ray.get(consumer.faults.remote("producers")) == []


def _has_flows(scene: Scene, node: Node, count: int) -> bool:
    return scene.concentrator(node).flows == count


def test_a_process_that_forked_is_missed_although_its_child_lives(scene: Scene):
    """The child has copies of the parent's descriptors: the link must end with the parent all the same."""
    first, _ = scene.cluster.nodes
    consumer = scene.consumer(first, "forked")
    child = ray.get(consumer.fork.remote())
    channel = ec.channel("forked", namespace=scene.namespace)
    assert channel.stats().consumers == 1
    kill(ray.get(consumer.pid.remote()))
    try:
        assert seconds_until(lambda: channel.stats().consumers == 0, NOTICED_SECONDS)
    finally:
        kill(child)


def test_a_concentrator_and_a_process_that_die_together(scene: Scene):
    """Nobody saw the process end: the successor finds out."""
    first, second = scene.cluster.nodes
    staying = scene.consumer(first, "together")
    consumer, producer = scene.consumer(second, "together"), scene.load(second, 2, "together")
    loads = {1: scene.load(first, 1, "together")}
    seconds_until_flowing({**loads, 2: producer}, [staying, consumer], "together")
    held = ray.get(staying.holdings.remote())
    for pid in (ray.get(consumer.pid.remote()), ray.get(producer.pid.remote()), scene.concentrator(second).pid):
        kill(pid)
    channel = ec.channel("together", namespace=scene.namespace)
    wait_until(lambda: (channel.stats().consumers, channel.stats().producers) == (1, 1))
    wait_until(lambda: ray.get(staying.holdings.remote())["received_streams"] == held["received_streams"] - 1)
    wait_until(lambda: ray.get(loads[1].holdings.remote())["recipients"] == 1)
    prefix = ray.get(staying.progress.remote("together"))[2]
    total = ray.get(loads[1].stop.remote())
    wait_until(lambda: ray.get(staying.progress.remote("together")) == {1: total, 2: prefix})
    assert ray.get(staying.faults.remote("together")) == []


def test_what_was_only_opened_before_a_concentrator_died_is_known_to_managers_that_die_after_it(scene: Scene):
    first, _ = scene.cluster.nodes
    channel = ec.channel("opened-before", namespace=scene.namespace)
    kill(scene.concentrator(first).pid)
    wait_until(lambda: scene.concentrator(first).endpoints >= 1)
    subscription = channel.subscribe()
    for manager in scene.status().managers:
        kill(manager.pid)
    wait_until(lambda: all(manager.state == "serving" for manager in scene.status().managers))
    load = {1: scene.load(first, 1, "opened-before")}
    assert subscription.get(timeout=10)
    subscription.close()
    check_all_arrived(load, [], "opened-before")


def test_one_that_left_while_its_concentrator_was_stopped_is_not_waited_for(scene: Scene):
    """Its goodbye is never read, and its process lives: a manager that asks for all endpoints has to get on."""
    first, second = scene.cluster.nodes
    consumer, leaving = scene.consumer(second, "left"), scene.consumer(second, "left-too")
    loads = {1: scene.load(first, 1, "left")}
    seconds_until_flowing(loads, [consumer], "left")
    pid = scene.concentrator(second).pid
    with stopped(pid):
        ray.get(leaving.leave.remote())
        kill(pid)
    for manager in scene.status().managers:
        kill(manager.pid)
    assert seconds_until(lambda: all(manager.state == "serving" for manager in scene.status().managers))
    check_all_arrived(loads, [consumer], "left")
    wait_until(lambda: ec.channel("left-too", namespace=scene.namespace).stats().consumers == 0)
