"""`kill -9` around retained channels: what a log on disk has is neither lost nor doubled, and what is lost is told."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import chain
from typing import Any

import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.parties import Checker, numbered
from tests.faults.scene import BACK_SECONDS, Scene, check_all_arrived, kill, seconds_until_flowing, wait_for

DISK = ec.Retention(disk=True)
GIVEN_UP_SECONDS = 20.0


def kill_parts(scene: Scene, *parts: str) -> None:
    """Those whose names have one of these in them."""
    for name, pid in scene.pids().items():
        if any(part in name for part in parts):
            kill(pid)


def read_all(channel: ec.EventChannel, total: int) -> Checker:
    """What is in the logs, to their end."""
    checker = Checker()
    with channel.subscribe(start="earliest") as subscription:
        for _ in range(total):
            checker(subscription.get(timeout=BACK_SECONDS))
        with pytest.raises(TimeoutError):
            subscription.get(timeout=0.2)
    return checker


def numbers_of(members: list[Any], channel: str) -> list[int]:
    return sorted(chain(*ray.get([member.numbers.remote(channel) for member in members])))


ROUNDS = [["concentrator"], ["concentrator"], ["manager", "name-server"], ["concentrator", "manager"], ["concentrator"]]


def test_logs_on_disk_lose_double_and_reorder_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]):
    first, second = scene.cluster.nodes
    channel = ec.channel("events", namespace=scene.namespace, retain=DISK)
    ec.channel("shared", namespace=scene.namespace, retain=DISK)
    consumers = [scene.consumer(node, "events") for node in (first, second)]
    members = [scene.consumer(node, "shared", group="members") for node in (first, second, second)]
    loads = {i: scene.load(node, i, "events") for i, node in enumerate((first, second, second), 1)}
    shared = scene.load(second, 9, "shared", burst=20)
    seconds_until_flowing(loads, consumers, "events")
    for parts in ROUNDS:
        kill_parts(scene, *parts)
        flowing = seconds_until_flowing(loads, consumers, "events")
        with capsys.disabled():
            print(f"\n  kill -9 of each {' and '.join(parts)}: events flow after {flowing:.2f} s", end="")
    total = check_all_arrived(loads, consumers, "events")
    assert total > 0
    checker = read_all(channel, total)
    assert checker.faults == []
    for consumer in consumers:
        assert ray.get(consumer.gaps.remote("events")) == []
    # No member died, so each event came to one of them, once.
    total = ray.get(shared.stop.remote())
    wait_until(lambda: len(numbers_of(members, "shared")) >= total)
    assert numbers_of(members, "shared") == [*range(1, total + 1)]


def has_grown(seen: list[bytes], size: int) -> bool:
    return len(seen) > size


def test_behind_a_modulator_nothing_on_disk_is_lost(scene: Scene):
    _, second = scene.cluster.nodes
    channel = ec.channel("derived", namespace=scene.namespace, retain=DISK)
    seen: list[bytes] = []
    with channel.subscribe(seen.append, modulator=ec.FIFOModulator()):
        load = scene.load(second, 1, "derived")
        for _ in range(2):
            wait_until(partial(has_grown, seen, len(seen) + 5000))
            kill(scene.concentrator(second).pid)
        total = ray.get(load.stop.remote())
        wanted = {numbered(1, number) for number in range(1, total + 1)}
        wait_until(lambda: wanted <= {*seen})
    seen.clear()
    # Nobody consumes it now: who comes later does not get what was published meanwhile, nor what others had.
    with channel.producer() as producer:
        producer.publish(numbered(2, 1))
        producer.drain(timeout=20)
        with channel.subscribe(seen.append, modulator=ec.FIFOModulator()):
            producer.publish(numbered(2, 2))
            wait_until(lambda: seen)
            assert seen == [numbered(2, 2)]


def test_what_a_log_in_memory_loses_is_told_and_what_comes_later_arrives(scene: Scene):
    first, second = scene.cluster.nodes
    ec.channel("volatile", namespace=scene.namespace, retain=ec.Retention())
    slow = scene.consumer(first, "volatile", hold=True)
    consumer = scene.consumer(first, "volatile")
    load = scene.load(second, 1, "volatile", size_bytes=10_000)
    seconds_until_flowing({1: load}, [consumer], "volatile")
    wait_until(lambda: ray.get(load.progress.remote()) > 2000)  # more than the slow one's window holds
    kill(scene.concentrator(second).pid)
    seconds_until_flowing({1: load}, [consumer], "volatile")
    wait_until(lambda: ray.get(consumer.gaps.remote("volatile")))
    [missing] = ray.get(consumer.gaps.remote("volatile"))
    assert isinstance(missing, ec.EventsMissing)
    assert missing.last is None
    ray.get(slow.release.remote())
    total = ray.get(load.stop.remote())
    for each in (slow, consumer):
        wait_for({1: total}, each.progress, "volatile")
    assert all("missing before" in fault for fault in ray.get(slow.faults.remote("volatile")))
    assert [each.log for each in ray.get(slow.gaps.remote("volatile"))] == [missing.log]


def test_a_group_goes_on_where_it_was(scene: Scene):
    channel = ec.channel("positions", namespace=scene.namespace, retain=DISK)
    with channel.producer() as producer:
        producer.publish_many(range(100))
    with channel.subscribe(group="g", start="earliest") as subscription:
        assert [subscription.get(timeout=20) for _ in range(40)] == [*range(40)]
    kill_parts(scene, "concentrator")
    with channel.subscribe(group="g") as subscription:
        assert [subscription.get(timeout=20) for _ in range(60)] == [*range(40, 100)]


def test_who_subscribes_while_a_log_is_away_gets_what_is_new(scene: Scene):
    first, _ = scene.cluster.nodes
    channel = ec.channel("away", namespace=scene.namespace, retain=DISK)
    with channel.producer() as producer:
        producer.publish_many(range(100))
        producer.drain(timeout=20)
        kill(scene.concentrator(first).pid)
        with channel.subscribe() as subscription, channel.subscribe(start="earliest") as all_of_it:
            producer.publish("new")
            assert subscription.get(timeout=20) == "new"
            assert [all_of_it.get(timeout=20) for _ in range(101)] == [*range(100), "new"]


def test_of_a_killed_producer_a_gapless_prefix_is_logged(scene: Scene):
    first, second = scene.cluster.nodes
    channel = ec.channel("producers", namespace=scene.namespace, retain=DISK)
    consumer = scene.consumer(first, "producers")
    dying = scene.load(second, 1, "producers", pause_seconds=0.0, burst=500)
    staying = scene.load(second, 2, "producers")
    seconds_until_flowing({1: dying, 2: staying}, [consumer], "producers")
    kill(ray.get(dying.pid.remote()))
    seconds_until_flowing({2: staying}, [consumer], "producers")
    total = ray.get(staying.stop.remote())
    wait_until(lambda: ray.get(consumer.progress.remote("producers"))[2] == total)
    prefix = ray.get(consumer.progress.remote("producers"))[1]
    assert read_all(channel, prefix + total).faults == []
    assert ray.get(consumer.progress.remote("producers")) == {1: prefix, 2: total}
    assert ray.get(consumer.faults.remote("producers")) == []


def test_a_deliver_ends_whatever_is_killed(scene: Scene):
    first, second = scene.cluster.nodes
    channel = ec.channel("delivered", namespace=scene.namespace, retain=DISK)
    consumers = [scene.consumer(node, "delivered") for node in (first, second)]
    ended = threading.Event()
    receipts, failures, troubles = [], [], []

    def deliver() -> None:
        try:
            with channel.producer() as producer:
                number = 0
                while not ended.is_set():
                    number += 1
                    try:
                        receipts.append(producer.deliver(numbered(1, number)).result(timeout=BACK_SECONDS))
                    except ec.DeliveryFailed as error:
                        failures.append(error)
        except BaseException as error:
            troubles.append(error)

    delivering = threading.Thread(target=deliver)
    delivering.start()

    def fifty_more() -> None:
        before = len(receipts)
        wait_until(lambda: troubles or len(receipts) > before + 50)

    for node in (first, second, first):
        fifty_more()
        kill(scene.concentrator(node).pid)
    fifty_more()
    ended.set()
    delivering.join(BACK_SECONDS)
    assert troubles == []
    assert len(failures) <= 3
    assert {receipt.consumers for receipt in receipts} == {2}
    for consumer in consumers:
        wait_for({1: len(receipts) + len(failures)}, consumer.progress, "delivered")
        assert ray.get(consumer.faults.remote("delivered")) == []


def take_for(seconds: float, subscription: ec.Subscription, checker: Checker) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        checker(subscription.get(timeout=20))


def test_the_log_of_a_node_that_died_is_missed_after_a_while(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("echannel_ray.retained.log_reader._PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("echannel_ray.retained.log_reader._LOOK_SECONDS", 0.2)
    first, _ = scene.cluster.nodes
    third = scene.cluster.add_node()
    channel = ec.channel("nodes", namespace=scene.namespace, retain=DISK)
    lost, staying = scene.load(third, 1, "nodes"), scene.load(first, 2, "nodes")
    checker = Checker()
    with channel.subscribe(start="earliest") as subscription:
        while checker.last.keys() != {1, 2}:
            checker(subscription.get(timeout=20))
        assert ray.get(lost.progress.remote()) > 0
        scene.cluster.kill_node(third)
        with pytest.raises(ec.EventsMissing) as missing:
            take_for(GIVEN_UP_SECONDS, subscription, checker)
        assert missing.value.last is None
        total = ray.get(staying.stop.remote())
        while checker.last[2] < total:
            checker(subscription.get(timeout=20))
    assert checker.faults == []
