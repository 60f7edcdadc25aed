"""Name server, managers and (fake) concentrators on two nodes, and what is left of them when they are killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from echannel_ray.actors import startup
from echannel_ray.actors.startup import call
from echannel_ray.core.messages import (
    Definition,
    DeleteChannel,
    Directory,
    GetChannelStats,
    OpenChannel,
    RegisterProducer,
    Subscribe,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, VersionMismatch
from echannel_ray.ids import node_number
from tests.actors.fakes import FakeConcentrator, OtherVersion
from tests.clusters import LocalCluster, wait_until

ROUNDS = 2


class Space:
    """A namespace with two nodes in it."""

    def __init__(self, name: str, nodes: list[Any]) -> None:
        self.name = name
        self.server = startup.ensure_name_server(name)
        startup.ensure_managers(name)
        self.nodes = [str(node.node_id) for node in nodes]
        for node_id in self.nodes:
            startup.ensure_concentrator(name, node_id, actor_class=FakeConcentrator)
        for index in range(len(nodes)):
            assert self.ask_concentrator(index, "ready")

    def ask_concentrator(self, index: int, method: str, *args: Any) -> Any:
        name = startup.concentrator_name(self.name, node_number(self.nodes[index]))
        return call(lambda: startup.find(name), method, *args, timeout=40)

    def request(self, index: int, endpoint: int, message: Any) -> Any:
        return self.ask_concentrator(index, "ask", endpoint, message)

    def open(self, channel: str, options: dict[str, Any] | None = None) -> Definition:
        """Open it on all nodes, as endpoints have a definition of what they register for."""
        definitions: list[Definition] = [
            self.request(n, 1, OpenChannel(channel, None, options or {})) for n in range(len(self.nodes))
        ]
        assert definitions[1:] == definitions[:-1]
        return definitions[0]

    def ask_server(self, method: str, *args: Any) -> Any:
        return call(lambda: startup.find(startup.name_server_name(self.name)), method, *args)

    def pid(self, name: str) -> int:
        return int(call(lambda: startup.find(name), "describe")["pid"])

    def kill(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGKILL)

    def knows(self, index: int, directory: Directory) -> bool:
        return bool(self.ask_concentrator(index, "directory") == directory)

    def stop(self) -> None:
        self.ask_server("stop")
        ray.kill(startup.find(startup.name_server_name(self.name)))


@pytest.fixture(scope="module")
def space(two_nodes: LocalCluster) -> Iterator[Space]:
    made = Space("space", two_nodes.nodes[:2])
    yield made
    made.stop()


@ray.remote(num_cpus=0)
class Starter:
    """A process that joins at the same moment as others."""

    def start(self, namespace: str, node: str, at: float) -> list[str]:
        while time.time() < at:
            pass
        made = [startup.ensure_name_server(namespace), *startup.ensure_managers(namespace)]
        made.append(startup.ensure_concentrator(namespace, node, actor_class=FakeConcentrator))
        return [handle._actor_id.hex() for handle in made]


def test_processes_that_start_at_once_make_one_of_each(two_nodes):
    starters = [Starter.remote() for _ in range(8)]
    head, other = (str(node.node_id) for node in two_nodes.nodes)
    at = time.time() + 3  # when all processes are there
    made = ray.get([starter.start.remote("race", other, at) for starter in starters], timeout=60)
    assert len({tuple(ids) for ids in made}) == 1, made
    server = startup.find("race:name-server")
    # The concentrator joins when it is up.
    wait_until(lambda: ray.get(server.directory.remote(), timeout=30).concentrators)
    status = ray.get(server.status.remote(), timeout=30)
    parts = [status["name_server"], *status["managers"], *status["concentrators"]]
    assert [part["node_id"] for part in parts] == [head, head, head, other]
    ray.get(server.stop.remote(), timeout=30)
    ray.kill(server)


def test_another_wire_version_is_refused(two_nodes):
    with pytest.raises(VersionMismatch) as caught:
        startup.ensure_name_server("other", actor_class=OtherVersion)
    assert caught.value.facts["part"] == "other:name-server"
    ray.kill(startup.find("other:name-server"))
    with pytest.raises(VersionMismatch):
        startup.ensure_managers("mixed", actor_class=OtherVersion)
    server = startup.find("mixed:name-server")
    ray.get(server.stop.remote())
    ray.kill(server)


@pytest.mark.parametrize("installed", [True, False])
def test_a_jobs_runtime_env_rules_the_parts_only_where_it_has_to(two_nodes, tmp_path: Path, installed: bool):
    """Where echannel_ray is not installed, the job's runtime_env may be what brings it."""
    (tmp_path / "theirs.py").write_text("")
    shadow = tmp_path / "shadow" / "echannel_ray"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ImportError('as if it were not installed')")
    script = textwrap.dedent(f"""
        import os, ray
        from echannel_ray.actors import startup
        if not {installed}:
            os.environ["PYTHONPATH"] = {str(shadow.parent)!r}
        env = dict(working_dir={str(tmp_path)!r}, env_vars=dict(THEIRS="1"))
        ray.init({two_nodes.address!r}, runtime_env=env, log_to_driver=False)
        startup.ensure_name_server("apart")
        print(ray.get(startup.ensure_managers("apart")[0].describe.remote())["pid"])
    """)
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert told.returncode == 0, told.stderr
    for pid in (int(told.stdout), ray.get(startup.find("apart:name-server").describe.remote())["pid"]):
        inherited = (Path(f"/proc/{pid}/cwd").resolve() / "theirs.py").exists()
        assert inherited == (not installed)
    server = startup.find("apart:name-server")
    ray.get(server.stop.remote())
    ray.kill(server)


def test_a_channels_life(space: Space):
    definition = space.open("c")
    space.request(0, 10, RegisterProducer("c", 1))
    space.request(1, 11, RegisterProducer("c", 1))
    membership = space.request(1, 20, Subscribe("c", 1, None, ""))
    assert [consumer.endpoint for consumer in membership.consumers] == [20]
    assert space.ask_concentrator(0, "membership", 10, "c") == membership
    assert space.ask_concentrator(1, "membership", 11, "c") == membership
    stats = space.request(0, 10, GetChannelStats("c"))
    assert (stats["events_published"], stats["producers"], stats["consumers"]) == (30, 2, 1)
    space.request(1, 20, Unsubscribe("c", 1, {"received": 4}))
    assert space.ask_concentrator(0, "membership", 10, "c").consumers == ()
    space.request(0, 10, DeleteChannel("c", definition.incarnation))
    assert space.ask_concentrator(1, "membership", 11, "c").deleted
    with pytest.raises(ChannelDeleted) as caught:
        space.request(0, 10, RegisterProducer("c", 2))
    assert type(pickle.loads(pickle.dumps(caught.value))) is ChannelDeleted
    assert space.ask_server("definitions", 0, 1) == []
    assert space.open("c").incarnation > definition.incarnation


def test_managers_that_are_killed_again_and_again(space: Space):
    names = [f"killed{n}" for n in range(6)]
    for name in names:
        space.open(name)
        space.request(0, 10, RegisterProducer(name, 1))
        space.request(1, 20, Subscribe(name, 1, None, ""))
    idle = [space.open(f"idle{n}", {"packing": n}) for n in range(4)]
    wait_until(lambda: {one.channel for one in idle} <= {one.channel for one in space.ask_server("definitions", 0, 1)})
    before = [part["restarts"] for part in space.ask_server("status")["managers"]]
    subscriptions = [1]
    for slot in (0, 1) * ROUNDS:
        memberships = {name: space.ask_concentrator(0, "membership", 10, name) for name in names}
        space.kill(startup.manager_name(space.name, slot))
        started = time.monotonic()
        subscriptions.append(len(subscriptions) + 1)
        for name in names:
            membership = space.request(1, 20, Subscribe(name, subscriptions[-1], None, ""))
            assert [consumer.subscription for consumer in membership.consumers] == subscriptions
            assert space.ask_concentrator(0, "membership", 10, name) == membership
            known = memberships[name]
            assert (membership.epoch, membership.version) > (known.epoch, known.version)
        print(f"manager killed: all channels served after {time.monotonic() - started:.2f} s")
        assert time.monotonic() - started < 20
        assert [space.open(definition.channel) for definition in idle] == idle
    restarts = [part["restarts"] for part in space.ask_server("status")["managers"]]
    assert restarts == [count + ROUNDS for count in before]


def test_a_name_server_that_is_killed_again_and_again(space: Space):
    space.open("named", {"packing": 7})
    space.request(0, 10, RegisterProducer("named", 1))
    before = space.ask_server("directory")
    second_copy = partial(space.ask_server, "definitions", 0, 1)  # it comes a moment later
    wait_until(lambda: "named" in {one.channel for one in second_copy()})
    definitions = space.ask_server("definitions", 0, 1)
    name = startup.name_server_name(space.name)
    for n in range(1, 1 + ROUNDS):
        space.kill(name)
        started = time.monotonic()
        assert space.request(1, 20, Subscribe("named", n, None, "")).consumers, "managers do without it"
        directory = space.ask_server("directory")
        print(f"name server killed: served after {time.monotonic() - started:.2f} s")
        assert time.monotonic() - started < 20
        assert directory.epoch > before.epoch
        assert directory.concentrators == before.concentrators
        assert space.ask_server("definitions", 0, 1) == definitions
        wait_until(partial(space.knows, 1, directory))
        before = directory
    assert space.ask_server("status")["name_server"]["restarts"] == ROUNDS


def test_name_server_and_managers_killed_at_once(space: Space):
    definition = space.open("all")
    space.request(0, 10, RegisterProducer("all", 1))
    parts = [startup.name_server_name(space.name), *(startup.manager_name(space.name, slot) for slot in range(2))]
    for pid in [space.pid(part) for part in parts]:
        os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    assert space.request(1, 20, Subscribe("all", 1, None, "")).incarnation == definition.incarnation
    print(f"all killed: served after {time.monotonic() - started:.2f} s")
    wait_until(lambda: "all" in space.ask_server("status")["channels"])


def test_status_shows_what_answers(space: Space):
    pid = space.pid(startup.manager_name(space.name, 1))
    os.kill(pid, signal.SIGSTOP)
    try:
        status = space.ask_server("status")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "error" in status["managers"][1]
    assert status["managers"][0]["pid"]
    assert len(status["concentrators"]) == 2
    assert [node["joined"] for node in status["nodes"]].count(True) == 2


def test_a_node_that_dies(two_nodes: LocalCluster):
    """The last test: it adds a node and kills it."""
    node = two_nodes.add_node()
    space = Space("dying", [two_nodes.nodes[0], node])
    space.open("c")
    space.request(0, 10, RegisterProducer("c", 1))
    space.request(1, 20, RegisterProducer("c", 1))
    space.request(1, 21, Subscribe("c", 1, None, ""))
    assert not space.ask_server("node_gone", node_number(space.nodes[1])), "it answers, so it is there"
    two_nodes.kill_node(node)
    started = time.monotonic()
    membership = space.request(0, 11, Subscribe("c", 1, None, ""))
    print(f"node killed: subscribed after {time.monotonic() - started:.2f} s")
    assert [consumer.endpoint for consumer in membership.consumers] == [11]
    wait_until(lambda: len(space.ask_concentrator(0, "membership", 10, "c").consumers) == 1)
    wait_until(lambda: len(space.ask_concentrator(0, "directory").concentrators) == 1)
    space.kill(startup.manager_name("dying", 0))
    space.kill(startup.manager_name("dying", 1))
    assert len(space.request(0, 12, Subscribe("c", 1, None, "")).consumers) == 2
    space.stop()
