"""The name server's shell against scripted parts: without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import ray

from echannel_ray.actors import name_server, startup
from echannel_ray.actors.name_server import NameServer
from echannel_ray.core.messages import ConcentratorInfo, Directory
from echannel_ray.ids import RAY_NAMESPACE
from echannel_ray.transport.authority import Authority

pytestmark = pytest.mark.usefixtures("no_ray")

NODE = 7
CONCENTRATOR = startup.concentrator_name("ns", NODE)
MANAGER = startup.manager_name("ns", 0)


class Parts:
    """A manager and a concentrator, as `ask` shows them. Who is `silent` does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.named = [CONCENTRATOR]
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.told: dict[str, Directory] = {}
        self.epoch = 5
        monkeypatch.setattr(startup, "ask", self.ask)
        monkeypatch.setattr(startup, "find", self.find)
        monkeypatch.setattr(startup, "ray_nodes", lambda: [{"NodeID": f"{NODE:016x}", "Alive": True}])
        monkeypatch.setattr(ray.util, "list_named_actors", self.named_actors)
        for name in ("_REBUILD_SECONDS", "_AGAIN_SECONDS"):
            monkeypatch.setattr(name_server, name, 0.02)

    def find(self, name: str) -> None:
        if name not in (MANAGER, *self.named):
            raise LookupError(name)

    def named_actors(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"namespace": RAY_NAMESPACE, "name": name} for name in self.named]

    async def ask(self, name: str, method: str, *arguments: Any, timeout: float) -> Any:
        await asyncio.sleep(0)
        self.asked.append((name, method))
        if name in self.silent:
            raise TimeoutError(name)
        if method == "directory_changed":
            self.told[name] = arguments[0]
            return None
        if name == MANAGER:
            return {"epoch": 1} if method == "describe" else []
        info = ConcentratorInfo(NODE, f"{NODE:016x}", CONCENTRATOR, "127.0.0.1", 1, 2, 3, 1)
        return {"directory_epoch": self.epoch, "revoked": (), "info": info}

    def times(self, name: str, method: str) -> int:
        return self.asked.count((name, method))


@pytest.fixture
def parts(monkeypatch):
    return Parts(monkeypatch)


async def until(predicate: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 10
    while not predicate():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


def nodes(directory: Directory | None) -> list[int]:
    return [] if directory is None else [info.node for info in directory.concentrators]


async def test_who_could_not_be_told_is_told_later(parts):
    parts.silent = {MANAGER}
    server = NameServer("ns", Authority.generate(), 1)
    assert nodes(await server.directory()) == [NODE]
    await until(lambda: parts.times(MANAGER, "directory_changed") >= 2)
    parts.silent.clear()
    await until(lambda: nodes(parts.told.get(MANAGER)) == [NODE])


async def test_a_concentrator_that_is_late_is_let_in(parts):
    parts.silent = {CONCENTRATOR}
    parts.epoch = 1 << 60  # the clock of the former name server was far ahead
    server = NameServer("ns", Authority.generate(), 1)
    assert nodes(await server.directory()) == []
    parts.silent.clear()
    await until(lambda: nodes(parts.told.get(CONCENTRATOR)) == [NODE])
    assert parts.told[CONCENTRATOR].epoch > parts.epoch


async def test_a_concentrator_that_has_ended_is_not_asked_for_good(parts):
    parts.silent = {CONCENTRATOR}
    server = NameServer("ns", Authority.generate(), 1)
    await server.directory()
    parts.named.clear()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert nodes(await server.directory()) == []
