"""Certificates that the namespace issues, renewed and revoked under load."""

from __future__ import annotations

import json
from functools import partial

import pytest

from echannel_ray.actors import startup
from echannel_ray.core import frames
from echannel_ray.errors import NotAuthorised
from echannel_ray.overview.revocation import revoke
from echannel_ray.transport import wire
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import connect_tcp
from tests.cli.commands import inside
from tests.clusters import wait_until
from tests.core.reading import first_of
from tests.faults.scene import Scene, check_all_arrived, kill, seconds_until_flowing
from tests.transport.links import certificate_at, receive, send_all

ROUNDS = 2


def stolen(scene: Scene, index: int) -> Credentials:
    """What somebody who was inside can have taken away: another certificate of a node, which is as good as its own."""
    info = scene.describe(scene.cluster.nodes[index])["info"]
    name = startup.name_server_name(scene.namespace)
    _, credentials = startup.call(partial(startup.find, name), "join", info)
    assert isinstance(credentials, Credentials)
    return credentials


def shows_another(scene: Scene, index: int, former: str) -> bool:
    """Whether a node's concentrator has another certificate now."""
    shown = scene.concentrator(scene.cluster.nodes[index]).certificate
    return shown is not None and shown.sha256 != former


def let_in(scene: Scene, index: int, credentials: Credentials) -> bool:
    """Whether a node's concentrator accepts this key, by its TLS alone."""
    info = scene.describe(scene.cluster.nodes[index])["info"]
    try:
        connect_tcp(info.host, info.port, credentials, 10).close()
    except (NotAuthorised, ConnectionError):
        return False
    return True


def test_revoked_certificates_are_void_at_once_and_nodes_go_on_with_others(scene: Scene):
    consumers = [scene.consumer(node, "load") for node in scene.cluster.nodes]
    loads = {i: scene.load(node, i, "load") for i, node in enumerate(scene.cluster.nodes, 1)}
    seconds_until_flowing(loads, consumers, "load")
    pids = scene.pids()
    for _ in range(ROUNDS):
        for index, node in enumerate(scene.cluster.nodes):
            key = stolen(scene, index)
            before = scene.concentrator(scene.cluster.nodes[1 - index])
            shown = scene.concentrator(node).certificate
            assert let_in(scene, 1 - index, key)
            revoke(scene.namespace, node.node_id)
            assert not let_in(scene, 1 - index, key)
            wait_until(partial(shows_another, scene, index, shown.sha256))
            assert certificate_at(scene.describe(node)["info"].port) == scene.concentrator(node).certificate.sha256
            after = scene.concentrator(scene.cluster.nodes[1 - index])
            assert after.refused["revoked"] > before.refused.get("revoked", 0)
            seconds_until_flowing(loads, consumers, "load")
    check_all_arrived(loads, consumers, "load")
    assert scene.pids() == pids, "a part was restarted"


def test_what_was_revoked_stays_so_when_parts_are_killed(scene: Scene):
    key = stolen(scene, 1)
    assert let_in(scene, 0, key)
    revoke(scene.namespace, scene.cluster.nodes[1].node_id)
    kill(scene.pids()[startup.name_server_name(scene.namespace)])
    kill(scene.concentrator(scene.cluster.nodes[0]).pid)
    wait_until(lambda: scene.concentrator(scene.cluster.nodes[0]).peers == 1)
    assert not let_in(scene, 0, key)
    assert let_in(scene, 0, stolen(scene, 1))


def test_a_key_is_of_one_node_only(scene: Scene):
    """Who has taken the key of one node can't speak for another one."""
    node = scene.cluster.nodes[0]
    info = scene.describe(node)["info"]
    before = scene.concentrator(node).refused.get("other_node", 0)
    for posing_as in (0xBAD, info.node):
        link = connect_tcp(info.host, info.port, stolen(scene, 1), 10)
        hello = wire.Hello(scene.namespace, posing_as, 0, 1, 1)
        send_all(link, [frames.frame(frames.HELLO, wire.encode(hello))])
        answer = receive(link)
        found = first_of(answer)
        assert found.kind == frames.REFUSED
    assert scene.concentrator(node).refused["other_node"] == before + 2


def test_a_namespace_that_does_not_run_has_nothing_to_revoke(scene: Scene):
    with pytest.raises(LookupError):
        revoke("nobody-joined-this", scene.cluster.nodes[0].node_id)


def test_the_command_revokes_and_status_shows_who_was_refused(scene: Scene):
    for each in scene.cluster.nodes:  # somebody is there, and its concentrator
        scene.consumer(each, "watched")
    node = scene.cluster.nodes[1]
    key = stolen(scene, 1)
    options = ("--namespace", scene.namespace)
    done = inside("revoke", node.node_id[:8], "--json", *options)
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"namespace": scene.namespace, "node_id": node.node_id})
    assert not let_in(scene, 0, key)
    lines = inside("status", *options).stdout.splitlines()
    (told,) = [line for line in lines if line.startswith(f"node {scene.cluster.nodes[0].node_id[:8]} refused ")]
    assert " revoked" in told
    nowhere = inside("revoke", node.node_id, "--namespace", "nobody-joined-this")
    assert (nowhere.exit_code, nowhere.stdout) == (1, "")
    assert "no process has joined" in nowhere.stderr
