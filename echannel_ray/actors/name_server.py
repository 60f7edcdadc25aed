"""The name server: the shell around `core.name_book.NameBook`, and the authority behind the links' keys.

All that it knows is known elsewhere too: who the concentrators are, they say themselves; the definitions are a second
copy; its secret is among its arguments, which Ray keeps. So a restart asks around, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterable
from typing import Any

import ray

from echannel_ray.actors import startup
from echannel_ray.actors.actor_door import open_actors_door
from echannel_ray.actors.namespace_actor import NamespaceActor
from echannel_ray.core.messages import ConcentratorInfo, Definition, Directory
from echannel_ray.core.name_book import NameBook
from echannel_ray.ids import MANAGERS_NODE, RAY_NAMESPACE, node_number
from echannel_ray.transport.authority import Authority
from echannel_ray.transport.door import remove_doors
from echannel_ray.transport.security import Credentials

logger = logging.getLogger(__name__)

# A concentrator that is being started again answers within this time; who does not is let in when it does.
_REBUILD_SECONDS = 10.0
_TELL_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_STATUS_SECONDS = 2.0
_CONNECT_SECONDS = 1.0
# Nodes that join in one moment are told of in one directory, not in one each.
_GATHER_SECONDS = 0.01


class NameServer(NamespaceActor):
    """Knows all managers and concentrators, signs the links' certificates; an actor on the head, one per namespace."""

    def __init__(self, namespace: str, authority: Authority, managers: int = startup.DEFAULT_MANAGERS) -> None:
        super().__init__(f"name server of {namespace!r}")
        self._namespace = namespace
        self._authority = authority
        self._managers = tuple(startup.manager_name(namespace, slot) for slot in range(managers))
        self._book = NameBook(0, self._managers)
        self._serving = asyncio.Event()
        self._to_tell: set[str] = set()
        self._door = open_actors_door(startup.name_server_name(namespace), {"health": self.health})
        # Ray runs this constructor on the actor's loop, also when it restarts the actor.
        self._in_background(self._rebuild())

    # ---- concentrators ---------------------------------------------------------------------------------------------

    async def join(self, info: ConcentratorInfo) -> tuple[Directory, Credentials]:
        """A concentrator has started: it gets to know the others, and they it."""
        await self._serving.wait()
        was_gone = self._book.state(info.node) == "left"
        if self._book.joined(info):
            self._tell_everyone(but=info.actor_name)
            if was_gone:
                # Managers refuse requests from a node that was declared dead: they must know before it asks any.
                await asyncio.gather(*map(self._tell, self._managers))
        directory = self._book.directory()
        issued = self._authority.issue(info.node, [info.host], not_revoked_at=self._book.revoked_before(info.node))
        return directory, dataclasses.replace(issued, revoked=directory.revoked)

    async def revoke(self, node: int) -> list[str]:
        """What was issued to a node until now is void; the names of the concentrators that could not be told."""
        await self._serving.wait()
        # Certificates count whole seconds: one that is issued later in this one is dated into the next, and has to be
        # void when this is called again in the same second.
        # Managers keep theirs in the memory of some node too, which may be this one.
        for holder in (node, MANAGERS_NODE):
            self._book.revoked(holder, max(_now() // 1000, self._book.revoked_before(holder)) + 1)
        names = [info.actor_name for info in self._book.directory().concentrators]
        told = await asyncio.gather(*map(self._tell, names))
        return [name for name, was_told in zip(names, told, strict=True) if not was_told]

    async def leave(self, node: int, incarnation: int) -> None:
        """Take a concentrator that retires, since it has no endpoints, out of the directory."""
        await self._serving.wait()
        if self._book.left(node, incarnation):
            self._tell_everyone()

    async def node_gone(self, node: int, waited: bool = True) -> bool:
        """Whether a node that somebody can't reach is dead indeed. If so, all managers know when this returns.

        `waited`: it was silent for `PEER_TIMEOUT_SECONDS`, so it counts as dead where it is silent to us as well.
        """
        await self._serving.wait()
        info = self._book.concentrator(node)
        found = await _look_at(node)
        if found == "alive" or (found == "silent" and not waited):
            return False
        # Managers may know endpoints there that we do not know of: the node died while we were being restarted.
        if self._book.left(node, info.incarnation if info is not None else -1):
            logger.warning("node %016x is gone", node)
            self._tell_everyone()
        if self._book.state(node) != "left":
            return False  # its concentrator was started again while we looked, so it is there
        # Repeated for a node that left before: the one who asks may have missed it, or a restart of ours cut it short.
        asked = (startup.ask(name, "node_gone", node, timeout=_TELL_SECONDS) for name in self._managers)
        for error in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(error, BaseException):
                logger.warning("a manager was not told that node %016x is gone: %s", node, error)
        return True

    async def directory(self) -> Directory:
        """The directory: which concentrators and managers there are, and where."""
        await self._serving.wait()
        return self._book.directory()

    # ---- managers --------------------------------------------------------------------------------------------------

    async def manager_started(self, slot: int) -> tuple[int, Directory, list[Definition]]:
        """An epoch above all before, who is where, and the second copy of this manager's definitions."""
        await self._serving.wait()
        definitions = self._book.definitions(slot, len(self._managers))
        return self._book.next_epoch(_now()), self._book.directory(), definitions

    async def certify_manager(self) -> Credentials:
        """What a manager shows to the concentrators of other nodes."""
        await self._serving.wait()
        revoked_at = self._book.revoked_before(MANAGERS_NODE)
        issued = self._authority.issue(MANAGERS_NODE, [], not_revoked_at=revoked_at)
        return dataclasses.replace(issued, revoked=self._book.directory().revoked)

    async def record_definitions(self, kept: list[Definition], deleted: list[Definition]) -> None:
        """Keep the second copy of some definitions of channels, and forget that of others."""
        await self._serving.wait()
        self._book.recorded(kept)
        self._book.forgotten(deleted)

    async def definitions(self, slot: int, managers: int) -> list[Definition]:
        """The second copy of the definitions of one manager's channels."""
        await self._serving.wait()
        return self._book.definitions(slot, managers)

    # ---- for whoever starts, watches and ends the namespace --------------------------------------------------------

    async def create_manager(self, slot: int, actor_class: type | None = None) -> None:
        """Make a channel manager where it is missing."""
        from echannel_ray.actors.channel_manager import ChannelManager

        arguments = (self._namespace, slot, len(self._managers))
        head = await asyncio.to_thread(startup.head_node_id)
        await asyncio.to_thread(startup.create, self._managers[slot], actor_class or ChannelManager, arguments, head)

    async def create_concentrator(self, ray_node_id: str, actor_class: type | None = None) -> None:
        """Make the concentrator of a node where it is missing."""
        from echannel_ray.actors.concentrator import Concentrator

        name = startup.concentrator_name(self._namespace, node_number(ray_node_id))
        arguments = (self._namespace, ray_node_id)
        await asyncio.to_thread(startup.create, name, actor_class or Concentrator, arguments, ray_node_id)

    async def describe(self) -> dict[str, Any]:
        """The name server's process and state, for who watches."""
        return {**startup.describe_this_actor(), "epoch": self._book.directory().epoch, "endpoints": 0}

    async def state(self) -> str:
        """The name server's state: "serving", or "rebuilding" after a restart."""
        return "serving" if self._serving.is_set() else "rebuilding"

    async def health(self) -> dict[str, Any]:
        """The name server's state, for the probe of its pod."""
        return {"state": await self.state(), "silent": []}

    async def status(self) -> dict[str, Any]:
        """The parts of the namespace as they describe themselves; one that does not answer in time has an `error`."""
        await self._serving.wait()
        infos = self._book.directory().concentrators
        managers, concentrators, ray_nodes = await asyncio.gather(
            asyncio.gather(*map(_described, self._managers)),
            asyncio.gather(*(_described(info.actor_name) for info in infos)),
            asyncio.to_thread(startup.ray_nodes),
        )
        channels = set(self._book.channels()).union(*(manager.get("channels", ()) for manager in managers))
        suspected = {node for concentrator in concentrators for node in concentrator.get("suspected", ())}
        joined = {info.node for info in infos}
        return {
            "namespace": self._namespace,
            "name_server": await self.describe(),
            "managers": managers,
            "concentrators": concentrators,
            "channels": sorted(channels),
            "nodes": [
                {
                    "node_id": node["NodeID"],
                    "alive": node["Alive"],
                    "joined": node_number(node["NodeID"]) in joined,
                    "suspected": node_number(node["NodeID"]) in suspected,
                }
                for node in ray_nodes
            ],
        }

    async def stop(self) -> None:
        """End all managers and concentrators; the caller ends this actor."""
        names = await self._concentrator_names()
        asked = (startup.ask(name, "stop", timeout=_STATUS_SECONDS) for name in names)
        await asyncio.gather(*asked, return_exceptions=True)  # who does not answer is killed all the same
        for name in (*names, *self._managers):
            await asyncio.to_thread(_kill, name)
        # What is killed leaves its door; these are on this node.
        remove_doors([*self._managers, *names])
        if self._door is not None:
            self._door.close()

    # ---- rebuilding ------------------------------------------------------------------------------------------------

    async def _rebuild(self) -> None:
        names = await self._concentrator_names()
        asked = [self._in_background(self._ask_concentrator(name)) for name in names]
        await asyncio.gather(*map(self._ask_manager, self._managers))
        if asked:
            await asyncio.wait(asked, timeout=_REBUILD_SECONDS)
        self._book.restart_epoch(_now())
        self._serving.set()
        self._tell_everyone()

    async def _concentrator_names(self) -> list[str]:
        prefix = startup.concentrator_prefix(self._namespace)
        actors: Iterable[Any] = await asyncio.to_thread(ray.util.list_named_actors, all_namespaces=True)
        found = [actor["name"] for actor in actors if actor["namespace"] == RAY_NAMESPACE]
        return [name for name in found if name.startswith(prefix)]

    async def _ask_manager(self, name: str) -> None:
        try:
            await asyncio.to_thread(startup.find, name)
            described = await startup.ask(name, "describe", timeout=_REBUILD_SECONDS)
            self._book.epoch_seen(described["epoch"])
            self._book.recorded(await startup.ask(name, "definitions", timeout=_REBUILD_SECONDS))
        except LookupError:
            pass  # it was not made yet
        except Exception as error:
            logger.warning("%s does not say what it keeps: it will when it has started: %s", name, error)

    async def _ask_concentrator(self, name: str) -> None:
        while not self._knows(name):  # it may have joined by itself
            try:
                described = await startup.ask(name, "describe", timeout=_STATUS_SECONDS)
                if described["info"] is not None:
                    self._found(described)
                    return
                # It has just started, and knows in a moment. A manager restarted now must not miss its endpoints.
            except Exception as error:
                level = logging.DEBUG if self._serving.is_set() else logging.WARNING
                logger.log(level, "%s does not say who it is: %r", name, error)
            if not await asyncio.to_thread(_may_answer, name):
                return
            await asyncio.sleep(_AGAIN_SECONDS if self._serving.is_set() else 0.1)

    def _knows(self, name: str) -> bool:
        return any(info.actor_name == name for info in self._book.directory().concentrators)

    def _found(self, described: dict[str, Any]) -> None:
        """A concentrator has said who it is; late perhaps."""
        self._book.epoch_seen(described["directory_epoch"])
        for node, before in described["revoked"]:
            self._book.revoked(node, before)
        if self._book.joined(described["info"]) and self._serving.is_set():
            if described["directory_epoch"] >= self._book.directory().epoch:
                self._book.restart_epoch(_now())  # else what it is told would seem old to it
            self._tell_everyone()

    # ---- telling ---------------------------------------------------------------------------------------------------

    def _tell_everyone(self, but: str | None = None) -> None:
        concentrators = [info.actor_name for info in self._book.directory().concentrators]
        for name in {*self._managers, *concentrators} - {but} - self._to_tell:
            self._to_tell.add(name)
            self._in_background(self._tell_soon(name))

    async def _tell_soon(self, name: str) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        self._to_tell.discard(name)  # what changes from here on needs another message
        while not (await self._tell(name) or name in self._to_tell):
            if name not in self._managers and not self._knows(name):
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _tell(self, name: str) -> bool:
        try:
            await startup.ask(name, "directory_changed", self._book.directory(), timeout=_TELL_SECONDS)
        except Exception as error:
            logger.debug("%s was not told of the new directory: %s", name, error)
            return False
        return True


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _described(name: str) -> dict[str, Any]:
    try:
        described: dict[str, Any] = await startup.ask(name, "describe", timeout=_STATUS_SECONDS)
        return described
    except Exception as error:
        return {"name": name, "error": f"{type(error).__name__}: {error}"}


async def _look_at(node: int) -> str:
    """`alive`, `silent` or `dead`. Ray says dead 15 s late; before that, a refusal of its raylet's port says it."""
    for found in await asyncio.to_thread(startup.ray_nodes):
        if node_number(found["NodeID"]) == node and found["Alive"]:
            address = (found["NodeManagerAddress"], found["NodeManagerPort"])
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(*address), _CONNECT_SECONDS)
            except ConnectionRefusedError:
                return "dead"
            except (OSError, asyncio.TimeoutError):
                return "silent"
            writer.close()
            return "alive"
    return "dead"


def _may_answer(name: str) -> bool:
    """Whether there is such an actor, on a node that lives as far as Ray knows."""
    try:
        startup.find(name)
    except LookupError:
        return False
    node = name.rpartition("-")[2]
    return any(found["Alive"] and found["NodeID"].startswith(node) for found in startup.ray_nodes())


def _kill(name: str) -> None:
    with contextlib.suppress(LookupError):
        ray.kill(startup.find(name), no_restart=True)
