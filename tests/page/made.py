"""What was read of a namespace, made up; and a telescope that sees that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from echannel_ray.errors import Disconnected
from echannel_ray.models import ConcentratorPart, Manager, Node, NodeShare, Part, Status
from echannel_ray.overview.readings import ChannelLine
from echannel_ray.page import looker_frames
from echannel_ray.page.painter import Painter
from echannel_ray.page.picture import Picture

FIRST, SECOND = "a" * 16, "b" * 16


def status(**changes: Any) -> Status:
    """Two nodes, on which all is well."""
    hubs = [
        ConcentratorPart(name=f"n:concentrator-{node}", pid=7, node_id=node + "0" * 40, endpoints=3)
        for node in (FIRST, SECOND)
    ]
    nodes = [Node(node_id=node + "0" * 40, alive=True, joined=True, suspected=False) for node in (FIRST, SECOND)]
    manager = Manager(name="n:manager-0", pid=6, node_id=FIRST + "0" * 40, state="serving", channels=["trades"])
    told = Status(
        namespace="n",
        name_server=Part(name="n:name-server", pid=5, node_id=FIRST + "0" * 40),
        managers=[manager],
        concentrators=hubs,
        channels=["trades"],
        nodes=nodes,
    )
    return told.model_copy(update=changes)


def line(channel: str = "trades", **counters: Any) -> ChannelLine:
    """A channel that one node publishes on, and the other handles."""
    told = {
        "channel": channel, "producers": 1, "consumers": 1,
        "nodes": {
            FIRST: NodeShare(producers=1, events_published=counters.get("events_published", 0)),
            SECOND: NodeShare(consumers=1, events_delivered=counters.get("events_delivered", 0)),
        },
        **counters,
    }  # fmt: skip
    return ChannelLine.model_validate(told)


def painted(lines: list[ChannelLine], at: float = 1.0, painter: Painter | None = None) -> Picture:
    """The picture of one round."""
    return (painter or Painter()).paint(status(), lines, at, at, 0.01)


class FakeTelescope:
    """Sees what it is given; each look is a round later. An error is raised once."""

    def __init__(self) -> None:
        self.looks: list[bool] = []
        self.seen: list[Picture | Disconnected] = []
        self.taps: list[tuple[str, float]] = []
        self.open_taps = 0
        self.tapped: list[looker_frames.Tapped] = []
        self.has_joined = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def look(self, afresh: bool) -> Picture:
        self.looks.append(afresh)
        found = self.seen[0] if len(self.seen) == 1 else self.seen.pop(0)
        if isinstance(found, Disconnected):
            raise found
        return found

    async def tap(self, channel: str, rate: float) -> AsyncGenerator[looker_frames.Tapped, None]:
        self.taps.append((channel, rate))
        self.open_taps += 1
        try:
            for each in self.tapped:
                yield each
            await asyncio.Event().wait()
        finally:
            self.open_taps -= 1
