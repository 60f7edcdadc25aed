"""Direct links between processes of a node: they come and go by themselves, and lose, double and reorder nothing."""

from __future__ import annotations

from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.parties import numbered
from tests.faults.scene import (
    BACK_SECONDS,
    Scene,
    check_all_arrived,
    kill,
    seconds_until_flowing,
    stopped,
    wait_for,
)

BUSY: dict[str, Any] = {"burst": 5, "pause_seconds": 0.0005}


def linked(scene: Scene, channel: str, number: int = 1) -> tuple[Any, Any]:
    """A producer and a consumer on the first node, and the link between them."""
    first = scene.cluster.nodes[0]
    consumer = scene.consumer(first, channel)
    load = scene.load(first, number, channel, **BUSY)
    wait_for_link(load, consumer)
    return load, consumer


def wait_for_link(load: Any, consumer: Any) -> None:
    _, theirs = ray.get(consumer.endpoint.remote())
    wait_until(lambda: theirs in ray.get(load.neighbours.remote()))
    _, ours = ray.get(load.endpoint.remote())
    wait_until(lambda: ours in ray.get(consumer.neighbours.remote()))


def test_who_talks_much_gets_one_and_only_on_its_node(scene: Scene):
    load, consumer = linked(scene, "near")
    first, second = scene.cluster.nodes
    far = scene.consumer(second, "far")
    to_far = scene.load(first, 2, "far", **BUSY)
    seconds_until_flowing({2: to_far}, [far], "far")
    check_all_arrived({1: load}, [consumer], "near")
    check_all_arrived({2: to_far}, [far], "far")
    assert ray.get([to_far.neighbours.remote(), far.neighbours.remote()]) == [[], []]


def test_the_silence_of_the_concentrator_stops_nothing_between_them(scene: Scene):
    first = scene.cluster.nodes[0]
    consumer = scene.consumer(first, "silence")
    with ec.channel("silence", namespace=scene.namespace).producer() as producer:
        number = 0

        def deliver() -> None:
            nonlocal number
            number += 1
            producer.deliver(numbered(1, number)).result(timeout=BACK_SECONDS)

        while not ray.get(consumer.neighbours.remote()):
            for _ in range(100):
                deliver()
        with stopped(scene.concentrator(first).pid):
            for _ in range(1000):
                deliver()
            for _ in range(20_000):
                number += 1
                producer.publish(numbered(1, number), timeout=BACK_SECONDS)
            deliver()
    assert ray.get(consumer.progress.remote("silence")) == {1: number}
    assert ray.get(consumer.faults.remote("silence")) == []


def test_the_death_of_the_concentrator_again_and_again(scene: Scene):
    load, consumer = linked(scene, "restarts")
    for _ in range(3):
        kill(scene.concentrator(scene.cluster.nodes[0]).pid)
        seconds_until_flowing({1: load}, [consumer], "restarts")
        wait_until(lambda: scene.status().concentrators[0].endpoints)
    check_all_arrived({1: load}, [consumer], "restarts")


def test_links_that_end_in_the_middle(scene: Scene):
    load, consumer = linked(scene, "ending")
    ended = 0
    for round_number in range(20):
        ended += ray.get((load if round_number % 2 else consumer).end_direct_links.remote())
        wait_until(lambda: ray.get(load.neighbours.remote()) == [])
        ray.get(load.may_link_again.remote())
        wait_for_link(load, consumer)
    assert ended >= 20
    assert check_all_arrived({1: load}, [consumer], "ending")


@pytest.mark.parametrize("disk", [False, True], ids=["in memory", "on disk"])
def test_a_log_is_reached_by_one_too(scene: Scene, disk: bool):
    first = scene.cluster.nodes[0]
    name = f"log-{disk}"
    ec.channel(name, retain=ec.Retention(disk=disk), namespace=scene.namespace)
    consumer = scene.consumer(first, name)
    load = scene.load(first, 1, name, **BUSY)
    for round_number in range(10):
        wait_until(lambda: ray.get(load.neighbours.remote()) and ray.get(consumer.neighbours.remote()))
        for each in (load, consumer):
            ray.get(each.end_direct_links.remote() if round_number % 2 else each.may_link_again.remote())
    if disk:
        kill(scene.concentrator(first).pid)
        seconds_until_flowing({1: load}, [consumer], name)
    assert check_all_arrived({1: load}, [consumer], name)


def test_streams_that_go_over_from_one_way_to_the_other(scene: Scene):
    """While others consume too, what both get goes by the concentrator."""
    load, consumer = linked(scene, "joining")
    channel = ec.channel("joining", namespace=scene.namespace)
    for _ in range(20):
        with channel.subscribe() as other:
            other.get(timeout=BACK_SECONDS)
    assert check_all_arrived({1: load}, [consumer], "joining")


def test_both_begin_at_once(scene: Scene):
    first = scene.cluster.nodes[0]
    pairs = []
    for i in range(4):
        one, other = (scene.consumer(first, f"both-{i}-{side}") for side in "ab")
        for side, consumer, sender in (("a", one, other), ("b", other, one)):
            ray.get(sender.publish_numbered.remote(f"both-{i}-{side}", 3000))
            pairs.append((consumer, f"both-{i}-{side}"))
    for consumer, channel in pairs:
        wait_for({1: 3000}, consumer.progress, channel)
        assert ray.get(consumer.faults.remote(channel)) == []


def progress(consumer: Any, channel: str) -> dict[int, int]:
    found: dict[int, int] = ray.get(consumer.progress.remote(channel))
    return found


def test_of_a_producer_that_is_killed_arrives_a_prefix_without_a_gap(scene: Scene):
    load, consumer = linked(scene, "producer")
    kill(ray.get(load.pid.remote()))
    wait_until(lambda: ray.get(consumer.holdings.remote())["received_flows"] == 0)
    assert ray.get(consumer.faults.remote("producer")) == []
    assert ray.get(consumer.neighbours.remote()) == []


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a child that lives on"])
def test_a_consumer_that_is_killed_is_let_go_of(scene: Scene, forks: bool):
    name = f"consumer-{forks}"
    load, consumer = linked(scene, name)
    staying = scene.consumer(scene.cluster.nodes[0], "another")
    to_another = scene.load(scene.cluster.nodes[0], 2, "another")
    child = ray.get(consumer.fork.remote()) if forks else None
    try:
        kill(ray.get(consumer.pid.remote()))
        wait_until(lambda: ray.get(load.holdings.remote())["recipients"] == 0)
        wait_until(lambda: ray.get(load.neighbours.remote()) == [])
        seconds_until_flowing({2: to_another}, [staying], "another")
        assert ray.get(load.stop.remote())
    finally:
        if child is not None:
            kill(child)
    check_all_arrived({2: to_another}, [staying], "another")


def test_a_neighbour_that_is_stopped_holds_up_nobody_else(scene: Scene):
    """Its link fills up; the process that writes to it goes on with all others, by links like that one."""
    first = scene.cluster.nodes[0]
    slow, quick = scene.consumer(first, "slow"), scene.consumer(first, "quick")
    load = scene.load(first, 1, "slow", size_bytes=10_000, overflow="drop_newest", **BUSY)
    wait_for_link(load, slow)
    ray.get(load.start_another.remote("quick"))
    wait_for_link(load, quick)
    with stopped(ray.get(slow.pid.remote())):
        stats = ec.channel("slow", namespace=scene.namespace)
        wait_until(lambda: stats.stats().events_dropped > 0)
        before = progress(quick, "quick").get(2, 0)
        wait_until(lambda: progress(quick, "quick").get(2, 0) > before + 1000)
    assert ray.get(quick.faults.remote("quick")) == []


def test_they_are_bounded_and_idle_ones_give_their_place_away(scene: Scene):
    first = scene.cluster.nodes[0]
    consumers = [scene.consumer(first, f"bound-{i}") for i in range(2)]
    load = scene.load(first, 1, "bound-0", **BUSY)
    ray.get(load.limit_direct_links.remote(1, 0.2))
    wait_for_link(load, consumers[0])
    ray.get(load.start_another.remote("bound-1"))
    wait_until(lambda: progress(consumers[1], "bound-1").get(2, 0) > 500)
    _, kept = ray.get(consumers[0].endpoint.remote())
    assert ray.get(load.neighbours.remote()) == [kept]
    ray.get(load.stop.remote())  # of the first; the second goes on
    wait_for_link(load, consumers[1])
    assert len(ray.get(load.neighbours.remote())) == 1
    ray.get(load.stop_another.remote())
    wait_until(lambda: ray.get(load.neighbours.remote()) == [])  # nobody uses it
    for consumer, channel in zip(consumers, ("bound-0", "bound-1"), strict=True):
        assert ray.get(consumer.faults.remote(channel)) == []
