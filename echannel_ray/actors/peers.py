"""The other nodes, as one concentrator sees them: who is there, the links to them, who is dead and who is silent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from echannel_ray import errors
from echannel_ray.actors.hub import Hub, HubLink
from echannel_ray.core.messages import ConcentratorInfo, Directory
from echannel_ray.core.relay import Relay
from echannel_ray.ids import MANAGERS_NODE
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Peer
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import connect_tcp

logger = logging.getLogger(__name__)

PEER_TIMEOUT_SECONDS = 30.0
_DIAL_SECONDS = 2.0
_DIAL_AGAIN_SECONDS = 0.2
# A node that joins is known to its first producers a little before it is known here.
_UNKNOWN_NODE_SECONDS = 2.0
# So long may a link last that was made when others were trusted.
_JUDGED_SECONDS = 5.0
_RENEW_AGAIN_SECONDS = 1.0


class Peers:
    """The other nodes, and the links to them; one per concentrator, used on its actor's loop."""

    def __init__(
        self,
        hello: wire.Hello,
        relay: Relay,
        hub: Hub,
        ask_name_server: Callable[..., Awaitable[Any]],
        in_background: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self._hello = hello
        self._node = hello.node
        self._relay = relay
        self._hub = hub
        self._ask_name_server = ask_name_server
        self._in_background = in_background
        self.directory: Directory | None = None
        self._credentials: Credentials | None = None
        self._judging_since = -math.inf  # when it last changed who is trusted
        self._distrusting: set[int] = set()  # that was said already
        self._dialling: set[int] = set()
        self._up: dict[int, asyncio.Event] = {}
        self._lost_at: dict[int, float] = {}
        self._missing_since: dict[int, float] = {}

    def take_directory(self, directory: Directory) -> None:
        """Take in a new directory: concentrators came or left."""
        known = self.directory
        if known is not None and known.recency >= directory.recency:
            return
        self.directory = directory
        present = {info.node for info in directory.concentrators}
        # Also one that another concentrator was faster to report: the link to it is down already.
        for node in {*self._relay.peers, *self._lost_at} - present:
            # It retired, so it had no endpoints; or it is dead.
            self._hub.post(partial(self._relay.node_gone, node))
            self._lost_at.pop(node, None)
        self._reach_all()

    def take_credentials(self, credentials: Credentials) -> None:
        """What to show, and what to ask for, from now on; also of links that are: see `_look_after`."""
        if self._credentials is not None and self._credentials.trust != credentials.trust:
            self._judging_since = time.monotonic()
        self._credentials = credentials

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
        for node, peer_link in [*self._relay.peers.items()]:
            if isinstance(peer_link, HubLink) and not self._ends(peer_link, now):
                self._renew_in_time(node, peer_link, now)
        for manager_link in [*self._hub.managers.values()]:
            self._ends(manager_link, now)  # managers renew their links
        for link in self._hub.suspected():
            if link.node and now - link.heard_at > PEER_TIMEOUT_SECONDS:
                self._hub.post(partial(self._hub.disconnect, link))
        self._look_for_unknown_nodes(now)

    def _reach_all(self) -> None:
        """Begin to reach the peers to which there is no link."""
        for info in self.directory.concentrators if self.directory is not None else ():
            if info.node != self._node and info.node not in self._relay.peers and info.node not in self._dialling:
                self._in_background(self._reach(info.node))

    def _ends(self, link: HubLink, now: float) -> bool:
        """A link lasts as long as what was shown when it was made would let it be made now: whether that is over."""
        peer = link.connection.peer
        if peer.kind != "tcp":
            return False
        assert self._credentials is not None
        if self._credentials.has_revoked(peer):
            reason = "revoked"
        elif peer.expires_at is not None and time.time() > peer.expires_at:
            reason = "expired"
        elif link.opened_at < self._judging_since < now - _JUDGED_SECONDS:
            reason = "not_renewed"
        else:
            return False
        self._hub.post(partial(self._hub.refuse, reason, link))
        return True

    def _renew_in_time(self, node: int, link: HubLink, now: float) -> None:
        """Renew a link well before it has to end: the new one takes the place of the old one, and flows see to it that
        nothing is lost.
        """
        # Two that are told the same must not dial at once: this side may let the other renew their link.
        courtesy_seconds = 0.0 if self._node < node else _RENEW_AGAIN_SECONDS
        if now > link.renew_at or link.opened_at < self._judging_since < now - courtesy_seconds:
            self._in_background(self._renew(node))

    def is_manager(self, peer: Peer, node: int) -> bool:
        """Whether it is a manager of that node who has greeted so; from the hub's thread."""
        if peer.kind == "unix":
            return node == self._node
        # Mounted certificates know no managers, as they know no nodes: a member is believed.
        is_member = self._credentials is not None and bool(self._credentials.names)
        return peer.node == MANAGERS_NODE or (is_member and peer.node in (node, None))

    async def _renew(self, node: int) -> None:
        """Have another link to a peer in the place of the one that there is."""
        info = self._info_of(node)
        if info is None or node in self._dialling:
            return
        self._dialling.add(node)
        try:
            self._is_up(node).clear()
            if await asyncio.to_thread(self._dial, info):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._is_up(node).wait(), _DIAL_SECONDS)
                    return
            await asyncio.sleep(_RENEW_AGAIN_SECONDS)
        finally:
            self._dialling.discard(node)

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
                # Trust comes back by somebody's hand.
                await asyncio.sleep(_RENEW_AGAIN_SECONDS if node in self._distrusting else _DIAL_AGAIN_SECONDS)
        finally:
            self._dialling.discard(node)

    def _dial(self, info: ConcentratorInfo) -> bool:
        """Link to a peer and greet it; it blocks. Whether somebody of this node's certificate was there."""
        credentials = self._credentials
        assert credentials is not None
        try:
            connection = connect_tcp(info.host, info.port, credentials, _DIAL_SECONDS)
        except errors.NotAuthorised as error:
            self._distrust(info, error)
            return False
        except OSError as error:
            logger.debug("node %016x at %s:%d: %s", info.node, info.host, info.port, error)
            return False
        if connection.peer.node not in (info.node, None):  # None: of a mounted certificate that names no node
            connection.close()
            return False
        self._distrusting.discard(info.node)
        ends_at = min(credentials.not_after.timestamp(), connection.peer.expires_at or math.inf)
        # Each side has another certificate by the middle of the former's life, or a little later.
        renew_at = time.monotonic() + max(_RENEW_AGAIN_SECONDS, (ends_at - time.time()) / 2)
        self._hub.post(partial(self._hub.adopt, connection, self._hello, renew_at))
        return True

    def _distrust(self, info: ConcentratorInfo, error: errors.NotAuthorised) -> None:
        self._hub.post(partial(self._hub.refuse, error.facts["reason"]))
        if info.node not in self._distrusting:
            self._distrusting.add(info.node)
            logger.warning("there is no link to node %016x, and it is tried again and again: %s", info.node, error)

    async def _report_dead(self, node: int, waited: bool) -> None:
        """Have the name server look as well: only what it finds dead, is. `waited`: silence has lasted long enough."""
        if await self._ask_name_server("node_gone", node, waited):
            self._hub.post(partial(self._relay.node_gone, node))

    def _look_for_unknown_nodes(self, now: float) -> None:
        """Flows and calls may lead to a node that died before this concentrator started: nobody else would ask."""
        known = {self._node, *self._relay.peers, *self._lost_at}
        missing = {node for relayed in [*self._relay.flows.values()] for node in [*relayed.remote]}
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
