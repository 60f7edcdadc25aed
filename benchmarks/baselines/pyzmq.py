"""pyzmq over TCP: ROUTER and DEALERs for round trips; one way PUSH and PULL to one sink, PUB and SUBs to several.

And a bare round trip between two DEALERs, over TCP or by a Unix socket: bytes go and nothing comes back, unserialised.

Queues have no limit here, so that nothing is lost; pubsub.py tells what is with PUB's usual ones.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

from typing_extensions import override

from echannel_ray.benchmarks.baselines.peers import ANSWER_SECONDS, LAST, Peers, end_with, serve
from echannel_ray.benchmarks.baselines.servers import need_package

with suppress(ModuleNotFoundError):  # which is told when one of the classes is made
    import zmq

LOOPBACK = "tcp://127.0.0.1"


class RouterDealers(Peers):
    """Round trips: the source addresses each sink, and awaits them all."""

    def __init__(self, sinks: int = 1) -> None:
        need_package("zmq")
        super().__init__(ask, reply, sinks)


class PushPull(Peers):
    """Events one way to one sink."""

    def __init__(self) -> None:
        need_package("zmq")
        super().__init__(partial(send, zmq.PUSH), partial(receive, zmq.PULL), 1)


class PubSubs(Peers):
    """Events one way to several sinks. XPUB is PUB that hears of its subscribers."""

    def __init__(self, sinks: int) -> None:
        need_package("zmq")
        super().__init__(partial(send, zmq.XPUB), partial(receive, zmq.SUB), sinks)


class BareDealers(Peers):
    """Round trips between one source and one sink, of bytes as they are, by "tcp" or "ipc"."""

    def __init__(self, transport: str) -> None:
        need_package("zmq")
        self._folder = tempfile.TemporaryDirectory(prefix="dealers-")
        super().__init__(
            ask_barely, reply_barely, 1, LOOPBACK if transport == "tcp" else f"ipc://{self._folder.name}/ask"
        )

    @override
    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def opened(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A socket with queues of any length."""
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.set_hwm(0)
    socket.linger = 0
    socket.rcvtimeo = int(ANSWER_SECONDS * 1000)
    return socket


def bound(socket: zmq.Socket[bytes]) -> str:
    """The address where a socket listens from now on."""
    return f"{LOOPBACK}:{socket.bind_to_random_port(LOOPBACK)}"


def ask(pipe: Connection, _: str, sinks: int) -> None:
    """The source of round trips."""
    with zmq.Context() as context, opened(context, zmq.ROUTER) as socket:
        pipe.send(bound(socket))
        dealers = [socket.recv_multipart()[0] for _ in range(sinks)]  # their greetings, which name them
        pipe.send("ready")

        def round_trip(events: list[Any], count: int, sinks: int) -> int:
            asked, route, receive = dealers[:sinks], socket.send_multipart, socket.recv_multipart
            for event in islice(cycle(events), count):
                body = pickle.dumps(event, 5)
                for one in asked:
                    route((one, body))
                for _ in asked:
                    receive()
            return count

        serve(pipe, {"round trip": round_trip})


def reply(pipe: Connection, address: str, _: Iterable[int]) -> None:
    """A sink of round trips."""
    end_with(pipe)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        socket.send(b"")
        pipe.send("ready")
        while True:
            pickle.loads(socket.recv())
            socket.send(b"")


def ask_barely(pipe: Connection, address: str, _: int) -> None:
    """The source of bare round trips."""
    with zmq.Context() as context, opened(context, zmq.DEALER) as socket:
        if address == LOOPBACK:
            pipe.send(bound(socket))
        else:
            socket.bind(address)
            pipe.send(address)
        socket.recv()
        pipe.send("ready")

        def round_trip(events: list[Any], count: int, _: int) -> int:
            put, receive = socket.send, socket.recv
            for event in islice(cycle(events), count):
                put(event)
                receive()
            return count

        serve(pipe, {"round trip": round_trip})


def reply_barely(pipe: Connection, address: str, _: Iterable[int]) -> None:
    """The sink of bare round trips."""
    end_with(pipe)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        socket.send(b"")
        pipe.send("ready")
        while True:
            socket.recv()
            socket.send(b"")


def send(kind: int, pipe: Connection, _: str, sinks: int) -> None:
    """The source of events one way: a socket for each number of sinks, and one for their counts."""
    with zmq.Context() as context, opened(context, zmq.PULL) as counts, ExitStack() as stack:
        outlets = {group: stack.enter_context(opened(context, kind)) for group in range(1, sinks + 1)}
        for outlet in outlets.values():
            if kind == zmq.XPUB:
                outlet.xpub_verbose = True  # hear of each subscriber, not of the first only
        pipe.send((bound(counts), {group: bound(outlet) for group, outlet in outlets.items()}))
        for group, outlet in outlets.items():
            for __ in range(group if kind == zmq.XPUB else 0):
                outlet.recv()
        pipe.send("ready")

        def one_way(events: list[Any], count: int, sinks: int) -> int:
            put, dumps = outlets[sinks].send, pickle.dumps
            for event in islice(cycle(events), count):
                put(dumps(event, 5))
            put(LAST)
            return min(int(counts.recv()) for _ in range(sinks))

        serve(pipe, {"one way": one_way})


def receive(kind: int, pipe: Connection, addresses: tuple[str, dict[int, str]], groups: Iterable[int]) -> None:
    """A sink of events one way, by one socket that hears all that are for it."""
    end_with(pipe)
    counts_at, outlets = addresses
    with zmq.Context() as context, context.socket(zmq.PUSH) as counts, context.socket(kind) as socket:
        socket.set_hwm(0)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        for group in groups:
            socket.connect(outlets[group])
        counts.connect(counts_at)
        pipe.send("ready")
        count = 0
        while True:
            body = socket.recv()
            if body == LAST:
                counts.send(b"%d" % count)
                count = 0
            else:
                pickle.loads(body)
                count += 1
