"""How many events a second does each of four consumer processes get from one producer on their node?"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.pubsub import PubSub
from echannel_ray.benchmarks.baselines.sockets import PACKS, BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan, best_of, interleave, sized

CONSUMERS = 4


def run(plan: Plan) -> list[Row]:
    """The slowest consumer counts."""
    events = payloads.hundred_bytes(plan.random())
    rows = []
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets(sinks=CONSUMERS))
        pubsub = stack.enter_context(PubSub(subscribers=CONSUMERS))
        field = stack.enter_context(Field(plan, "bench-fanout", consumers=CONSUMERS))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (bare, pubsub):
                place(placement, party.source_pids, party.other_pids)
            variants = {
                "ours": sized(plan, partial(field.rate, "100 bytes", ["events"]), 5000),
                "pyzmq PUB/SUB": sized(plan, partial(pubsub.received_rate, events), 20_000),
            }
            for pack in PACKS[2:]:
                variants[f"hand-written loop, packs of {pack}"] = sized(
                    plan, partial(bare.packed_rate, "bytes", events, pack), 20_000
                )
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            # The goal is for two cores.
            goal = at_least(500_000) if placement == "two" else None
            rows.append(Row("1 to 4, 100 B, each", placement, samples["ours"], goal=goal))
            for against in ("pyzmq PUB/SUB", "hand-written loop"):
                name, baseline = best_of(samples, against)
                rows.append(Row("1 to 4, 100 B, each", placement, samples["ours"], name, baseline))
    return rows
