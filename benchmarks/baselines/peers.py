"""A source and its sinks, a process each, that talk through somebody else's messaging: what these baselines share.

As on our channels, the source serialises each event (pickle 5) and each sink makes an object of it. A round trip is
over when all sinks have had the event and said so. Events one way end with an empty message, which each sink answers
with the number that came before it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from echannel_ray.benchmarks.baselines.servers import Missing, Server
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.rows import Row, skipped

ANSWER_SECONDS = 30.0
LAST = b""

Started = TypeVar("Started")


class Baseline(Protocol):
    """What can be asked of these peers, and of Ray's actors."""

    source_pids: list[int]
    other_pids: list[int]

    def round_trip_seconds(self, event: Any, count: int, sinks: int | None = None, /) -> float:
        """Seconds until so many sinks (or all) have handled an event, and the source knows."""
        ...

    def one_way_seconds(self, events: list[Any], count: int, sinks: int | None = None, /) -> float:
        """Seconds of an event that nobody waits for."""
        ...


Maker = Callable[[], AbstractContextManager[Baseline]]


class Peers(Closing):
    """`source(pipe, address, sinks)` and `sinks` times `sink(pipe, address, groups)`.

    The source tells the address where its sinks find it (or the server), and once more when it has them all. An event
    goes to the first so many sinks: `groups` has the numbers for which this sink is one of them.
    """

    def __init__(
        self,
        source: Callable[..., None],
        sink: Callable[..., None],
        sinks: int,
        address: str = "",
        server: Server | None = None,
    ) -> None:
        with ExitStack() as stack:
            if server:
                stack.callback(server.close)
            self._source = stack.enter_context(Child(source, address, sinks))
            address = self._source.answer()
            ends = [
                stack.enter_context(Child(sink, address, range(number, sinks + 1))) for number in range(1, sinks + 1)
            ]
            for end in (*ends, self._source):
                end.answer()
            self._stack = stack.pop_all()
        self._sinks = sinks
        self.source_pids = [self._source.pid]
        self.other_pids = [*([server.pid] if server else []), *(end.pid for end in ends)]
        self.lost_share = 0.0

    def round_trip_seconds(self, event: Any, count: int, sinks: int | None = None) -> float:
        """Seconds from the event until all sinks have answered."""
        return self._seconds("round trip", [event], count, sinks)

    def one_way_seconds(self, events: list[Any], count: int, sinks: int | None = None) -> float:
        """Seconds for each event that arrived at all sinks; `lost_share` is the worst loss so far."""
        return self._seconds("one way", events, count, sinks)

    def _seconds(self, what: str, events: list[Any], count: int, sinks: int | None) -> float:
        seconds, arrived = self._source.ask((what, events, count, sinks or self._sinks))
        self.lost_share = max(self.lost_share, 1 - arrived / count)
        return float(seconds / max(arrived, 1))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()


def start(
    stack: ExitStack, makers: Mapping[str, Callable[[], AbstractContextManager[Started]]]
) -> tuple[dict[str, Started], list[Row]]:
    """The baselines that can run here, which end with the stack, and a row for each of the others."""
    running: dict[str, Started] = {}
    rows: list[Row] = []
    for name, make in makers.items():
        try:
            running[name] = stack.enter_context(make())
        except Missing as why:
            rows.append(skipped(name, str(why)))
    return running, rows


def loss(baseline: Baseline) -> str:
    """The note of a row whose baseline lost events."""
    return f"loss up to {baseline.lost_share:.1%}" if isinstance(baseline, Peers) and baseline.lost_share else ""


def serve(pipe: Connection, calls: Mapping[str, Callable[[list[Any], int, int], int]]) -> None:
    """In a source: do what the requests say, and answer each with its seconds and how many events arrived."""
    for what, events, count, sinks in requests(pipe):
        began = time.perf_counter()
        arrived = calls[what](events, count, sinks)
        pipe.send((time.perf_counter() - began, arrived))


def end_with(pipe: Connection) -> None:
    """In a sink, which is never asked anything and waits elsewhere: end the process when the parent closes the pipe."""

    def watch() -> None:
        pipe.poll(None)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
