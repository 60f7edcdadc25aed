"""NATS: subjects for events, inboxes for answers, through nats-py and a server of its own.

One sink is asked by `request`; several by an event with an inbox for their replies, as NATS does scatter and gather.
Events one way are published without waiting: the client packs what is written in one turn of its loop.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from echannel_ray.benchmarks.baselines.peers import ANSWER_SECONDS, LAST, Peers, end_with, serve
from echannel_ray.benchmarks.baselines.servers import NATS, Server, need_package

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg


class Nats(Peers):
    """A source, its sinks and a server."""

    def __init__(self, sinks: int = 1) -> None:
        need_package("nats")
        server = Server(NATS)
        super().__init__(source, sink, sinks, f"nats://127.0.0.1:{server.port}", server)


def subject(sinks: int) -> str:
    """Where events for so many sinks go."""
    return f"events.{sinks}"


def source(pipe: Connection, address: str, sinks: int) -> None:
    """Publish and ask."""
    import nats

    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(nats.connect(address))
    asking = Asking(client)
    loop.run_until_complete(asking.begin())
    pipe.send(address)
    pipe.send("ready")
    try:
        serve(
            pipe,
            {
                "round trip": lambda *what: loop.run_until_complete(asking.round_trip(*what)),
                "one way": lambda *what: loop.run_until_complete(asking.one_way(*what)),
            },
        )
    finally:
        loop.run_until_complete(client.close())


class Asking:
    """What the source does on its loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()

    async def begin(self) -> None:
        """Listen for the replies of several."""
        self._replies = await self._client.subscribe(self._inbox)

    async def round_trip(self, events: list[Any], count: int, sinks: int) -> int:
        """Each event to its sinks and back."""
        for event in islice(cycle(events), count):
            body = pickle.dumps(event, 5)
            if sinks == 1:
                await self._client.request(subject(1), body, ANSWER_SECONDS)
            else:
                await self._answers(body, sinks)
        return count

    async def one_way(self, events: list[Any], count: int, sinks: int) -> int:
        """All events; how many of them every sink had."""
        publish, name, dumps = self._client.publish, subject(sinks), pickle.dumps
        for event in islice(cycle(events), count):
            await publish(name, dumps(event, 5))
        return min(int(answer) for answer in await self._answers(LAST, sinks))

    async def _answers(self, body: bytes, sinks: int) -> list[bytes]:
        await self._client.publish(subject(sinks), body, reply=self._inbox)
        return [(await self._replies.next_msg(ANSWER_SECONDS)).data for _ in range(sinks)]


def sink(pipe: Connection, address: str, groups: Iterable[int]) -> None:
    """Count what arrives, and answer what asks for it."""
    end_with(pipe)
    asyncio.run(_sink(pipe, address, groups))


async def _sink(pipe: Connection, address: str, groups: Iterable[int]) -> None:
    import nats

    count = 0

    async def handle(message: Msg) -> None:
        nonlocal count
        if message.data == LAST:
            await message.respond(b"%d" % count)
            count = 0
            return
        pickle.loads(message.data)
        count += 1
        if message.reply:
            await message.respond(b"")

    client = await nats.connect(address)
    for group in groups:
        await client.subscribe(subject(group), cb=handle)
    await client.flush()
    pipe.send("ready")
    await asyncio.Event().wait()
