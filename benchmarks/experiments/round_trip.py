"""How long does `deliver` to a handler on the same node take, against an actor call and against bare sockets?

100 B and the five payloads of JECho's Table 1. For information, a Ray compiled graph, pyzmq (ROUTER and DEALER), NATS
(request and reply) and Redis (lists) do the same, with the payload pickled and unpickled. The bare program carries
bytes of the same size, serialising nothing, with the hops that ours really takes: by a concentrator, or straight to
the consumer. So does bare pyzmq, by the transport that is quicker here, without a hop.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.compiled_graph import CompiledGraph
from echannel_ray.benchmarks.baselines.nats import Nats
from echannel_ray.benchmarks.baselines.peers import Maker, start
from echannel_ray.benchmarks.baselines.pyzmq import BareDealers, RouterDealers
from echannel_ray.benchmarks.baselines.redis import RedisPair
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, best_of, interleave

PAPER = "JECho, table 1"
SMALL = "deliver, 100 bytes"
BARE_ZMQ = "bare pyzmq"
CALL = "ray.get of an actor call"
OTHERS: dict[str, Maker] = {
    CALL: ActorCalls,
    "Ray compiled graph": CompiledGraph,
    "pyzmq": RouterDealers,
    "NATS": Nats,
    "Redis": partial(RedisPair, "lists"),
}
GOALS = (
    at_most(1.3, "`deliver` of 100 bytes on one core, against pyzmq's bare round trip", SMALL, f"{BARE_ZMQ}.*", "one"),
    at_most(1, "`deliver` of 100 bytes on two cores, against pyzmq's bare round trip", SMALL, f"{BARE_ZMQ}.*", "two"),
    at_most(0.7, "`deliver` of 100 bytes on one core, against a compiled graph", SMALL, "Ray compiled graph", "one"),
    at_most(1 / 10, "`deliver` of 100 bytes, against an actor call", SMALL, CALL),
    at_most(1 / 8, "`deliver` of JECho's five payloads, against an actor call", "deliver, .*", CALL),
    at_most(2, "`deliver` of JECho's five payloads, against bare sockets with its hops", "deliver, .*", "bare sockets"),
)


def run(plan: Plan) -> list[Row]:
    """Each payload in all ways, in turns."""
    trips = 300 if plan.short else 1500
    with ExitStack() as stack:
        relayed, direct = (stack.enter_context(BareSockets(nodes)) for nodes in (1, 0))
        others, rows = start(stack, OTHERS)
        dealers, _ = start(stack, {f"{BARE_ZMQ}, {how}": partial(BareDealers, how) for how in ("tcp", "ipc")})
        field = stack.enter_context(Field(plan, "bench-round-trip"))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (relayed, direct, *others.values(), *dealers.values()):
                place(placement, party.source_pids, party.other_pids)
            field.deliver_seconds("events", b"warm", trips)
            bare, hops = (relayed, "by a relay") if field.is_relayed("events", b"warm", trips) else (direct, "straight")
            for name, event in payloads.jecho_payloads(plan.random()).items():
                body = pickle.dumps(event, 5)
                samples = interleave(
                    plan,
                    {
                        "ours": partial(field.deliver_seconds, "events", event, trips),
                        "bare sockets": partial(bare.round_trip_seconds, body, trips),
                        **{other: partial(pair.round_trip_seconds, body, trips) for other, pair in dealers.items()},
                        **{
                            other: partial(pair.round_trip_seconds, event, trips // (10 if other == CALL else 3))
                            for other, pair in others.items()
                        },
                    },
                    "s",
                    higher_is_better=False,
                )
                ours = samples.pop("ours")
                against = ["bare sockets", *others, *([best_of(samples, BARE_ZMQ)[0]] if dealers else [])]
                for other in against:
                    note = hops if other == "bare sockets" else ""
                    rows.append(Row(f"deliver, {name}", placement, ours, other, samples[other], note=note))
    return rows
