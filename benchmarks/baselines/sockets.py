"""The bare program of sockets: source, relays, sinks. What any Python program with these hops could do at best."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any

from echannel_ray.benchmarks.baselines.ends import sink, source
from echannel_ray.benchmarks.baselines.relay import relay
from echannel_ray.benchmarks.harness.child import Child
from echannel_ray.benchmarks.harness.closing import Closing

PACKS = (1, 16, 64, 256, 1024)


class BareSockets(Closing):
    """Its processes: `nodes=1` has one relay between Unix sockets, `nodes=2` two relays with TCP between them.

    `nodes=0` has none: the source writes to its one sink.
    """

    def __init__(self, nodes: int = 1, sinks: int = 1) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bare-"))
        ends = [self._stack.enter_context(Child(sink, f"{folder}/sink{number}")) for number in range(sinks)]
        onward = [end.answer() for end in ends]
        relays = []
        for number in reversed(range(nodes)):
            # The first relay listens for the source on its node, each later one for the relay of another node.
            hop = Child(relay, f"{folder}/relay" if number == 0 else None, onward)
            relays.append(self._stack.enter_context(hop))
            onward = [hop.answer()]
        self._source = self._stack.enter_context(Child(source, onward[0], sinks))
        self.source_pids = [self._source.pid]
        self.other_pids = [child.pid for child in (*relays, *ends)]

    def round_trip_seconds(self, body: bytes, count: int) -> float:
        """Seconds from sending a frame until the sink's echo of it is here."""
        return float(self._source.ask(("echo", body, count))) / count

    def packed_rate(self, codec: str, events: list[Any], pack: int, count: int) -> float:
        """Events a second in packs; `codec` is `bytes`, `calls`, `dict` (msgspec) or `pickle` (one by one)."""
        return count / float(self._source.ask((codec, events, count, pack)))

    def packed_seconds(self, codec: str, events: list[Any], pack: int, count: int) -> float:
        """Seconds of an event in packs."""
        return 1 / self.packed_rate(codec, events, pack, count)

    def large_rate(self, events: list[bytes], count: int, is_read: bool = False) -> float:
        """Events a second, each in a frame of its own, without any encoding; the sinks may read each byte."""
        return count / float(self._source.ask(("large, read" if is_read else "large", events, count, 1)))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()
