"""The two ends of the bare program, a process each: a source that measures, and a sink that echoes or counts."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from echannel_ray.benchmarks.baselines import frames
from echannel_ray.benchmarks.baselines.relay import accept, connect, listen
from echannel_ray.benchmarks.harness.child import requests
from echannel_ray.benchmarks.harness.payloads import touch

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


def sink(pipe: Connection, listen_at: str | None) -> None:
    """Echo frames that ask for it; count the events of all others, and tell the count when the source asks."""
    with listen(listen_at) as listener:
        pipe.send(listener.getsockname())
        link = accept(listener)
    loads, count, handled = pickle.loads, 0, 0

    def handle(event: bytes) -> None:
        nonlocal handled
        handled += 1

    for kind, body in frames.frames(link):
        if kind == frames.ECHO:
            link.sendall(frames.frame(frames.ECHO, bytes(body)))
        elif kind == frames.LAST:
            link.sendall(frames.frame(frames.LAST, encode(count)))
            count = handled = 0
        elif kind == frames.RAW:
            count += 1
        elif kind == frames.READ:
            touch(body)
            count += 1
        elif kind == frames.PICKLE:
            for event in decode(body):
                loads(event)
                count += 1
        elif kind == frames.CALLS:
            for event in decode(body):
                handle(event)
            count = handled
        else:
            for _ in decode(body):
                count += 1


def source(pipe: Connection, address: str | tuple[str, int], sinks: int) -> None:
    """Do what the requests say, and answer each with the seconds that it took."""
    link = connect(address)
    arriving = frames.frames(link)
    for request, *arguments in requests(pipe):
        began = time.perf_counter()
        if request == "echo":
            _echo(link.sendall, arriving, *arguments)
        else:
            events, count, pack = arguments
            SENDERS.get(request, _packs)(link, request, islice(cycle(events), count), pack)
            link.sendall(frames.frame(frames.LAST, b""))
            for _ in range(sinks):
                _, counted = next(arriving)
                assert decode(counted) == count
        pipe.send(time.perf_counter() - began)


def _echo(
    send: Callable[[bytes], None], arriving: Iterator[tuple[int, bytes | bytearray]], body: bytes, count: int
) -> None:
    for _ in range(count):
        send(frames.frame(frames.ECHO, body))
        next(arriving)


def _large(link: Any, request: str, events: Iterable[bytes], _: int) -> None:
    kind = frames.READ if request == "large, read" else frames.RAW
    for event in events:
        frames.send_large(link, kind, event)


def _packs(link: Any, codec: str, events: Iterable[Any], pack: int) -> None:
    """The hand-written packed loop: events are taken one by one, as from calls, and sent when a pack is full.

    `pickle` serialises each event at once (it may be changed next); `bytes` and `dict` wait for the pack's encoding.
    """
    kind = {"bytes": frames.BYTES, "pickle": frames.PICKLE, "dict": frames.DICT}[codec]
    waiting: list[Any] = []
    append, send, dumps = waiting.append, link.sendall, pickle.dumps
    for event in events:
        append(dumps(event, 5) if codec == "pickle" else event)
        if len(waiting) == pack:
            send(frames.frame(kind, encode(waiting)))
            waiting.clear()
    if waiting:
        send(frames.frame(kind, encode(waiting)))


def _calls(link: Any, _: str, events: Iterable[bytes], pack: int) -> None:
    """The same for bytes, behind the function that a library would offer."""
    waiting: list[bytes] = []
    append, send = waiting.append, link.sendall

    def publish(event: bytes) -> None:
        append(event)
        if len(waiting) == pack:
            send(frames.frame(frames.CALLS, encode(waiting)))
            waiting.clear()

    for event in events:
        publish(event)
    if waiting:
        send(frames.frame(frames.CALLS, encode(waiting)))


SENDERS: dict[str, Callable[[Any, str, Iterable[Any], int], None]] = {
    "large": _large,
    "large, read": _large,
    "calls": _calls,
}
