"""Zenoh with shared memory: the source asks for a buffer, copies an event into it, and puts that.

Python can't look into such a buffer: both ends have a copy made, which is what a Python program gets at best.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from echannel_ray.benchmarks.baselines.peers import LAST, Peers, end_with, serve
from echannel_ray.benchmarks.baselines.servers import free_port, need_package
from echannel_ray.benchmarks.baselines.zenoh import await_sinks, session, stay
from echannel_ray.benchmarks.harness.payloads import touch

if TYPE_CHECKING:
    import zenoh

POOL_BYTES = 64 << 20


class ZenohShared(Peers):
    """A source and a sink that reads each byte of what comes: events one way alone."""

    def __init__(self) -> None:
        need_package("zenoh")
        super().__init__(source, sink, 1, f"tcp/127.0.0.1:{free_port()}")

    def rate(self, events: list[bytes], count: int) -> float:
        """Events a second."""
        return 1 / self.one_way_seconds(events, count)


def source(pipe: Connection, address: str, sinks: int) -> None:
    """Put buffers of shared memory."""
    import zenoh
    from zenoh import shm

    with session(address, shared_memory=True) as peer:
        put = peer.declare_publisher("events", congestion_control=zenoh.CongestionControl.BLOCK).put
        counts = peer.declare_subscriber("counts")
        allocate, policy = shm.ShmProvider.default_backend(POOL_BYTES).alloc, shm.BlockOn(shm.GarbageCollect())
        pipe.send(address)
        await_sinks(peer, sinks)
        pipe.send("ready")

        def one_way(events: list[Any], count: int, _: int) -> int:
            for event in islice(cycle(events), count):
                buffer = allocate(len(event), policy)
                buffer[:] = event
                put(buffer)
            put(LAST)
            return int(counts.recv().payload.to_bytes())

        serve(pipe, {"one way": one_way})


def sink(pipe: Connection, address: str, _: Iterable[int]) -> None:
    """Read and count what arrives."""
    end_with(pipe)
    count = 0
    with session("tcp/127.0.0.1:0", address, shared_memory=True) as peer:

        def handle(sample: zenoh.Sample) -> None:
            nonlocal count
            body = sample.payload.to_bytes()
            if body == LAST:
                peer.put("counts", b"%d" % count)
                count = 0
            else:
                touch(body)
                count += 1

        stay(pipe, peer, [peer.declare_subscriber("events", handle)])
