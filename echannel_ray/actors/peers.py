"""The other nodes, as one concentrator sees them: who is there, the links to them, who is dead and who is silent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from echannel_ray import errors
from echannel_ray.protocol.messages import ConcentratorInfo, Directory
from echannel_ray.protocol.relay import Relay
from echannel_ray.runtime.hub import Hub
from echannel_ray.transport import wire
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import connect_tcp

logger = logging.getLogger(__name__)

PEER_TIMEOUT_SECONDS = 30.0
_DIAL_SECONDS = 2.0
_DIAL_AGAIN_SECONDS = 0.2
# A node that joins is known to its first producers a little before it is known here.
_UNKNOWN_NODE_SECONDS = 2.0


class Peers:
    """One per concentrator; used on its actor's loop."""

    def __init__(
        self,
        hello: wire.Hello,
        relay: Relay,
        hub: Hub,
        ask_name_server: Callable[..., Awaitable[Any]],
        in_background: Callable[[Coroutine[Any, Any, Any]], None],
    ) -> None:
        self._hello = hello
        self._node = hello.node
        self._relay = relay
        self._hub = hub
        self._ask_name_server = ask_name_server
        self._in_background = in_background
        self.directory: Directory | None = None
        self.credentials: Credentials | None = None
        self._dialling: set[int] = set()
        self._up: dict[int, asyncio.Event] = {}
        self._lost_at: dict[int, float] = {}
        self._missing_since: dict[int, float] = {}

    def take_directory(self, directory: Directory) -> None:
        """Concentrators came or left."""
        known = self.directory
        if known is not None and (known.epoch, known.version) >= (directory.epoch, directory.version):
            return
        self.directory = directory
        present = {info.node for info in directory.concentrators}
        # Also one that another concentrator was faster to report: the link to it is down already.
        for node in {*self._relay.peers, *self._lost_at} - present:
            # It retired, so it had no endpoints; or it is dead.
            self._hub.post(partial(self._relay.node_gone, node))
            self._lost_at.pop(node, None)
        self._reach_all()

    def is_back(self, node: int) -> None:
        """The link to a node is up."""
        self._is_up(node).set()
        self._lost_at.pop(node, None)

    def is_lost(self, node: int) -> None:
        """The link to a node is down."""
        self._is_up(node).clear()
        self._lost_at[node] = time.monotonic()
        if self._info_of(node) is not None:
            self._in_background(self._reach(node))
        else:
            self._in_background(self._report_dead(node, waited=False))

    def watch(self, now: float) -> None:
        """Every quarter of a second: try again, and give up those that were silent for too long."""
        self._reach_all()  # also where an attempt ended in an error
        for node, lost_at in [*self._lost_at.items()]:
            if now - lost_at > PEER_TIMEOUT_SECONDS:
                del self._lost_at[node]
                self._in_background(self._report_dead(node, waited=True))
        for link in self._hub.suspected():
            if link.node and now - link.heard_at > PEER_TIMEOUT_SECONDS:
                self._hub.post(partial(self._hub.disconnect, link))
        self._look_for_unknown_nodes(now)

    def _reach_all(self) -> None:
        """Begin to reach the peers to which there is no link."""
        for info in self.directory.concentrators if self.directory is not None else ():
            if info.node != self._node and info.node not in self._relay.peers and info.node not in self._dialling:
                self._in_background(self._reach(info.node))

    async def _reach(self, node: int) -> None:
        """Have a link to this peer, or know that it is dead: one of a pair dials, both look for the other."""
        if node in self._dialling:
            return
        self._dialling.add(node)
        try:
            while node not in self._relay.peers:
                info = self._info_of(node)
                if info is None:
                    return
                if self._node < node and await asyncio.to_thread(self._dial, info):
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._is_up(node).wait(), _DIAL_SECONDS)
                if node in self._relay.peers:
                    return
                if await asyncio.to_thread(_is_unreachable, info):
                    await self._report_dead(node, waited=False)
                await asyncio.sleep(_DIAL_AGAIN_SECONDS)
        finally:
            self._dialling.discard(node)

    def _dial(self, info: ConcentratorInfo) -> bool:
        """Link to a peer and greet it; it blocks. Whether somebody of this node's certificate was there."""
        assert self.credentials is not None
        try:
            connection = connect_tcp(info.host, info.port, self.credentials, _DIAL_SECONDS)
        except (OSError, errors.EChannelError) as error:
            logger.debug("node %016x at %s:%d: %s", info.node, info.host, info.port, error)
            return False
        if connection.peer.node != info.node:
            connection.close()
            return False
        self._hub.post(partial(self._hub.adopt, connection, self._hello))
        return True

    async def _report_dead(self, node: int, waited: bool) -> None:
        """Have the name server look as well: only what it finds dead, is. `waited`: silence has lasted long enough."""
        if await self._ask_name_server("node_gone", node, waited):
            self._hub.post(partial(self._relay.node_gone, node))

    def _look_for_unknown_nodes(self, now: float) -> None:
        """Flows and calls may lead to a node that died before this concentrator started: nobody else would ask."""
        known = {self._node, *self._relay.peers, *self._lost_at}
        missing = {node for route in [*self._relay.routes.values()] for node in [*route.remote]}
        missing = (missing | self._relay.sought.copy()) - known
        self._missing_since = {node: self._missing_since.get(node, now) for node in missing}
        for node, since in [*self._missing_since.items()]:
            if now - since > _UNKNOWN_NODE_SECONDS:
                self._missing_since[node] = now
                self._in_background(self._report_dead(node, waited=False))

    def _is_up(self, node: int) -> asyncio.Event:
        return self._up.setdefault(node, asyncio.Event())

    def _info_of(self, node: int) -> ConcentratorInfo | None:
        if self.directory is None:
            return None
        return next((info for info in self.directory.concentrators if info.node == node), None)


def greeting(namespace: str, node: int, incarnation: int) -> wire.Hello:
    """How a concentrator greets its peers."""
    return wire.Hello(namespace, node, 0, os.getpid(), incarnation)


def _is_unreachable(info: ConcentratorInfo) -> bool:
    """Whether both the concentrator's and the raylet's port refuse: then the node is dead, not silent."""
    return _refuses(info.host, info.port) and _refuses(info.host, info.raylet_port)


def _refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False  # unreachable or slow: silent, which is not dead
    return False
