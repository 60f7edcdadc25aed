"""What does the way to another node cost, against bare, unencrypted sockets with the same hops?"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.sockets import PACKS, BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.cluster import node_ids
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Plan, best_of, interleave, sized


def run(plan: Plan) -> list[Row]:
    """Round trip, rate and large events. No goals: the issue sets none."""
    here, there = node_ids()[:2]
    trips = 300 if plan.short else 1000
    events = payloads.hundred_bytes(plan.random())
    large = payloads.events_of("1 MB", plan.seed)
    rows = []
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets(nodes=2))
        field = stack.enter_context(Field(plan, "bench-across-nodes", nodes=(here, there)))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            place(placement, bare.source_pids, bare.other_pids)
            taken = interleave(
                plan,
                {
                    "ours": partial(field.deliver_seconds, "events", events[0], trips),
                    "bare sockets": partial(bare.round_trip_seconds, events[0], trips),
                },
                "s",
                higher_is_better=False,
            )
            rows.append(Row("deliver, 100 B", placement, taken["ours"], "bare sockets", taken["bare sockets"]))
            variants = {"ours": sized(plan, partial(field.rate, "100 bytes", ["events"]), 5000)}
            for pack in PACKS[2:]:
                variants[f"hand-written loop, packs of {pack}"] = sized(
                    plan, partial(bare.packed_rate, "bytes", events, pack), 20_000
                )
            rates = interleave(plan, variants, "events/s", higher_is_better=True)
            name, loop = best_of(rates, "hand-written loop")
            rows.append(Row("publish, 100 B", placement, rates["ours"], name, loop))
            bandwidths = {
                "ours": sized(plan, partial(field.rate, "1 MB", ["events"]), 50),
                "bare sockets": sized(plan, partial(bare.large_rate, large), 50),
            }
            wide = interleave(plan, bandwidths, "events/s", higher_is_better=True)
            rows.append(Row("1 MB events", placement, wide["ours"], "bare sockets", wide["bare sockets"]))
    return rows
