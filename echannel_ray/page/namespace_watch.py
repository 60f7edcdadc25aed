"""Reads the namespace for all viewers together, and only while there are any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from echannel_ray.errors import Disconnected
from echannel_ray.page.history import History
from echannel_ray.page.picture import ChannelRow, NodeRow, PartRow, Picture

_EVERY_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
# A round asks every process that has producers or consumers: a fifth of the time is enough for being looked at.
_REST_PER_ROUND: Final = 4.0
_RETRY_SECONDS: Final = 1.0


class Changes(msgspec.Struct):
    """What a viewer does not know yet."""

    namespace: str = ""
    at: float = 0.0
    every_seconds: float = _EVERY_SECONDS  # in which there will be news
    problem: str | None = None  # why there is nothing new; all else is empty then
    nodes: list[NodeRow] = []
    parts: list[PartRow] = []
    changed: list[ChannelRow] = []
    gone: list[str] = []


class NamespaceWatch:
    """Looks at the namespace for all viewers of one server."""

    def __init__(self, look: Callable[[bool], Awaitable[Picture]]) -> None:
        self._look = look
        self._round = 0
        self._news = asyncio.Condition()
        self._picture: Picture | None = None
        self._problem: str | None = None
        self.history = History()
        self.viewers = 0

    async def run(self) -> None:
        """Look at the namespace again and again, until cancelled."""
        afresh = True
        while True:
            async with self._news:
                if not self.viewers:
                    afresh = True
                    await self._news.wait_for(lambda: self.viewers)
            began = time.monotonic()
            try:
                picture = await self._look(afresh)
            except Disconnected as error:
                await self._tell(self._picture, str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                afresh = True
                continue
            took = time.monotonic() - began
            self.history.add(picture.at, picture.rows)
            await self._tell(picture, None)
            afresh = False
            await asyncio.sleep(rest_after(took))

    async def changes(self) -> AsyncGenerator[Changes, None]:
        """What one viewer is to be told, as it happens. Who reads slowly is told of fewer rounds."""
        known: dict[str, ChannelRow] = {}
        seen = self._round
        async with self._news:
            self.viewers += 1
            self._news.notify_all()
        try:
            while True:
                async with self._news:
                    while self._round == seen:
                        await self._news.wait()
                    seen, picture, problem = self._round, self._picture, self._problem
                if problem is not None:
                    yield Changes(problem=problem)
                elif picture is not None:
                    yield changes_since(known, picture)
        finally:
            self.viewers -= 1

    async def _tell(self, picture: Picture | None, problem: str | None) -> None:
        async with self._news:
            self._round += 1
            self._picture, self._problem = picture, problem
            self._news.notify_all()


def rest_after(took: float) -> float:
    """Seconds until the next round begins, after one that took so long."""
    return min(_LONGEST_SECONDS, max(_EVERY_SECONDS - took, _REST_PER_ROUND * took))


def changes_since(known: dict[str, ChannelRow], picture: Picture) -> Changes:
    """What is in the picture that this viewer has not seen, who has seen it then."""
    changed = [row for row in picture.rows if known.get(row.channel) != row]
    known.update((row.channel, row) for row in changed)
    gone = [*known.keys() - {row.channel for row in picture.rows}]
    for name in gone:
        del known[name]
    return Changes(
        namespace=picture.namespace,
        at=picture.at,
        every_seconds=picture.round_seconds + rest_after(picture.round_seconds),
        nodes=picture.nodes,
        parts=picture.parts,
        changed=changed,
        gone=gone,
    )
