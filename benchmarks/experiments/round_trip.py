"""How long does `deliver` to a handler on the same node take, against an actor call and against bare sockets?

100 B and the five payloads of JECho's Table 1. The bare program carries bytes of the same size, serialising nothing.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, interleave


def run(plan: Plan) -> list[Row]:
    """Each payload three ways, in turns."""
    rows = []
    trips = 300 if plan.short else 1500
    with ExitStack() as stack:
        calls = stack.enter_context(ActorCalls())
        bare = stack.enter_context(BareSockets())
        field = stack.enter_context(Field(plan, "bench-round-trip"))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (calls, bare):
                place(placement, party.source_pids, party.other_pids)
            for name, event in payloads.jecho_payloads(plan.random()).items():
                body = pickle.dumps(event, 5)
                samples = interleave(
                    plan,
                    {
                        "ours": partial(field.deliver_seconds, "events", event, trips),
                        "ray.get of an actor call": partial(calls.round_trip_seconds, event, trips // 10),
                        "bare sockets": partial(bare.round_trip_seconds, body, trips),
                    },
                    "s",
                    higher_is_better=False,
                )
                for against, limit in (("ray.get of an actor call", 1 / 8), ("bare sockets", 2)):
                    rows.append(
                        Row(f"deliver, {name}", placement, samples["ours"], against, samples[against], at_most(limit))
                    )
    return rows
