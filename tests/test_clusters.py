"""The clusters that other tests run on."""

from __future__ import annotations

import os

import psutil
import pytest
import ray
from ray.exceptions import RayActorError

from tests.clusters import on, open_to_others, wait_until


class Resident:
    def where(self) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()


ResidentActor = ray.remote(Resident)


@pytest.fixture(scope="module")
def two_nodes(cluster):
    """Of its own, since one of them is killed. Ray calls a node dead that five looks have missed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_health_check_period_ms", "300")
        return cluster(nodes=2)


def test_listens_on_loopback_only(two_nodes):
    ray.get([ResidentActor.options(**on(node)).remote().where.remote() for node in two_nodes.nodes])
    processes = [psutil.Process(), *two_nodes.processes()]
    assert len(processes) > 4
    assert open_to_others(processes) == []


def test_a_killed_node_takes_its_actors_with_it(two_nodes):
    first, second = two_nodes.nodes
    residents = [ResidentActor.options(**on(node)).remote() for node in (first, second)]
    (first_id, _), (second_id, second_pid) = ray.get([resident.where.remote() for resident in residents])
    assert (first_id, second_id) == (first.node_id, second.node_id)

    two_nodes.kill_node(second)

    assert not psutil.pid_exists(second_pid)
    assert ray.get(residents[0].where.remote())[0] == first.node_id
    wait_until(lambda: not node_alive(second.node_id), timeout=60)
    with pytest.raises(RayActorError):
        ray.get(residents[1].where.remote(), timeout=30)


def test_another_cluster_replaces_the_one_before(cluster, two_nodes):
    before = two_nodes.processes()
    assert len(cluster(nodes=1).nodes) == 1
    assert not any(process.is_running() for process in before)


def node_alive(node_id: str) -> bool:
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())
