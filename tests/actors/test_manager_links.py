"""The links between a manager and concentrators: both ends as they ship, over sockets, without Ray."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from echannel_ray.actors import concentrator_links
from echannel_ray.actors.concentrator_links import ConcentratorLinks
from echannel_ray.actors.hub import Hub
from echannel_ray.actors.manager_links import ManagerLinks
from echannel_ray.actors.peers import Peers
from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.core import frames
from echannel_ray.core.messages import ConcentratorInfo, Directory, Installed, LookUpChannel, StatsWanted, Unconfirmed
from echannel_ray.core.relay import Relay
from echannel_ray.ids import MANAGERS_NODE
from echannel_ray.transport import wire
from echannel_ray.transport.authority import Authority
from echannel_ray.transport.connection import Connection, Peer
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import TcpListener, connect_tcp
from echannel_ray.transport.unix import SocketDirectory, UnixListener, connect_unix
from tests.core.reading import first_of
from tests.transport.links import receive, send_all

pytestmark = pytest.mark.usefixtures("no_ray")

NAMESPACE = "ns"
NODE, OTHER_NODE = 1, 2
LOOK_UP = wire.encode(LookUpChannel("c"))


async def until(predicate: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not predicate():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


class Tasks:
    """What runs in the background of a test."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self.running.add(asyncio.get_running_loop().create_task(work))

    def end(self) -> None:
        for task in self.running:
            task.cancel()


class Concentrator:
    """A hub with its manager links, at a Unix socket and a port; endpoints answer by `confirm`."""

    def __init__(self, node: int, authority: Authority, tasks: Tasks, incarnation: int = 1) -> None:
        self.node = node
        self.credentials = authority.issue(node, [])
        owner: Any = self
        unused: Any = None
        relay = Relay(node)
        self.hub = Hub(NAMESPACE, node, incarnation, relay, owner)
        self.manager_links = ManagerLinks(self.hub, self.confirm, tasks.begin)
        self.peers = Peers(wire.Hello(NAMESPACE, node, 0, 1), relay, self.hub, unused, tasks.begin)
        self.peers.take_credentials(self.credentials)
        self.is_manager = self.peers.is_manager
        self.pushed: list[tuple[int, Any]] = []
        self.may_confirm = asyncio.Event()
        self.may_confirm.set()
        path = SocketDirectory(NAMESPACE, node).socket_path(SOCKET_NAME)
        self.hub.add_listener(UnixListener(path))
        listener = TcpListener("127.0.0.1", 0, self.credentials)
        self.hub.add_listener(listener)
        self.info = ConcentratorInfo(node, f"{node:016x}", "", "127.0.0.1", listener.port, 1, 1, incarnation)
        self.hub.start()

    async def confirm(self, endpoint: int, message: bytes) -> bytes:
        self.pushed.append((endpoint, wire.decode(message)))
        await self.may_confirm.wait()
        return wire.encode({1: Installed(), 2: None, 3: Unconfirmed()}.get(endpoint, {"endpoint": endpoint}))

    def ask(self, endpoint: int, request: bytes = LOOK_UP) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(self.manager_links.ask(0, endpoint, request))

    def cut(self) -> None:
        """Cut the link to the manager."""
        link = self.hub.managers[0]
        self.hub.post(lambda: self.hub.disconnect(link))


class Scene:
    """A manager on `NODE`, and the concentrators that a test makes."""

    def __init__(self) -> None:
        self.authority = Authority.generate()
        self.tasks = Tasks()
        self.concentrators: list[Concentrator] = []
        self.served: list[tuple[int, int, bytes]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.certified = 0
        self._versions = itertools.count(1)
        self.links = self.manager()

    def manager(self) -> ConcentratorLinks:
        return ConcentratorLinks(NAMESPACE, 0, self.answer, self.certify, self.tasks.begin)

    async def certify(self) -> Credentials:
        self.certified += 1
        return self.authority.issue(MANAGERS_NODE, [])

    async def answer(self, node: int, endpoint: int, request: bytes) -> bytes:
        self.served.append((node, endpoint, request))
        await self.may_answer.wait()
        return wire.encode({"asked by": endpoint})

    def concentrator(self, node: int, incarnation: int = 1) -> Concentrator:
        self.concentrators.append(Concentrator(node, self.authority, self.tasks, incarnation))
        return self.concentrators[-1]

    def directory(self, *concentrators: Concentrator, revoked: tuple[tuple[int, int], ...] = ()) -> Directory:
        infos = tuple(each.info for each in concentrators)
        return Directory(1, next(self._versions), ("m",), infos, revoked)

    async def linked(self, *concentrators: Concentrator) -> None:
        self.links.begin()
        self.links.take_directory(self.directory(*concentrators))
        for each in concentrators:
            await until(lambda: each.hub.managers)  # noqa: B023

    def end(self) -> None:
        self.tasks.end()
        for each in self.concentrators:
            each.hub.stop()


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(concentrator_links, "describe_this_actor", lambda: {"node_id": f"{NODE:016x}"})
    made = Scene()
    yield made
    made.end()


@pytest.mark.parametrize("node", [NODE, OTHER_NODE], ids=["its own node", "another node"])
async def test_requests_go_up_and_answers_come_down(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    answers = await asyncio.gather(*(concentrator.ask(endpoint) for endpoint in range(10)))
    assert [wire.decode(answer) for answer in answers] == [{"asked by": endpoint} for endpoint in range(10)]
    assert sorted(scene.served) == [(node, endpoint, LOOK_UP) for endpoint in range(10)]


@pytest.mark.parametrize("node", [NODE, OTHER_NODE], ids=["its own node", "another node"])
async def test_a_push_brings_what_each_endpoint_answers(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    answers = await scene.links.push(node, [1, 2, 3, 4], StatsWanted("c"), 20)
    assert answers == [Installed(), None, Unconfirmed(), {"endpoint": 4}]
    assert concentrator.pushed == [(endpoint, StatsWanted("c")) for endpoint in (1, 2, 3, 4)]


@pytest.mark.parametrize("node", [NODE, OTHER_NODE], ids=["its own node", "another node"])
async def test_what_is_as_large_as_it_may_be_passes_both_ways(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    large = bytes(4 << 20)
    await asyncio.gather(*(concentrator.ask(endpoint, large) for endpoint in range(4)))
    assert scene.served == [(node, endpoint, large) for endpoint in range(4)]
    sent = {"text": "x" * (4 << 20)}
    await asyncio.gather(*(scene.links.push(node, [endpoint], sent, 20) for endpoint in range(4)))
    assert [pushed for _, pushed in concentrator.pushed] == [sent] * 4


@pytest.mark.parametrize("node", [NODE, OTHER_NODE], ids=["its own node", "another node"])
async def test_what_was_open_when_a_link_was_cut_is_answered_by_the_next(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    scene.may_answer.clear()
    concentrator.may_confirm.clear()
    asked = concentrator.ask(7)
    pushing = asyncio.ensure_future(scene.links.push(node, [4], StatsWanted("c"), 20))
    await until(lambda: scene.served and concentrator.pushed)
    concentrator.cut()
    await until(lambda: len(scene.served) == 2 and len(concentrator.pushed) == 2)
    scene.may_answer.set()
    concentrator.may_confirm.set()
    assert wire.decode(await asked) == {"asked by": 7}
    assert await pushing == [{"endpoint": 4}]
    assert await scene.links.push(node, [1], StatsWanted("c"), 20) == [Installed()]


async def test_requests_wait_for_the_manager(scene: Scene):
    concentrator = scene.concentrator(NODE)
    asked = [concentrator.ask(endpoint) for endpoint in (1, 2)]
    await asyncio.sleep(0)
    await scene.linked(concentrator)
    assert [wire.decode(answer) for answer in await asyncio.gather(*asked)] == [{"asked by": 1}, {"asked by": 2}]
    assert len(scene.served) >= 2


async def test_a_push_to_a_node_without_a_link_ends_in_time(scene: Scene):
    with pytest.raises(TimeoutError):
        await scene.links.push(NODE, [1], StatsWanted("c"), 0.01)


async def test_a_concentrator_that_was_started_again_is_dialled_again(scene: Scene):
    first = scene.concentrator(OTHER_NODE)
    await scene.linked(first)
    first.hub.stop()
    second = scene.concentrator(OTHER_NODE, incarnation=2)
    scene.links.take_directory(scene.directory(second))
    await until(lambda: second.hub.managers)
    assert wire.decode(await second.ask(5)) == {"asked by": 5}


async def test_an_answer_to_a_manager_that_died_is_not_its_successors(scene: Scene):
    """Both count their questions from one on."""
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    concentrator.may_confirm.clear()
    first = asyncio.ensure_future(scene.links.push(NODE, [1], StatsWanted("c"), 20))
    await until(lambda: concentrator.pushed)
    before = concentrator.hub.managers[0]
    successor = scene.manager()
    successor.begin()
    successor.take_directory(scene.directory(concentrator))
    await until(lambda: concentrator.hub.managers.get(0) not in (None, before))
    scene.links.take_directory(scene.directory())
    second = asyncio.ensure_future(successor.push(NODE, [4], StatsWanted("c"), 20))
    await until(lambda: any(endpoint == 4 for endpoint, _ in concentrator.pushed))
    concentrator.may_confirm.set()
    assert await second == [{"endpoint": 4}]
    first.cancel()


async def test_a_node_that_has_left_has_no_link(scene: Scene):
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    scene.links.take_directory(scene.directory())
    await until(lambda: not concentrator.hub.managers)
    scene.links.take_directory(scene.directory(concentrator))
    await until(lambda: concentrator.hub.managers)


async def test_other_credentials_make_links_between_nodes_anew(scene: Scene):
    here, there = scene.concentrator(NODE), scene.concentrator(OTHER_NODE)
    await scene.linked(here, there)
    links = [each.hub.managers[0] for each in (here, there)]
    revoked = ((MANAGERS_NODE, 1),)  # what was issued in the first second of 1970
    scene.links.take_directory(scene.directory(here, there, revoked=revoked))
    await until(lambda: scene.certified == 2 and there.hub.managers.get(0) not in (None, links[1]))
    assert here.hub.managers[0] is links[0]
    assert wire.decode(await there.ask(5)) == {"asked by": 5}


async def test_a_managers_link_ends_when_its_certificate_is_revoked(scene: Scene):
    concentrator = scene.concentrator(OTHER_NODE)
    await scene.linked(concentrator)
    link = concentrator.hub.managers[0]
    issued_at = link.connection.peer.issued_at
    assert issued_at is not None
    concentrator.peers.take_credentials(replace(concentrator.credentials, revoked=((MANAGERS_NODE, issued_at + 1),)))
    concentrator.peers.watch(concentrator.hub._now)
    await until(lambda: concentrator.hub.refused["revoked"] and concentrator.hub.managers.get(0) is not link)


# ---- who is no manager ----------------------------------------------------------------------------------------------


def greeted(connection: Connection, node: int, slot: int | None) -> int:
    """The type of the frame that is the answer to this greeting."""
    send_all(connection, [frames.frame(frames.HELLO, wire.encode(wire.Hello(NAMESPACE, node, 0, 1, slot=slot)))])
    kind: int = first_of(receive(connection)).kind
    connection.close()
    return kind


async def test_only_a_certificate_of_managers_makes_a_manager(scene: Scene):
    """Who has taken a node's key must not tell producers who their consumers are."""
    concentrator = scene.concentrator(OTHER_NODE)
    for node in (NODE, MANAGERS_NODE):
        stolen = scene.authority.issue(NODE, [])
        connection = await asyncio.to_thread(connect_tcp, "127.0.0.1", concentrator.info.port, stolen, 10)
        assert await asyncio.to_thread(greeted, connection, node, 0) == frames.REFUSED
    assert concentrator.hub.refused["other_node"] == 2
    assert not concentrator.hub.managers


async def test_a_manager_is_no_concentrator(scene: Scene):
    concentrator = scene.concentrator(OTHER_NODE)
    shown = await scene.certify()
    connection = await asyncio.to_thread(connect_tcp, "127.0.0.1", concentrator.info.port, shown, 10)
    assert await asyncio.to_thread(greeted, connection, NODE, None) == frames.REFUSED
    assert not concentrator.hub.relay.peers


async def test_at_the_unix_socket_a_manager_is_of_this_node(scene: Scene):
    concentrator = scene.concentrator(NODE)
    path = SocketDirectory(NAMESPACE, NODE).socket_path(SOCKET_NAME)
    connection = await asyncio.to_thread(connect_unix, path, 10)
    assert await asyncio.to_thread(greeted, connection, OTHER_NODE, 0) == frames.REFUSED
    assert not concentrator.hub.managers


async def test_of_mounted_certificates_a_members_is_believed(scene: Scene):
    concentrator = scene.concentrator(NODE)
    concentrator.peers.take_credentials(replace(concentrator.credentials, names=frozenset({"echannel.events.svc"})))
    assert concentrator.peers.is_manager(Peer("tcp", node=None), OTHER_NODE)
    assert concentrator.peers.is_manager(Peer("tcp", node=OTHER_NODE), OTHER_NODE)
    assert not concentrator.peers.is_manager(Peer("tcp", node=OTHER_NODE), NODE)
