"""Consumers that never return: memory stays bounded in bytes, the overflow policies hold, and other channels go on."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import psutil
import pytest
import ray

import echannel_ray as ec
from tests.clusters import on, wait_until
from tests.faults.parties import Process, numbered
from tests.faults.scene import Scene, check_all_arrived, seconds_until_flowing

EVENT_BYTES = 1000
PUBLISHED_BYTES = 40_000_000
WINDOW_BYTES = 8 << 20
# A window of each of the policies' channels, and again as much for what surrounds the events.
MAX_GROWTH_BYTES = 4 * 2 * WINDOW_BYTES


class Pusher(Process):
    """Publishes more than anybody's window holds, with each policy."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)

    def push(self, channel: str, overflow: str) -> dict[str, Any]:
        """How many `publish` calls said what, until the first that would wait for long."""
        answers = {"True": 0, "False": 0, "Overloaded": 0, "TimeoutError": 0}
        producer = ec.channel(channel).producer(overflow=overflow)
        for number in range(1, PUBLISHED_BYTES // EVENT_BYTES + 1):
            try:
                answers[str(producer.publish(numbered(1, number, EVENT_BYTES), timeout=1))] += 1
            except (TimeoutError, ec.Overloaded) as error:
                answers[type(error).__name__] += 1
                break
        return answers


def test_memory_is_bounded_and_the_policies_hold(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    policies = ("block", "raise", "drop_newest", "drop_oldest")
    stuck = scene.consumer(second, "fluent")
    for policy in policies:
        ray.get(stuck.subscribe.remote(f"stuck-{policy}", hold=True))
    load = {1: scene.load(first, 1, "fluent")}
    pusher = scene.keep(ray.remote(Pusher).options(**on(first), num_cpus=0).remote(scene.namespace))
    before = resident(scene, pusher, stuck)
    answers = {policy: ray.get(pusher.push.remote(f"stuck-{policy}", policy)) for policy in policies}
    grown = {who: bytes_now - before[who] for who, bytes_now in resident(scene, pusher, stuck).items()}
    with capsys.disabled():
        print("\n  4 x 40 MB for handlers that never return: grown by",
              {who: f"{count / 1e6:.0f} MB" for who, count in grown.items()}, end="")  # fmt: skip
    assert max(grown.values()) < MAX_GROWTH_BYTES
    total = PUBLISHED_BYTES // EVENT_BYTES
    for policy, refusal in (("block", "TimeoutError"), ("raise", "Overloaded")):
        assert answers[policy][refusal] == 1
        assert WINDOW_BYTES // 2 < answers[policy]["True"] * EVENT_BYTES <= WINDOW_BYTES
    assert answers["drop_newest"]["False"] > answers["drop_newest"]["True"] > 0
    # The same process, its other channel: nothing holds it up.
    seconds_until_flowing(load, [stuck], "fluent")

    ray.get(stuck.release.remote())
    for policy in policies:
        channel = f"stuck-{policy}"
        wanted = total if policy.startswith("drop") else answers[policy]["True"]
        wait_until(partial(is_accounted, stuck, channel, wanted))
        gaps = ray.get(stuck.gaps.remote(channel))
        assert bool(gaps) == policy.startswith("drop")
        # What is missing is what the gaps say, in its place; and nothing came twice or late.
        assert len(ray.get(stuck.faults.remote(channel))) == sum(gap.last < total for gap in gaps)
    stats = {policy: ec.channel(f"stuck-{policy}", namespace=scene.namespace).stats() for policy in policies}
    assert stats["drop_newest"].events_dropped == answers["drop_newest"]["False"]
    assert stats["drop_oldest"].events_dropped > total // 2
    check_all_arrived(load, [stuck], "fluent")


def test_what_is_meant_for_a_process_that_is_stopped_does_not_pile_up(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    stopped, staying = scene.consumer(second, "piled"), scene.consumer(second, "beside")
    load = {1: scene.load(first, 1, "beside")}
    pusher = scene.keep(ray.remote(Pusher).options(**on(first), num_cpus=0).remote(scene.namespace))
    before = resident(scene, pusher, staying)
    pid = ray.get(stopped.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        answers = ray.get(pusher.push.remote("piled", "block"))
        grown = {who: bytes_now - before[who] for who, bytes_now in resident(scene, pusher, staying).items()}
        # Its link is full. Those of the others are not.
        seconds_until_flowing(load, [staying], "beside")
    finally:
        os.kill(pid, signal.SIGCONT)
    with capsys.disabled():
        print("\n  40 MB for a process that is stopped: grown by",
              {who: f"{count / 1e6:.0f} MB" for who, count in grown.items()}, end="")  # fmt: skip
    assert answers["TimeoutError"] == 1
    assert max(grown.values()) < 3 * WINDOW_BYTES
    wait_until(lambda: ray.get(stopped.progress.remote("piled")) == {1: answers["True"]})
    assert ray.get(stopped.faults.remote("piled")) == []
    check_all_arrived(load, [staying], "beside")


def resident(scene: Scene, producer: Any, consumer: Any) -> dict[str, int]:
    first, second = (scene.concentrator(node).pid for node in scene.cluster.nodes)
    return {
        "producer": ray.get(producer.rss.remote()),
        "its concentrator": psutil.Process(first).memory_info().rss,
        "the consumer's": psutil.Process(second).memory_info().rss,
        "consumer": ray.get(consumer.rss.remote()),
    }


def is_accounted(consumer: Any, channel: str, wanted: int) -> bool:
    """Whether so many events were handled, or dropped and told of."""
    stats = ray.get(consumer.stats.remote(channel))
    return bool(stats.handled + stats.dropped == wanted)
