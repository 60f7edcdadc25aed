"""Zenoh: peers that are linked straight to each other over the loopback, without a router or multicast scouting.

Events one way are put by a publisher that blocks rather than drops; a round trip is a query that all queryables answer.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from echannel_ray.benchmarks.baselines.peers import LAST, Peers, end_with, serve
from echannel_ray.benchmarks.baselines.servers import free_port, need_package

if TYPE_CHECKING:
    import zenoh

LOOK_SECONDS = 0.02


class Zenoh(Peers):
    """A source that listens, and sinks that connect to it."""

    def __init__(self, sinks: int = 1) -> None:
        need_package("zenoh")
        super().__init__(source, sink, sinks, f"tcp/127.0.0.1:{free_port()}")


def session(listen_at: str, connect_to: str = "", shared_memory: bool = False) -> zenoh.Session:
    """A peer that talks to those alone that it is told of."""
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "true" if shared_memory else "false")
    config.insert_json5("listen/endpoints", f'["{listen_at}"]')
    if connect_to:
        config.insert_json5("connect/endpoints", f'["{connect_to}"]')
    return zenoh.open(config)


def source(pipe: Connection, address: str, sinks: int) -> None:
    """Put and query."""
    import zenoh

    with session(address) as peer:
        every, unmerged = zenoh.QueryTarget.ALL, zenoh.ConsolidationMode.NONE
        blocking = zenoh.CongestionControl.BLOCK
        queriers, publishers = {}, {}
        for group in range(1, sinks + 1):
            queriers[group] = peer.declare_querier(f"ask/{group}", target=every, consolidation=unmerged)
            publishers[group] = peer.declare_publisher(f"events/{group}", congestion_control=blocking)
        counts = peer.declare_subscriber("counts")
        pipe.send(address)
        await_sinks(peer, sinks)
        pipe.send("ready")

        def round_trip(events: list[Any], count: int, sinks: int) -> int:
            for event in islice(cycle(events), count):
                replies = sum(1 for _ in queriers[sinks].get(payload=pickle.dumps(event, 5)))
                assert replies == sinks, f"{replies} of {sinks} sinks replied"
            return count

        def one_way(events: list[Any], count: int, sinks: int) -> int:
            put, dumps = publishers[sinks].put, pickle.dumps
            for event in islice(cycle(events), count):
                put(dumps(event, 5))
            put(LAST)
            return min(int(counts.recv().payload.to_bytes()) for _ in range(sinks))

        serve(pipe, {"round trip": round_trip, "one way": one_way})


def sink(pipe: Connection, address: str, groups: Iterable[int]) -> None:
    """Count what arrives, and answer queries."""
    end_with(pipe)
    count = 0
    with session("tcp/127.0.0.1:0", address) as peer:

        def handle(sample: zenoh.Sample) -> None:
            nonlocal count
            body = sample.payload.to_bytes()
            if body == LAST:
                peer.put("counts", b"%d" % count)
                count = 0
            else:
                pickle.loads(body)
                count += 1

        def answer(query: zenoh.Query) -> None:
            assert query.payload is not None
            pickle.loads(query.payload.to_bytes())
            with query:
                query.reply(query.key_expr, b"")

        kept: list[object] = [
            declared
            for group in groups
            for declared in (
                peer.declare_subscriber(f"events/{group}", handle),
                peer.declare_queryable(f"ask/{group}", answer),
            )
        ]
        stay(pipe, peer, kept)


def await_sinks(peer: zenoh.Session, sinks: int) -> None:
    """Until so many sinks, and all that they declared, are known here."""
    while sum(1 for _ in peer.liveliness().get("sinks/*")) < sinks:
        time.sleep(LOOK_SECONDS)


def stay(pipe: Connection, peer: zenoh.Session, kept: list[object]) -> None:
    """Have it known that all is declared, and keep it until the process ends."""
    # Declarations arrive in order, so whoever sees this token knows of all that came before it.
    kept.append(peer.liveliness().declare_token(f"sinks/{peer.zid()}"))
    pipe.send("ready")
    while True:
        time.sleep(3600)
