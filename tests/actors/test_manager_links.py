"""The links between a manager and concentrators: both ends as they ship, over sockets, without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from echannel_ray.actors import concentrator_links, manager_links
from echannel_ray.actors.concentrator_links import ConcentratorLinks
from echannel_ray.actors.hub import Hub
from echannel_ray.actors.peers import Peers
from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.core import frames
from echannel_ray.core.framing import Framer
from echannel_ray.core.messages import ConcentratorInfo, Directory, LookUpChannel, StatsWanted, Unconfirmed
from echannel_ray.core.relay import Relay
from echannel_ray.errors import Closed
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
LOOK_UP = LookUpChannel("c")


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
    """A hub at a Unix socket and a port, and endpoints that confirm what is pushed to them when they may."""

    def __init__(self, node: int, authority: Authority, tasks: Tasks, incarnation: int = 1) -> None:
        self.node = node
        self.credentials = authority.issue(node, [])
        owner: Any = self
        unused: Any = None
        relay = Relay(node)
        self.hub = Hub(NAMESPACE, node, incarnation, relay, owner)
        self.peers = Peers(wire.Hello(NAMESPACE, node, 0, 1), relay, self.hub, unused, tasks.begin)
        self.peers.take_credentials(self.credentials)
        self.is_manager = self.peers.is_manager
        self.noted: list[tuple[int, Any, bytes]] = []
        self.gone: list[int] = []
        self.path = SocketDirectory(NAMESPACE, node).socket_path(SOCKET_NAME)
        self.hub.add_listener(UnixListener(self.path))
        listener = TcpListener("127.0.0.1", 0, self.credentials)
        self.hub.add_listener(listener)
        self.info = ConcentratorInfo(node, f"{node:016x}", "", "127.0.0.1", listener.port, 1, 1, incarnation)
        self.hub.start()

    # What the hub tells its owner.

    def endpoint_attached(self, hello: wire.Hello) -> None:
        pass

    def endpoint_gone(self, endpoint: int) -> None:
        self.gone.append(endpoint)

    def requested(self, endpoint: int, request: int, payload: bytes) -> None:
        self.hub.manager_links.forward(0, endpoint, request, wire.decode(payload), payload)

    def answered(self, endpoint: int, message: Any, answer: bytes) -> None:
        self.noted.append((endpoint, message, answer))

    def cut(self) -> None:
        """Cut the link to the manager."""
        link = self.hub.managers[0]
        self.hub.post(lambda: self.hub.disconnect(link))


class Endpoint:
    """An endpoint by its socket: asks, and confirms what it is told, with its own number."""

    def __init__(self, concentrator: Concentrator, number: int) -> None:
        self.number = number
        self.pushed: list[Any] = []
        self.replies: dict[int, Any] = {}
        self._may_confirm = threading.Event()
        self._may_confirm.set()
        self._connection = connect_unix(concentrator.path, 10)
        hello = wire.Hello(NAMESPACE, concentrator.node, number, 1)
        self._send(frames.HELLO, wire.encode(hello))
        threading.Thread(target=self._serve, daemon=True).start()

    def _send(self, kind: int, body: bytes) -> None:
        send_all(self._connection, [frames.frame(kind, body)])

    def _serve(self) -> None:
        with contextlib.suppress(Closed, ConnectionError):
            self._read()

    def _read(self) -> None:
        framer, buffer = Framer(), bytearray(frames.MAX_FRAME_BYTES + 65536)
        while received := self._connection.recv_into(memoryview(buffer)[(have := framer.begin(buffer)) :]):
            for kind, _, start, stop in framer.frames(buffer, have + received):
                self._take(kind, bytes(buffer[start:stop]))

    def _take(self, kind: int, body: bytes) -> None:
        if kind == frames.PUSH:
            self.pushed.append(wire.decode(body[8:]))
            self._may_confirm.wait()
            self._send(frames.PUSHED, body[:8] + wire.encode({"endpoint": self.number}))
        elif kind == frames.REPLY:
            self.replies[int.from_bytes(body[:8], "little")] = wire.decode(body[8:])

    def ask(self, number: int, message: object = LOOK_UP) -> None:
        self._send(frames.REQUEST, frames.REQUEST_ID.pack(number) + wire.encode(message))

    def hold(self) -> None:
        """Confirm nothing, until `let_go`."""
        self._may_confirm.clear()

    def let_go(self) -> None:
        self._may_confirm.set()

    def close(self) -> None:
        self.let_go()
        self._connection.close()


class Scene:
    """A manager on `NODE`, and the concentrators that a test makes."""

    def __init__(self) -> None:
        self.authority = Authority.generate()
        self.tasks = Tasks()
        self.concentrators: list[Concentrator] = []
        self.endpoints: list[Endpoint] = []
        self.served: list[tuple[int, int, Any]] = []
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
        self.served.append((node, endpoint, wire.decode(request)))
        await self.may_answer.wait()
        return wire.encode({"asked by": endpoint})

    def concentrator(self, node: int, incarnation: int = 1) -> Concentrator:
        self.concentrators.append(Concentrator(node, self.authority, self.tasks, incarnation))
        return self.concentrators[-1]

    def endpoint(self, concentrator: Concentrator, number: int) -> Endpoint:
        self.endpoints.append(Endpoint(concentrator, number))
        return self.endpoints[-1]

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
        for endpoint in self.endpoints:
            endpoint.close()
        for each in self.concentrators:
            each.hub.stop()


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(concentrator_links, "describe_this_actor", lambda: {"node_id": f"{NODE:016x}"})
    made = Scene()
    yield made
    made.end()


BOTH = pytest.mark.parametrize("node", [NODE, OTHER_NODE], ids=["its own node", "another node"])
WANTED = StatsWanted("c")


# ---- requests -------------------------------------------------------------------------------------------------------


@BOTH
async def test_requests_go_up_and_answers_come_down(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    endpoints = [scene.endpoint(concentrator, number) for number in (1, 2)]
    for each in endpoints:
        for number in range(1, 10):
            each.ask(number)
    await until(lambda: all(len(each.replies) == 9 for each in endpoints))
    for each in endpoints:
        assert each.replies == {number: {"asked by": each.number} for number in range(1, 10)}
    assert sorted(scene.served) == [(node, number, LOOK_UP) for number in (1, 2) for _ in range(9)]
    assert sorted(endpoint for endpoint, message, _ in concentrator.noted if message == LOOK_UP) == [1] * 9 + [2] * 9


async def test_what_waits_for_no_answer_gets_none(scene: Scene):
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    endpoint = scene.endpoint(concentrator, 1)
    endpoint.ask(0)
    endpoint.ask(1)
    await until(lambda: len(concentrator.noted) == 2 and endpoint.replies)
    assert endpoint.replies == {1: {"asked by": 1}}


@BOTH
async def test_what_was_open_when_a_link_was_cut_is_answered_by_the_next(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    endpoint = scene.endpoint(concentrator, 7)
    await until(lambda: 7 in concentrator.hub.relay.endpoints)
    scene.may_answer.clear()
    endpoint.hold()
    endpoint.ask(1)
    pushing = asyncio.ensure_future(scene.links.push(node, [7], WANTED, 20))
    await until(lambda: scene.served and endpoint.pushed)
    concentrator.cut()
    await until(lambda: len(scene.served) == 2)
    scene.may_answer.set()
    endpoint.let_go()
    assert await pushing == [{"endpoint": 7}]
    await until(lambda: endpoint.replies)
    assert endpoint.replies == {1: {"asked by": 7}}
    await until(lambda: len(endpoint.pushed) == 2 and concentrator.noted)
    assert len(concentrator.noted) == 1


async def test_requests_wait_for_the_manager(scene: Scene):
    concentrator = scene.concentrator(NODE)
    endpoint = scene.endpoint(concentrator, 5)
    endpoint.ask(1)
    endpoint.ask(2)
    await until(lambda: len(concentrator.hub.manager_links._requests) == 2)
    await scene.linked(concentrator)
    await until(lambda: len(endpoint.replies) == 2)
    assert len(scene.served) == 2


# ---- pushes ---------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_push_brings_what_each_endpoint_answers(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    endpoints = [scene.endpoint(concentrator, number) for number in (1, 2)]
    await until(lambda: {1, 2} <= {*concentrator.hub.relay.endpoints})
    answers = await scene.links.push(node, [2, 3, 1], WANTED, 20)
    assert answers == [{"endpoint": 2}, None, {"endpoint": 1}], "None for one that is not there"
    assert [each.pushed for each in endpoints] == [[WANTED], [WANTED]]


@BOTH
async def test_what_is_as_large_as_it_may_be_passes_both_ways(scene: Scene, node: int):
    concentrator = scene.concentrator(node)
    await scene.linked(concentrator)
    endpoint = scene.endpoint(concentrator, 1)
    large = LookUpChannel("x" * (4 << 20))
    for number in (1, 2):
        endpoint.ask(number, large)
    await until(lambda: len(endpoint.replies) == 2)
    assert scene.served == [(node, 1, large)] * 2
    sent = {"text": "x" * (4 << 20)}
    await asyncio.gather(*(scene.links.push(node, [1], sent, 20) for _ in range(2)))
    assert endpoint.pushed == [sent] * 2


async def test_an_endpoint_that_takes_its_time_holds_up_no_other_answer_for_long(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(manager_links, "CONFIRM_SECONDS", 0.0)
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    slow, quick = scene.endpoint(concentrator, 1), scene.endpoint(concentrator, 2)
    slow.hold()
    await until(lambda: {1, 2} <= {*concentrator.hub.relay.endpoints})
    # The quick one may be late as well, as there is no time at all.
    assert (await scene.links.push(NODE, [1, 2], WANTED, 20))[0] == Unconfirmed()
    slow.let_go()  # what it says now belongs to nothing
    await until(lambda: slow.pushed and quick.pushed)
    monkeypatch.undo()
    monkeypatch.setattr(concentrator_links, "describe_this_actor", lambda: {"node_id": f"{NODE:016x}"})
    assert await scene.links.push(NODE, [1, 2], WANTED, 20) == [{"endpoint": 1}, {"endpoint": 2}]


async def test_an_endpoint_that_dies_need_not_confirm(scene: Scene):
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    endpoint = scene.endpoint(concentrator, 1)
    endpoint.hold()
    await until(lambda: 1 in concentrator.hub.relay.endpoints)
    pushing = asyncio.ensure_future(scene.links.push(NODE, [1], WANTED, 20))
    await until(lambda: endpoint.pushed)
    endpoint.close()
    assert await pushing == [None]
    await until(lambda: concentrator.gone == [1])


async def test_an_endpoint_that_is_expected_back_is_told_when_it_is_back(scene: Scene):
    concentrator = scene.concentrator(NODE)
    concentrator.hub.relay.expected.add(1)
    await scene.linked(concentrator)
    pushing = asyncio.ensure_future(scene.links.push(NODE, [1], WANTED, 20))
    await until(lambda: concentrator.hub.manager_links._unconfirmed)
    scene.endpoint(concentrator, 1)
    assert await pushing == [{"endpoint": 1}]


async def test_a_push_to_a_node_without_a_link_ends_in_time(scene: Scene):
    with pytest.raises(TimeoutError):
        await scene.links.push(NODE, [1], WANTED, 0.01)


async def test_an_answer_to_a_manager_that_died_is_not_its_successors(scene: Scene):
    """Both count their questions from one on."""
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    first, second = scene.endpoint(concentrator, 1), scene.endpoint(concentrator, 2)
    first.hold()
    second.hold()
    await until(lambda: {1, 2} <= {*concentrator.hub.relay.endpoints})
    of_the_dead = asyncio.ensure_future(scene.links.push(NODE, [1], WANTED, 20))
    await until(lambda: first.pushed)
    before = concentrator.hub.managers[0]
    scene.links.take_directory(scene.directory())
    await until(lambda: not concentrator.hub.managers)
    successor = scene.manager()
    successor.begin()
    successor.take_directory(scene.directory(concentrator))
    await until(lambda: concentrator.hub.managers.get(0) not in (None, before))
    asked = asyncio.ensure_future(successor.push(NODE, [2], WANTED, 20))
    await until(lambda: second.pushed)
    first.let_go()
    await until(lambda: not any(endpoint == 1 for endpoint, _ in concentrator.hub.manager_links._unconfirmed))
    assert not asked.done()
    second.let_go()
    assert await asked == [{"endpoint": 2}]
    of_the_dead.cancel()


# ---- links ----------------------------------------------------------------------------------------------------------


async def test_a_concentrator_that_was_started_again_is_dialled_again(scene: Scene):
    first = scene.concentrator(OTHER_NODE)
    await scene.linked(first)
    first.hub.stop()
    second = scene.concentrator(OTHER_NODE, incarnation=2)
    scene.links.take_directory(scene.directory(second))
    await until(lambda: second.hub.managers)
    endpoint = scene.endpoint(second, 5)
    endpoint.ask(1)
    await until(lambda: endpoint.replies)


async def test_a_concentrator_that_reads_nothing_costs_bounded_memory(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(concentrator_links, "_MAX_UNSENT_BYTES", 8 << 20)
    concentrator = scene.concentrator(NODE)
    await scene.linked(concentrator)
    endpoint = scene.endpoint(concentrator, 1)
    await until(lambda: 1 in concentrator.hub.relay.endpoints)
    link = scene.links._links[NODE]
    resumes = threading.Event()
    concentrator.hub.post(resumes.wait)
    sent = {"text": "x" * (4 << 20)}
    pushing = [asyncio.ensure_future(scene.links.push(NODE, [1], sent, 20)) for _ in range(5)]
    await until(link.ended.is_set)
    for each in pushing[1:]:
        each.cancel()
    resumes.set()
    assert await pushing[0] == [{"endpoint": 1}], "it goes by the next link"
    assert endpoint.pushed


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
