"""Keys and tokens stand where they belong: not in logs, environments, command lines or Ray's tables."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

import psutil
import ray
from ray._private import state

import echannel_ray as ec
from echannel_ray.actors import startup
from echannel_ray.ids import node_number
from echannel_ray.retained.log_directory import directory_of
from tests.clusters import processes_of
from tests.conftest import OUR_DIRECTORY
from tests.faults.scene import Scene, kill

MAX_READ_BYTES = 8 << 20


def secrets_of(scene: Scene) -> dict[str, bytes]:
    """What must not be found: any private key at all, and the token of a gateway that is open."""
    endpoint = ec.connect(namespace=scene.namespace).gateway()
    return {"a key": b"PRIVATE KEY", "a gateway's token": endpoint.token.encode()}


def found_in(data: bytes, secrets: dict[str, bytes]) -> list[str]:
    return [name for name, secret in secrets.items() if secret in data]


def is_private(path: Path) -> bool:
    """Whether no other user can get at it."""
    status = path.lstat()
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def test_keys_and_tokens_are_only_where_they_belong(scene: Scene):
    secrets = secrets_of(scene)
    scene.consumer(scene.cluster.nodes[1], "events")
    kill(scene.pids()[startup.name_server_name(scene.namespace)])  # what is logged of a restart, too
    scene.status()
    for node in scene.cluster.nodes:
        kill(scene.concentrator(node).pid)
        assert startup.call(partial(_concentrator, scene, node.node_id), "ready")
    kept = directory_of(scene.namespace, node_number(ray.get_runtime_context().get_node_id())) / "gateway.identity"
    read = []
    for path in OUR_DIRECTORY.rglob("*"):
        made_by_a_test = any(part.startswith("pytest-of-") for part in path.parts)
        if made_by_a_test or not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            found = found_in(file.read(MAX_READ_BYTES), secrets)
        read.append(path)
        # A gateway's secrets are kept for its concentrator's successor; other namespaces may have had gateways, too.
        of_gateway = path.name == kept.name and path.parent.parent == kept.parent.parent
        assert not found or (of_gateway and is_private(path) and is_private(path.parent)), (path, found)
        assert "a gateway's token" not in found or path == kept, path
    assert [path for path in read if path.name.startswith("worker-")], "no logs were read"
    for node in scene.cluster.nodes:
        for process in processes_of(node):
            for name in ("environ", "cmdline"):
                assert not found_in(Path(f"/proc/{process.pid}/{name}").read_bytes(), secrets), process.name()


def _concentrator(scene: Scene, node_id: str) -> startup.Handle:
    return startup.find(startup.concentrator_name(scene.namespace, node_number(node_id)))


def test_what_ray_tells_of_its_actors_has_no_keys(scene: Scene):
    secrets = secrets_of(scene)
    table = state.state._connect_and_get_accessor().get_actor_table(None, None)  # as bytes, before anything is left out
    assert len(table) >= 4
    assert not [found for row in table for found in found_in(row, secrets)]


def test_what_watchers_are_told_has_no_keys(scene: Scene):
    secrets = secrets_of(scene)
    said = [scene.status().model_dump_json(), *(repr(scene.describe(node)) for node in scene.cluster.nodes)]
    assert not found_in("".join(said).encode(), secrets)
    assert psutil.pid_exists(scene.status().name_server.pid)
