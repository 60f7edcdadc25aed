"""Two pods with Ray: their probes, a drain under load, and a head that is started again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
import ray

import echannel_ray as ec
from echannel_ray.models import Status
from echannel_ray.overview.readings import read_status
from tests.clusters import wait_until
from tests.faults.scene import kill, stopped
from tests.pod.parties import ConsumerActor, LastingLoadActor, RelayActor, SinkActor, SourceActor
from tests.pod.pods import Pod, Pods, drain, head_and_others, on

NAMESPACE = "pods"


@pytest.fixture(scope="module")
def pods() -> Iterator[Pods]:
    # A worker whose head is gone waits a minute for another one.
    running = Pods({"RAY_gcs_rpc_server_reconnect_timeout_s": "5"})
    try:
        yield running
    finally:
        running.clear()


@pytest.fixture(scope="module")
def worker(pods: Pods) -> Pod:
    """Joined, with the driver at the head, and a concentrator at each node."""
    pods.head.wait_ready()
    joining = pods.start_worker()
    assert joining.problems(), "it has not joined yet"
    joining.wait_ready()
    ray.init(pods.address, log_to_driver=False)
    return joining


def has_come(reader: Any, channel: str, number: int, count: int) -> bool:
    return bool(ray.get(reader.progress.remote(channel)).get(number, 0) > count)


def raylet_of(pod: Pod) -> int:
    started = psutil.Process(pod.process.pid).children(recursive=True)
    return int(next(each.pid for each in started if each.name() == "raylet"))


def status() -> Status:
    return read_status(NAMESPACE)


def concentrator_of(node_id: str) -> Any:
    return next(each for each in status().concentrators if each.node_id == node_id)


@pytest.fixture(scope="module")
def consumer(worker: Pod) -> Any:
    """At the head, of what loads at the worker publish."""
    head, _ = head_and_others()
    actor = ConsumerActor.options(**on(head)).remote(NAMESPACE)
    ray.get(actor.subscribe.remote("plain"), timeout=120)
    return actor


def test_a_pod_is_ready_while_all_that_runs_in_it_answers(pods: Pods, worker: Pod, consumer: Any):
    _, other = head_and_others()
    probe = ConsumerActor.options(**on(other)).remote(NAMESPACE)  # so that the worker has a concentrator
    ray.get(probe.subscribe.remote("plain"), timeout=120)
    wait_until(lambda: not pods.head.problems() and not worker.problems())
    parts = worker.ask("/readyz")[1]["parts"]
    assert parts == {concentrator_of(other).name: "serving"}
    assert len(pods.head.ask("/readyz")[1]["parts"]) == 4, "name server, two managers, its concentrator"

    manager = status().managers[0]
    with stopped(manager.pid):
        wait_until(lambda: any(f"{manager.name} does not answer" in each for each in pods.head.problems()))
        wait_until(lambda: any(f"{manager.name} does not answer" in each for each in worker.problems()))
        assert pods.head.ask("/healthz")[0] == 200
    wait_until(lambda: not pods.head.problems() and not worker.problems())

    hub = concentrator_of(other)
    with stopped(hub.pid):
        wait_until(lambda: any(f"{hub.name} does not answer" in each for each in worker.problems()))
        assert not [each for each in pods.head.problems() if hub.name in each], "which is its own pod's trouble"
    wait_until(lambda: not worker.problems())

    with stopped(raylet_of(worker)):  # else it may be there again before anybody looks
        kill(hub.pid)
        wait_until(lambda: any(f"{hub.name} has ended, and has not been started" in each for each in worker.problems()))
    wait_until(lambda: not worker.problems())
    assert concentrator_of(other).pid != hub.pid
    ray.kill(probe)


def test_a_raylet_that_hangs_is_seen(worker: Pod):
    pid = raylet_of(worker)
    with stopped(pid):
        wait_until(lambda: worker.problems() == [f"the raylet (process {pid}) does not answer"])
    wait_until(lambda: not worker.problems())


def test_a_worker_that_ends_under_load_loses_nothing(pods: Pods, worker: Pod, consumer: Any):
    head, other = head_and_others()
    notes = {name: pods.directory / name for name in ("plain", "kept")}
    kept = ConsumerActor.options(**on(head)).remote(NAMESPACE)
    make = ray.remote(num_cpus=0)(lambda: ec.channel("kept", namespace=NAMESPACE, retain=ec.Retention()).name)
    ray.get(make.options(scheduling_strategy=on(head)["scheduling_strategy"]).remote(), timeout=60)
    ray.get(kept.subscribe.remote("kept"), timeout=60)
    loads = {}
    for number, (channel, note) in enumerate(notes.items(), 1):
        loads[channel] = LastingLoadActor.options(**on(other)).remote(NAMESPACE, number, note)
        ray.get(loads[channel].start.remote(channel), timeout=60)
    sink = SinkActor.options(**on(head)).remote(NAMESPACE)
    ray.get(sink.events.remote(), timeout=60)
    relays = [RelayActor.options(**on(node)).remote(NAMESPACE, i) for i, node in enumerate((head, other))]
    ray.get([relay.progress.remote() for relay in relays], timeout=60)
    source = SourceActor.options(**on(head)).remote(NAMESPACE)
    ray.get(source.publish.remote(1000))
    wait_until(lambda: ray.get(relays[1].progress.remote()) > 10)
    for number, (channel, reader) in enumerate((("plain", consumer), ("kept", kept)), 1):
        wait_until(partial(has_come, reader, channel, number, 500))

    drained = drain(worker)  # as preStop does
    assert (drained.returncode, drained.stderr) == (0, "")
    assert worker.problems() == ["this node is being drained, to be removed"]
    assert [each.node_id for each in status().concentrators] == [head], "it has retired"
    total = ray.get(source.publish.remote(100))
    for number, (channel, reader) in enumerate((("plain", consumer), ("kept", kept)), 1):
        wait_until(notes[channel].exists)
        published, _, reason = notes[channel].read_text().partition(" ")
        assert "is being drained" in reason
        assert ray.get(reader.progress.remote(channel)) == {number: int(published)}
        assert ray.get(reader.faults.remote(channel)) == []
    wait_until(lambda: len(ray.get(sink.events.remote())) >= total)
    relayed = ray.get(sink.events.remote())
    assert sorted(event for _, event in relayed) == list(range(1, total + 1)), "each went to one relay, and once"
    assert {number for number, _ in relayed} == {0, 1}

    newcomer = ConsumerActor.options(**on(other)).remote(NAMESPACE)
    with pytest.raises(ray.exceptions.RayError, match="is being drained"):
        ray.get(newcomer.subscribe.remote("plain"), timeout=60)
    # The code of `ray start` that was ended in order.
    assert worker.end() == 1
    assert not worker.left_over()
    for actor in (kept, sink, source, relays[0]):
        ray.kill(actor)


def test_a_head_that_is_started_again_serves_anew(pods: Pods, worker: Pod):
    second = pods.start_worker()
    second.wait_ready()
    ray.shutdown()
    assert pods.head.end() == 1
    assert not pods.head.left_over()
    wait_until(lambda: second.process.poll() is not None or any(pods.address in each for each in second.problems()))
    assert second.wait() == 1, "without a GCS that is kept in Redis a worker ends with its head"
    assert not second.left_over()

    head = pods.start_head()
    head.wait_ready()
    ray.init(pods.address, log_to_driver=False)  # before there is another node, which older versions of Ray might join
    third = pods.start_worker()
    third.wait_ready()
    here, other = head_and_others()
    consumer = ConsumerActor.options(**on(here)).remote(NAMESPACE)
    ray.get(consumer.subscribe.remote("plain"), timeout=120)
    note = pods.directory / "again"
    load = LastingLoadActor.options(**on(other)).remote(NAMESPACE, 9, note)
    ray.get(load.start.remote("plain"), timeout=120)
    wait_until(partial(has_come, consumer, "plain", 9, 100))
    wait_until(lambda: not head.problems() and not third.problems())
    assert third.end() == 1  # without preStop: its own SIGTERM drains
    published, _, reason = note.read_text().partition(" ")
    assert "is being drained" in reason
    wait_until(lambda: ray.get(consumer.progress.remote("plain")) == {9: int(published)}, 5)
    assert ray.get(consumer.faults.remote("plain")) == []
