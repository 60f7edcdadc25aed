"""What Prometheus gets from Ray's agents while channels work, lose processes, and lose a concentrator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import ray

import echannel_ray as ec
from tests.cli.commands import ROOT
from tests.clusters import LocalCluster, kill, on, wait_until

NAMESPACE = "watched"
EVENT = b"." * 100_000
_SERIES = re.compile(r"^ray_echannel_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OURS = {"channel", "node", "modulator", "reason", "direction"}
# Ray's own, and those of histograms and of the build.
_OTHERS = {"Component", "NodeAddress", "SessionName", "Version", "WorkerId", "le", "version", "wire_version", "python"}


class Odd(ec.Modulator):
    def enqueue(self, event):
        if event[0] % 2:
            self.emit(event)


class Fragile(ec.Modulator):
    def enqueue(self, event):
        if event[0] == 13:
            raise ValueError("unlucky")
        self.emit(event)


@ray.remote
class Consumer:
    def __init__(self, channel, is_held=False, **options):
        ec.connect(NAMESPACE)
        self.released = threading.Event()
        self.seen = 0
        if not is_held:
            self.released.set()
        self.subscription = channel.subscribe(self.handle, on_error=lambda error: None, **options)

    def handle(self, event):
        self.released.wait()
        self.seen += 1

    def release(self):
        self.released.set()

    def ready(self):
        return self.seen


@ray.remote
class Producer:
    def __init__(self):
        ec.connect(NAMESPACE)
        self.producers = []

    def publish(self, channel, events):
        self.producers.append(channel.producer())
        self.producers[-1].publish_many(events)
        self.producers[-1].drain()
        return os.getpid()


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalCluster]:
    running = LocalCluster(nodes=2, cpus=8, metrics=True)
    try:
        ec.connect(NAMESPACE)
        yield running
        ec.shutdown(NAMESPACE)
    finally:
        running.stop()


def scrape(node: Any) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Families by name, with the values by our own labels; those of several concentrators of a node are summed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_export_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, Any] = defaultdict(lambda: defaultdict(float))
    for name, labels, value in _SERIES.findall(text):
        parsed = dict(_LABEL.findall(labels))
        assert {each for each in parsed if not each.startswith("otel_")} <= _OURS | _OTHERS
        key = tuple(sorted((k, v) for k, v in parsed.items() if k in {*_OURS, "le", "version"} and v))
        found[name][key] += float(value)
    return found


def labels(node: Any, channel: str, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"channel": f"{NAMESPACE}/{channel}", "node": node.node_id[:16], **more}.items()))


def total(node: Any, name: str, channel: str, **more: str) -> float:
    return scrape(node)[name].get(labels(node, channel, **more), 0.0)


def test_all_figures_are_those_of_the_load(nodes):
    first, second = nodes.nodes
    load, numbers, busy = (ec.channel(name, namespace=NAMESPACE) for name in ("load", "numbers", "busy"))
    held = Consumer.options(**on(second)).remote(load, is_held=True)
    odd = Consumer.options(**on(second)).remote(numbers, modulator=Odd())
    fragile = Consumer.options(**on(first)).remote(numbers, modulator=Fragile())
    listening = Consumer.options(**on(second)).remote(busy)
    ray.get([each.ready.remote() for each in (held, odd, fragile, listening)])
    with (
        load.producer(overflow="drop_newest") as dropping,
        numbers.producer() as producer,
        busy.producer() as talking,
    ):
        taken = sum(dropping.publish(EVENT) for _ in range(200))
        assert 0 < taken < 200
        producer.publish_many([[i] for i in range(100)])
        producer.drain()

        wanted = {"queue_depth", "consumer_lag_events", "pack_events"}
        seen: set[str] = set()  # gauges last for two reports at most, of a second each here, and need not come together

        def show_what_waits() -> bool:
            talking.publish(EVENT)  # of who is silent there are no packs to tell of
            near, far = scrape(first), scrape(second)
            if far["queue_depth"].get(labels(second, "load")) == taken:
                seen.add("queue_depth")
            if near["consumer_lag_events"].get((("channel", f"{NAMESPACE}/load"),)) == taken:
                seen.add("consumer_lag_events")
            if near["pack_events"].get(labels(first, "busy"), 0) > 0:
                seen.add("pack_events")
            return seen >= wanted

        try:
            wait_until(show_what_waits)
        except TimeoutError:
            assert seen == wanted
            raise
        ray.get(held.release.remote())
        dropping.drain()
    expected = [
        (first, "events_published_total", "load", {}, 200),
        (second, "events_delivered_total", "load", {}, taken),
        (first, "events_dropped_total", "load", {"reason": "newest"}, 200 - taken),
        (first, "bytes_total", "load", {"direction": "published"}, load.stats().bytes_published),
        (first, "events_published_total", "numbers", {}, 100),
        (second, "events_delivered_total", "numbers", {"modulator": "Odd"}, 50),
        (first, "events_delivered_total", "numbers", {"modulator": "Fragile"}, 99),
        (first, "modulator_errors_total", "numbers", {"modulator": "Fragile"}, 1),
        (second, "queue_depth", "load", {}, 0),
    ]

    def missing() -> list[Any]:
        shown = {node: scrape(node) for node in (first, second)}
        found = [(*each, shown[each[0]][each[1]].get(labels(each[0], each[2], **each[3]), 0.0)) for each in expected]
        return [each[1:] for each in found if each[-1] != each[-2]]

    try:
        wait_until(lambda: not missing())
    except TimeoutError:
        assert missing() == []
        raise
    assert total(first, "bytes_total", "load", direction="between_nodes") > taken * len(EVENT)
    odd_stats = next(each for each in numbers.stats().derived.values() if each.modulator == "Odd")
    assert total(first, "modulator_saved_bytes_total", "numbers", modulator="Odd") == odd_stats.saved_bytes > 0
    assert total(second, "delivery_latency_seconds_count", "load") > 0
    for node in (first, second):
        assert scrape(node)["concentrator_restarts_total"] == {(("node", node.node_id[:16]),): 0.0}
        wait_until(lambda: [*scrape(node)["build_info"].values()] == [1.0])  # noqa: B023 (it is called here)


def test_counts_outlive_their_processes_and_are_not_doubled_by_a_restart(nodes):
    second = nodes.nodes[1]
    channel = ec.channel("ends", namespace=NAMESPACE)
    consumer = Consumer.options(**on(second)).remote(channel)
    ray.get(consumer.ready.remote())
    leaving, killed = (Producer.options(**on(second)).remote() for _ in range(2))
    ray.get(leaving.publish.remote(channel, [*range(50)]))
    leaving.__ray_terminate__.remote()
    pid = ray.get(killed.publish.remote(channel, [*range(30)]))

    def published() -> float:
        return total(second, "events_published_total", "ends")

    wait_until(lambda: published() == 80)
    kill([psutil.Process(pid)])

    concentrators = {each.node_id: each.pid for each in ec.status(NAMESPACE).concentrators}
    kill([psutil.Process(concentrators[second.node_id])])
    ray.get(Producer.options(**on(second)).remote().publish.remote(channel, [*range(7)]))
    restarts = (("node", second.node_id[:16]),)
    wait_until(lambda: published() >= 87 and scrape(second)["concentrator_restarts_total"].get(restarts) == 1)
    # What came after the restart is told by those who were there before it too: they must not tell all again.
    wait_until(lambda: total(second, "events_delivered_total", "ends") >= 87)
    ray.get(Producer.options(**on(second)).remote().publish.remote(channel, [1]))
    wait_until(lambda: total(second, "events_delivered_total", "ends") >= 88)
    assert (published(), total(second, "events_delivered_total", "ends")) == (88, 88)
    assert scrape(second)["concentrator_restarts_total"][restarts] == 1


WITHOUT_AGENT = """
import ray
from ray._private.utils import get_dashboard_dependency_error
import echannel_ray as ec
from echannel_ray.session import endpoint_for

assert get_dashboard_dependency_error() is not None
ray.init("local", num_cpus=2, log_to_driver=False, object_store_memory=80_000_000)
channel = ec.channel("unseen")
with channel.subscribe(print) as subscription, channel.producer() as producer:
    for event in ("first", "second"):  # the concentrator still works when it has shown what it was told
        producer.deliver(event).result(timeout=30)
        endpoint_for(None).metrics_reporter.report()
    (concentrator,) = ec.status().concentrators
    print("restarts:", concentrator.restarts)
ec.shutdown()
ray.shutdown()
"""


def test_without_rays_agent_nothing_is_shown_and_nothing_fails(tmp_path):
    # As with plain `ray`: what its agents and its dashboard import is not there.
    (tmp_path / "aiohttp_cors.py").write_text("raise ModuleNotFoundError('not installed', name='aiohttp_cors')")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_AGENT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stdout.splitlines()[-3:] == ["first", "second", "restarts: 0"], done.stderr
