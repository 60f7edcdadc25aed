"""A concentrator without endpoints retires, so that its node can be removed; whoever comes later makes another."""

from __future__ import annotations

from pathlib import Path

import ray

from echannel_ray.actors import startup
from echannel_ray.actors.concentrator import Concentrator
from echannel_ray.ids import node_number
from echannel_ray.transport.unix import SocketDirectory
from tests.clusters import wait_until
from tests.faults.scene import Scene, check_all_arrived, seconds_until_flowing

LINGER_SECONDS = 0.5


def is_there(name: str) -> bool:
    try:
        startup.find(name)
    except LookupError:
        return False
    return True


def test_a_concentrator_without_endpoints_retires_and_another_is_made(scene: Scene):
    first, second = scene.cluster.nodes
    name = startup.concentrator_name(scene.namespace, node_number(second.node_id))
    arguments = (scene.namespace, second.node_id, LINGER_SECONDS)
    made = startup.create(name, Concentrator, arguments, second.node_id)
    socket = Path(ray.get(made.ready.remote(), timeout=30))
    staying = scene.consumer(first, "events")
    consumer = scene.consumer(second, "events")
    assert socket.exists()
    pid = ray.get(made.describe.remote())["pid"]
    assert scene.concentrator(second).pid == pid

    ray.kill(consumer)
    wait_until(lambda: not is_there(name), 30)
    assert not socket.exists()
    assert not Path(socket.parent).exists(), "nothing of it is left on the node"
    wait_until(lambda: [part.node_id for part in scene.status().concentrators] == [first.node_id])

    load = scene.load(second, 1, "events")
    seconds_until_flowing({1: load}, [staying], "events")
    check_all_arrived({1: load}, [staying], "events")
    assert scene.concentrator(second).pid != pid
    assert Path(SocketDirectory(scene.namespace, node_number(second.node_id))).exists()
