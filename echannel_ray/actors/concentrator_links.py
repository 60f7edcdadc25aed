"""The links of a manager to all concentrators, which it dials: by a Unix socket on its own node, else by TCP with TLS.

Rules:

* A link is there for as long as the directory names the concentrator: one that ends is made again.
* What it carries may come twice: see `open_questions`.
* Managers show a certificate of their own, which is good for nothing else; concentrators' is no good for this.
* Other credentials, or the middle of the shorter certificate's life, end a link between nodes; the next one is judged
  by what holds then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from echannel_ray import errors
from echannel_ray.actors.open_questions import OpenQuestions
from echannel_ray.actors.startup import describe_this_actor
from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.actors.wallet import LOOK_SECONDS, Wallet
from echannel_ray.core import frames
from echannel_ray.core.framing import Framer
from echannel_ray.core.messages import ConcentratorInfo, Directory
from echannel_ray.ids import MANAGERS_NODE, node_number
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import connect_tcp
from echannel_ray.transport.unix import connect_unix, path_of_directory

logger = logging.getLogger(__name__)

_DIAL_SECONDS: Final = 2.0
_DIAL_AGAIN_SECONDS: Final = 0.05
_MAX_DIAL_AGAIN_SECONDS: Final = 0.5
_BUFFER_BYTES: Final = frames.MAX_FRAME_BYTES + (64 << 10)
_MAX_PARTS: Final = 64  # that are handed to the socket in one call
_MAX_UNSENT_BYTES: Final = 64 << 20

Answer = Callable[[int, int, bytes], Awaitable[bytes]]
InBackground = Callable[[Coroutine[Any, Any, Any]], object]


class ConcentratorLinks:
    """A manager's links to the concentrators; one per manager, used on its actor's loop."""

    def __init__(
        self,
        namespace: str,
        slot: int,
        answer: Answer,
        ask_for_certificate: Callable[[], Awaitable[Credentials]],
        in_background: InBackground,
    ) -> None:
        """`answer` is asked what an endpoint of a node gets for its request."""
        self._namespace = namespace
        self._slot = slot
        self._answer = answer
        self._in_background = in_background
        self._ask_for_certificate = ask_for_certificate
        self._wallet: Wallet | None = None  # none while what is mounted is no good
        self._node = MANAGERS_NODE
        self._infos: dict[int, ConcentratorInfo] = {}
        self._kept: set[int] = set()  # nodes to which a link is kept
        self._links: dict[int, ConcentratorLink] = {}
        self._questions: dict[int, OpenQuestions] = {}
        self._buffer: Any = mmap.mmap(-1, _BUFFER_BYTES)  # of which only that is memory which was ever written

    def begin(self) -> None:
        """Have credentials, and keep them: from now on links can be made."""
        self._node = node_number(describe_this_actor()["node_id"])
        self._in_background(self._keep_credentials())

    def take_directory(self, directory: Directory) -> None:
        """Take in which concentrators there are, and where."""
        self._infos = {info.node: info for info in directory.concentrators}
        for node in self._infos.keys() - self._kept:
            self._kept.add(node)
            self._in_background(self._keep(node))
        for node in self._links.keys() - self._infos.keys():
            self._links[node].close()
        for node in self._questions.keys() - self._infos.keys():
            if not self._questions[node].is_waiting:
                del self._questions[node]
        if self._wallet is not None and self._wallet.take_revoked(directory.revoked):
            self._in_background(self._wallet.renew())

    async def push(self, node: int, endpoints: list[int], message: object, timeout: float) -> list[Any]:
        """What these endpoints of a node answer; `TimeoutError` where their concentrator does not say it in time."""
        question = wire.ToBePushed(tuple(endpoints), wire.encode(message))
        answer = wire.decode(await self._to(node).ask(question, timeout))
        if not isinstance(answer, wire.Confirmations) or len(answer.answers) != len(endpoints):
            raise wire.MalformedMessage(f"node {node:016x} did not say what its endpoints have confirmed")
        return [wire.decode(each) for each in answer.answers]

    def _to(self, node: int) -> OpenQuestions:
        found = self._questions.get(node)
        if found is None:
            found = self._questions[node] = OpenQuestions(frames.PUSH, partial(self._send, node))
        return found

    def _send(self, node: int, frame: bytes) -> None:
        link = self._links.get(node)
        if link is not None:
            link.send(frame)

    # ---- the links -------------------------------------------------------------------------------------------------

    async def _keep(self, node: int) -> None:
        """Have a link to a concentrator for as long as there is one."""
        pause = _DIAL_AGAIN_SECONDS
        try:
            while (info := self._infos.get(node)) is not None:
                connection = await self._dialled(info)
                if connection is None:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _MAX_DIAL_AGAIN_SECONDS)
                    continue
                pause = _DIAL_AGAIN_SECONDS
                link = self._links[node] = ConcentratorLink(node, connection, self._buffer, self._brought)
                link.send(frames.frame(frames.HELLO, wire.encode(self._hello())))
                self._to(node).repeat()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(link.ended.wait(), self._seconds_good(connection))
                link.close()
                del self._links[node]
        finally:
            self._kept.discard(node)

    def _hello(self) -> wire.Hello:
        return wire.Hello(self._namespace, self._node, 0, os.getpid(), slot=self._slot)

    async def _dialled(self, info: ConcentratorInfo) -> Connection | None:
        try:
            if info.node == self._node:
                path = path_of_directory(self._namespace, info.node) / SOCKET_NAME
                connection: Connection = await asyncio.to_thread(connect_unix, str(path), _DIAL_SECONDS)
            else:
                shown = self._wallet.current if self._wallet is not None else None
                if shown is None:
                    return None
                connection = await asyncio.to_thread(connect_tcp, info.host, info.port, shown, _DIAL_SECONDS)
        except errors.NotAuthorised as error:
            logger.warning("manager %d has no link to node %016x, and tries again: %s", self._slot, info.node, error)
            return None
        except OSError as error:
            logger.debug("manager %d, node %016x: %s", self._slot, info.node, error)
            return None
        if connection.peer.kind == "tcp" and connection.peer.node not in (info.node, None):
            connection.close()
            return None
        return connection

    def _seconds_good(self, connection: Connection) -> float | None:
        """After how long a link is to be made anew; None for one that shows no certificates."""
        if connection.peer.expires_at is None:
            return None
        assert self._wallet is not None
        assert self._wallet.current is not None
        ends_at = min(self._wallet.current.not_after.timestamp(), connection.peer.expires_at)
        return max(_DIAL_SECONDS, (ends_at - time.time()) / 2)

    def _credentials_changed(self, credentials: Credentials) -> None:
        for link in self._links.values():
            if link.is_between_nodes:
                link.close()

    async def _keep_credentials(self) -> None:
        while True:
            try:
                if self._wallet is None:
                    wallet = Wallet(MANAGERS_NODE, self._ask_for_certificate, self._credentials_changed)
                    await wallet.renew()
                    self._wallet = wallet
                else:
                    await self._wallet.look()
            except errors.NotAuthorised as error:
                logger.warning("manager %d has no links to other nodes: %s", self._slot, error)
            except Exception:  # of one look: the next must follow
                logger.exception("manager %d keeps its credentials", self._slot)
            await asyncio.sleep(LOOK_SECONDS)

    # ---- what they bring -------------------------------------------------------------------------------------------

    def _brought(self, link: ConcentratorLink, kind: int, body: bytes) -> None:
        if kind == frames.REQUEST:
            self._in_background(self._serve(link, body))
        elif kind == frames.PUSHED:
            self._to(link.node).answered(body)
        elif kind == frames.REFUSED:
            logger.warning("manager %d is refused by the concentrator of node %016x", self._slot, link.node)
            link.close()

    async def _serve(self, link: ConcentratorLink, body: bytes) -> None:
        number, asked = body[: frames.REQUEST_ID.size], wire.decode(body[frames.REQUEST_ID.size :])
        if not isinstance(asked, wire.Asked):
            raise wire.MalformedMessage(f"a concentrator passes requests on, and no {type(asked).__name__}")
        answer = await self._answer(link.node, asked.endpoint, asked.request)
        link.send(frames.frame(frames.REPLY, number + answer))


class ConcentratorLink:
    """One link of a manager, on its actor's loop."""

    def __init__(
        self,
        node: int,
        connection: Connection,
        buffer: Any,
        brought: Callable[[ConcentratorLink, int, bytes], None],
    ) -> None:
        """`buffer` is what all links of the loop read into, one after the other."""
        self.node = node
        self.ended = asyncio.Event()
        self.is_between_nodes = connection.peer.kind == "tcp"
        self._connection = connection
        self._buffer = buffer
        self._brought = brought
        self._framer = Framer()
        self._out: deque[bytes | memoryview] = deque()
        self._out_bytes = 0
        self._waits_for_room = False
        self._loop = asyncio.get_running_loop()
        self._descriptor = connection.fileno()
        connection.setblocking(False)
        self._loop.add_reader(self._descriptor, self._readable)
        if connection.pending():
            self._loop.call_soon(self._readable)

    def send(self, frame: bytes) -> None:
        """Send, or keep what the socket does not take now; nothing where the link has ended."""
        if self.ended.is_set():
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if len(self._out) == 1:
            self._write()
        elif self._out_bytes > _MAX_UNSENT_BYTES:  # nobody reads: what is still wanted goes by the next link
            self.close()

    def close(self) -> None:
        """End it; a second call does nothing."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._connection.close()
        self._out.clear()

    def _write(self) -> None:
        connection = self._connection
        try:
            while self._out or connection.wants_write():
                taken = connection.send([*self._out][:_MAX_PARTS])
                self._drop(taken)
                if not taken:
                    break
        except ConnectionError:
            self.close()
            return
        if self._waits_for_room != (waits := bool(self._out) or connection.wants_write()):
            self._waits_for_room = waits
            if waits:
                self._loop.add_writer(self._descriptor, self._write)
            else:
                self._loop.remove_writer(self._descriptor)

    def _drop(self, taken: int) -> None:
        """Keep nothing of what the socket has taken."""
        self._out_bytes -= taken
        while taken:
            first = self._out[0]
            if taken < len(first):
                self._out[0] = memoryview(first)[taken:]
                return
            taken -= len(first)
            self._out.popleft()

    def _readable(self) -> None:
        view = memoryview(self._buffer)
        while not self.ended.is_set():
            have = self._framer.begin(self._buffer)
            received = self._connection.recv_into(view[have:])
            if received is None:
                return
            if not received:
                self.close()
                return
            try:
                for kind, _, start, stop in self._framer.frames(self._buffer, have + received):
                    self._brought(self, kind, bytes(view[start:stop]))
            except frames.MalformedFrame as error:
                logger.warning("a manager closes its link to node %016x: %s", self.node, error)
                self.close()
