"""A head that dies and comes back while its GCS is kept in Redis: the workers go on, and are served again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from echannel_ray.actors import startup
from echannel_ray.overview.readings import read_status
from tests.clusters import free_port, wait_until
from tests.faults.scene import check_all_arrived, seconds_until_flowing
from tests.pod.parties import ConsumerActor, LoadActor
from tests.pod.pods import Pod, Pods, head_and_others, on

NAMESPACE = "redis"
SERVER = shutil.which("redis-server")

pytestmark = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    port = free_port()
    command = [str(SERVER), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        yield f"127.0.0.1:{port}"
        server.terminate()


@pytest.fixture
def pods(redis: str) -> Iterator[Pods]:
    # A head calls the former one dead when five looks have missed it.
    heads = {"RAY_REDIS_ADDRESS": redis, "RAY_health_check_period_ms": "500"}
    running = Pods({"RAY_gcs_rpc_server_reconnect_timeout_s": "60"}, heads)
    try:
        yield running
    finally:
        running.clear()


def detached(name: str) -> dict[str, Any]:
    """It outlives its driver, which has to leave and come back."""
    return {"lifetime": "detached", "name": name, "namespace": "tests"}


def has_lost_the_head(pod: Pod, address: str) -> bool:
    return any(f"the GCS at {address} does not answer" in each for each in pod.problems())


def again(name: str) -> Any:
    return ray.get_actor(name, namespace="tests")


def test_workers_go_on_without_the_head_and_are_served_by_the_next(pods: Pods):
    pods.head.wait_ready()
    workers = []
    for _ in range(2):  # one after the other: on one machine two raylets may take the same socket
        workers.append(pods.start_worker())
        workers[-1].wait_ready()
    ray.init(pods.address, log_to_driver=False)
    head, first, second = head_and_others(2)
    consumer = ConsumerActor.options(**on(first), **detached("consumer")).remote(NAMESPACE)
    ray.get(consumer.subscribe.remote("events"), timeout=120)
    load = LoadActor.options(**on(second), **detached("load")).remote(NAMESPACE, 1)
    ray.get(load.start.remote("events"), timeout=120)
    seconds_until_flowing({1: load}, [consumer], "events")
    before = ray.get(consumer.progress.remote("events"))[1]
    ray.shutdown()

    pods.head.clear()  # `kill -9` to all of it
    for pod in workers:
        wait_until(partial(has_lost_the_head, pod, pods.address))
    pods.start_head().wait_ready()
    ray.init(pods.address, log_to_driver=False)
    consumer, load = again("consumer"), again("load")
    assert ray.get(consumer.progress.remote("events"), timeout=60)[1] > before, "events flowed without a head"
    seconds_until_flowing({1: load}, [consumer], "events")
    # At the new head too, so that its concentrator has to be let in by those who knew another name server.
    wait_until(lambda: startup.head_node_id() not in (None, head))  # Ray has noticed that the former one is dead
    newcomers = [ConsumerActor.options(**on(node)).remote(NAMESPACE) for node in (second, head_and_others(2)[0])]
    ray.get([newcomer.subscribe.remote("events") for newcomer in newcomers], timeout=60)
    seconds_until_flowing({1: load}, [consumer, *newcomers], "events", 60)
    check_all_arrived({1: load}, [consumer], "events")
    status = read_status(NAMESPACE)
    assert {each.node_id for each in status.concentrators} >= {first, second}
    assert status.name_server.node_id != head
    for pod in (pods.head, *workers):
        pod.wait_ready()
