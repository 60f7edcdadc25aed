"""Redis: three ways to pass events on, through redis-py and a server of their own that keeps nothing on disk.

Round trips go by lists (RPUSH, BLPOP), the usual way, which was as fast as PUBLISH both ways. Events one way go by
PUBLISH, or by a stream (XADD, XREAD), both in pipelines of `PIPELINE` commands.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

from echannel_ray.benchmarks.baselines.peers import ANSWER_SECONDS, LAST, Peers, end_with, serve
from echannel_ray.benchmarks.baselines.servers import REDIS, Server, need_package

PIPELINE = 256
EVENTS, ANSWERS = "events", "answers"  # the names of lists, channels and streams
FIELD = b"event"


class RedisPair(Peers):
    """A source, a sink and a server; `way` is one of `WAYS`."""

    def __init__(self, way: str) -> None:
        need_package("redis")
        server = Server(REDIS)
        super().__init__(*WAYS[way], 1, str(server.port), server)


def client(address: str) -> Any:
    """A client of the server at a port. Its annotations leave open what a command answers."""
    import redis

    return redis.Redis(port=int(address), socket_timeout=None)  # BLPOP waits for as long as it takes


def ask(pipe: Connection, address: str, _: int) -> None:
    """The source of round trips."""
    link = client(address)
    pipe.send(address)
    pipe.send("ready")

    def round_trip(events: list[Any], count: int, _: int) -> int:
        for event in islice(cycle(events), count):
            link.rpush(EVENTS, pickle.dumps(event, 5))
            link.blpop([ANSWERS])
        return count

    serve(pipe, {"round trip": round_trip})


def reply(pipe: Connection, address: str, _: Iterable[int]) -> None:
    """The sink of round trips."""
    end_with(pipe)
    link = client(address)
    pipe.send("ready")
    while True:
        pickle.loads(link.blpop([EVENTS])[1])
        link.rpush(ANSWERS, b"")


def send(add: Callable[[Any, bytes], object], pipe: Connection, address: str, _: int) -> None:
    """The source of events one way; `add` puts an event's command into the pipeline."""
    link = client(address)
    pipe.send(address)
    pipe.send("ready")

    def one_way(events: list[Any], count: int, _: int) -> int:
        batch, dumps = link.pipeline(transaction=False), pickle.dumps
        for number, event in enumerate(islice(cycle(events), count), 1):
            add(batch, dumps(event, 5))
            if number % PIPELINE == 0:
                batch.execute()
        add(batch, LAST)
        batch.execute()
        arrived = link.blpop([ANSWERS], ANSWER_SECONDS)[1]
        link.delete(EVENTS)  # a stream keeps what it had
        return int(arrived)

    serve(pipe, {"one way": one_way})


def receive(listen: Callable[[Any, Connection], Iterator[bytes]], pipe: Connection, address: str, _: object) -> None:
    """The sink of events one way."""
    end_with(pipe)
    link = client(address)
    count = 0
    for body in listen(link, pipe):
        if body == LAST:
            link.rpush(ANSWERS, count)
            count = 0
        else:
            pickle.loads(body)
            count += 1


def publish(batch: Any, body: bytes) -> None:
    """To a channel."""
    batch.publish(EVENTS, body)


def published(link: Any, pipe: Connection) -> Iterator[bytes]:
    """What is published on the channel."""
    channel = link.pubsub()
    channel.subscribe(EVENTS)
    for message in channel.listen():
        if message["type"] == "message":
            yield message["data"]
        else:
            pipe.send("ready")


def add_to_stream(batch: Any, body: bytes) -> None:
    """To a stream."""
    batch.xadd(EVENTS, {FIELD: body})


def streamed(link: Any, pipe: Connection) -> Iterator[bytes]:
    """What is added to the stream."""
    pipe.send("ready")
    position: Any = "0"
    while True:
        for _, entries in link.xread({EVENTS: position}, count=PIPELINE, block=0):
            position = entries[-1][0]
            for _, fields in entries:
                yield fields[FIELD]


WAYS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "lists": (ask, reply),
    "PUBLISH": (partial(send, publish), partial(receive, published)),
    "XADD": (partial(send, add_to_stream), partial(receive, streamed)),
}
