"""How a concentrator gives up a node that is to be removed, so that nothing which its processes published is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from echannel_ray.client.departure import node_is_drained
from echannel_ray.core import frames
from echannel_ray.core.messages import NodeDrains
from echannel_ray.transport import wire
from echannel_ray.transport.unix import mark_draining

if TYPE_CHECKING:
    from echannel_ray.actors.concentrator import Concentrator

logger = logging.getLogger(__name__)

_DONE: Final = wire.encode(True)
_LOOK_SECONDS: Final = 0.02
# Of the time, what processes do not get: the logs' readers, and farewells, need some too.
_SHARE_OF_PROCESSES: Final = 0.8


class NodeDrain:
    """How one concentrator gives up its node, which is to be removed; nothing happens before `begin`."""

    def __init__(self, concentrator: Concentrator, retire: Callable[[bytes], Awaitable[None]]) -> None:
        """`retire` closes all links, with a farewell, and tells the name server; it does not end the actor."""
        self._concentrator = concentrator
        self._retire = retire
        self._task: asyncio.Task[list[int]] | None = None
        self._told: set[int] = set()

    async def begin(self, seconds: float) -> list[int]:
        """Have every process of the node leave, and its logs be read, and retire; within this time.

        What it returns are the ids of processes that did not manage to: of what they published, some may be lost.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(seconds))
        return await asyncio.shield(self._task)

    async def _run(self, seconds: float) -> list[int]:
        mine = self._concentrator
        began = time.monotonic()
        await asyncio.to_thread(mark_draining, mine.node)
        left = await self._have_all_leave(began + _SHARE_OF_PROCESSES * seconds)
        if left:
            logger.warning("node %016x is drained without these processes, which did not leave: %s", mine.node, left)
        await asyncio.to_thread(mine.storage.drain, began + seconds)
        # Who is left would else make a successor.
        reason = node_is_drained(mine.namespace, mine.node)
        await self._retire(frames.frame(frames.REFUSED, wire.encode_error(reason)))
        return left

    async def _have_all_leave(self, deadline: float) -> list[int]:
        mine = self._concentrator
        while endpoints := mine.endpoints_here():
            now = time.monotonic()
            if now >= deadline:
                return sorted({*endpoints.values()} - {0})
            await asyncio.gather(*(self._tell(each, deadline - now) for each in endpoints))
            await asyncio.sleep(_LOOK_SECONDS)
        return []

    async def _tell(self, endpoint: int, seconds: float) -> None:
        # Also those that came a moment ago. To be told again does no harm; a link that is away now may be back.
        if endpoint not in self._told:
            self._told.add(endpoint)
            answer = await self._concentrator.push(endpoint, wire.encode(NodeDrains(seconds)))
            if answer != _DONE:
                self._told.discard(endpoint)
