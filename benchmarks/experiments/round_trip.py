"""How long does `deliver` to a handler on the same node take, against an actor call and against bare sockets?

100 B and the five payloads of JECho's Table 1. For information, a Ray compiled graph, pyzmq (ROUTER and DEALER), NATS
(request and reply) and Redis (lists) do the same, with the payload pickled and unpickled. The bare program carries
bytes of the same size, serialising nothing.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.compiled_graph import CompiledGraph
from echannel_ray.benchmarks.baselines.nats import Nats
from echannel_ray.benchmarks.baselines.peers import Maker, start
from echannel_ray.benchmarks.baselines.pyzmq import RouterDealers
from echannel_ray.benchmarks.baselines.redis import RedisPair
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, interleave

PAPER = "JECho, table 1"
CALL = "ray.get of an actor call"
OTHERS: dict[str, Maker] = {
    CALL: ActorCalls,
    "Ray compiled graph": CompiledGraph,
    "pyzmq": RouterDealers,
    "NATS": Nats,
    "Redis": partial(RedisPair, "lists"),
}
GOALS = {CALL: at_most(1 / 8), "bare sockets": at_most(2)}


def run(plan: Plan) -> list[Row]:
    """Each payload in all ways, in turns."""
    trips = 300 if plan.short else 1500
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        others, rows = start(stack, OTHERS)
        field = stack.enter_context(Field(plan, "bench-round-trip"))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (bare, *others.values()):
                place(placement, party.source_pids, party.other_pids)
            for name, event in payloads.jecho_payloads(plan.random()).items():
                samples = interleave(
                    plan,
                    {
                        "ours": partial(field.deliver_seconds, "events", event, trips),
                        "bare sockets": partial(bare.round_trip_seconds, pickle.dumps(event, 5), trips),
                        **{
                            other: partial(pair.round_trip_seconds, event, trips // (10 if other == CALL else 3))
                            for other, pair in others.items()
                        },
                    },
                    "s",
                    higher_is_better=False,
                )
                ours = samples.pop("ours")
                for against, baseline in samples.items():
                    rows.append(Row(f"deliver, {name}", placement, ours, against, baseline, GOALS.get(against)))
    return rows
