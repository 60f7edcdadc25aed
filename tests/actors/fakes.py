"""A concentrator without endpoints, and one that speaks another version."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from echannel_ray.actors import startup
from echannel_ray.actors.hub import Hub
from echannel_ray.actors.manager_links import Confirmed
from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.core.messages import (
    ConcentratorInfo,
    Definition,
    Directory,
    Installed,
    Membership,
    OpenChannel,
    RegisterProducer,
    Registrations,
    Subscribe,
)
from echannel_ray.core.name_book import slot_of
from echannel_ray.core.relay import Relay
from echannel_ray.ids import MANAGERS_NODE, WIRE_VERSION, node_number
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Peer
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import TcpListener
from echannel_ray.transport.unix import SocketDirectory, UnixListener


class FakeConcentrator:
    """Plays the endpoints of its node too: they have what their requests were granted."""

    def __init__(self, namespace: str, ray_node_id: str) -> None:
        self._namespace = namespace
        self._ray_node_id = ray_node_id
        self._node = node_number(ray_node_id)
        self._incarnation = time.time_ns()
        self._port = 0
        self._directory: Directory
        self._credentials: Credentials
        self._definitions: dict[str, Definition] = {}
        self._streams: set[tuple[int, str, int]] = set()
        self._consumers: set[tuple[int, str, int, str | None, str, str, int]] = set()
        self._memberships: dict[tuple[int, str], Membership] = {}
        self._pushes = 0
        self._slow: dict[int, float] = {}
        owner: Any = self
        self._hub = Hub(namespace, self._node, self._incarnation, Relay(self._node), owner)
        self._tasks: set[asyncio.Task[Any]] = set()
        links: Any = self._hub.manager_links
        links.push = self._pushed
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, asyncio.Future[bytes]] = {}  # by the identity of what was asked
        self._joined = asyncio.get_running_loop().create_task(self._join())

    def _pushed(self, endpoints: tuple[int, ...], message: bytes, confirmed: Confirmed) -> None:
        def begin() -> None:
            self._tasks.add(self._loop.create_task(self._confirm(endpoints, message, confirmed)))

        self._loop.call_soon_threadsafe(begin)

    async def _confirm(self, endpoints: tuple[int, ...], message: bytes, confirmed: Confirmed) -> None:
        answers = [await self._push(endpoint, message) for endpoint in endpoints]
        self._hub.post(partial(confirmed, answers))

    def answered(self, endpoint: int, message: Any, answer: bytes) -> None:
        self._loop.call_soon_threadsafe(self._asked[id(message)].set_result, answer)

    def is_manager(self, peer: Peer, node: int) -> bool:
        return peer.kind == "unix" or peer.node == MANAGERS_NODE

    async def _join(self) -> None:
        path = SocketDirectory(self._namespace, self._node).socket_path(SOCKET_NAME)
        self._hub.add_listener(UnixListener(path))
        name = startup.name_server_name(self._namespace)
        _, credentials = await startup.ask(name, "join", self._info(), timeout=60)
        listener = TcpListener("127.0.0.1", 0, credentials)
        self._hub.add_listener(listener)
        self._hub.start()
        self._port = listener.port
        self._incarnation += 1  # where it listens is news
        self._directory, self._credentials = await startup.ask(name, "join", self._info(), timeout=60)

    def _info(self) -> ConcentratorInfo:
        name = startup.concentrator_name(self._namespace, self._node)
        return ConcentratorInfo(self._node, self._ray_node_id, name, "127.0.0.1", self._port, 2, 3, self._incarnation)

    async def ready(self) -> bool:
        await self._joined
        return b"BEGIN CERTIFICATE" in self._credentials.certificate_pem

    async def _push(self, endpoint: int, message: bytes) -> bytes:
        pushed = wire.decode(message)
        await asyncio.sleep(self._slow.get(endpoint, 0))
        if not isinstance(pushed, Membership):
            return wire.encode({"events_published": 10, "packing_degree": {"link": 2}})
        self._pushes += 1
        known = self._memberships.get((endpoint, pushed.channel))
        if known is None or (pushed.epoch, pushed.version) > (known.epoch, known.version):
            self._memberships[endpoint, pushed.channel] = pushed
        return wire.encode(Installed())

    async def registrations(self, slot: int, managers: int) -> list[Registrations]:
        keys = {key[:2] for key in self._streams} | {key[:2] for key in self._consumers}
        return [
            Registrations(
                self._node,
                endpoint,
                channel,
                self._definitions[channel],
                tuple((key[2], "") for key in self._streams if key[:2] == (endpoint, channel)),
                tuple(key[2:] for key in self._consumers if key[:2] == (endpoint, channel)),
            )
            for endpoint, channel in keys
            if slot_of(channel, managers) == slot
        ]

    async def directory_changed(self, directory: Directory) -> None:
        known = self._directory
        if (directory.epoch, directory.version) > (known.epoch, known.version):
            self._directory = directory

    async def describe(self) -> dict[str, Any]:
        epoch = self._directory.epoch if self._joined.done() else 0
        return {
            **startup.describe_this_actor(),
            "info": self._info(),
            "directory_epoch": epoch,
            "revoked": (),
            "endpoints": len({key[0] for key in self._streams} | {key[0] for key in self._consumers}),
            "suspected": [],
        }

    async def stop(self) -> None:
        pass

    async def wire_version(self) -> int:
        return WIRE_VERSION

    # ---- for tests ---------------------------------------------------------------------------------------------------

    async def ask(self, endpoint: int, message: Any, timeout: float = 30) -> Any:
        """An endpoint's request, as a concentrator's control thread makes it."""
        await self._joined
        slot = slot_of(message.channel, len(self._directory.managers))
        asked = self._asked[id(message)] = self._loop.create_future()
        links = self._hub.manager_links
        self._hub.post(partial(links.forward, slot, endpoint, 0, message, wire.encode(message)))
        reply = wire.decode(await asyncio.wait_for(asked, timeout))
        if isinstance(message, OpenChannel):
            self._definitions[message.channel] = reply
        elif isinstance(message, RegisterProducer):
            self._streams.add((endpoint, message.channel, message.stream))
        elif isinstance(message, Subscribe):
            held = (message.subscription, message.group, message.handler_fingerprint, "", message.handler_version)
            self._consumers.add((endpoint, message.channel, *held))
        return reply

    async def membership(self, endpoint: int, channel: str) -> Membership | None:
        return self._memberships.get((endpoint, channel))

    async def directory(self) -> Directory:
        return self._directory

    async def be_slow(self, endpoint: int, seconds: float) -> None:
        self._slow[endpoint] = seconds


class OtherVersion:
    """A part of another release."""

    def __init__(self, *_: Any) -> None:
        pass

    async def wire_version(self) -> int:
        return WIRE_VERSION + 1
