"""How many events a second go from one producer process to one consumer process of the same node?

Against Ray actor calls, pyzmq PUB/SUB, and a hand-written loop over sockets with the same hops at its best packing.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.pubsub import PubSub
from echannel_ray.benchmarks.baselines.servers import Missing
from echannel_ray.benchmarks.baselines.sockets import PACKS, BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_least, at_most, skipped
from echannel_ray.benchmarks.harness.samples import Plan, best_of, interleave, per_event, sized

# The second loop calls a function per event at both ends, which a library must and a loop need not.
LOOPS = {
    "bytes": "hand-written loop",
    "calls": "the loop with a call per event",
    "pickle": "loop with pickle",
    "dict": "loop with msgspec",
}
COMPARED = (
    ("100 bytes", "Ray actor calls"),
    ("100 bytes", "pyzmq PUB/SUB"),
    ("100 bytes", LOOPS["bytes"]),
    ("100 bytes", LOOPS["calls"]),
    ("small dict", LOOPS["pickle"]),
    ("small dict", LOOPS["dict"]),
)
SMALL = ("null", "integer", "text", "small dict")
GOALS = (
    at_most(
        1.3, "`publish` of null and of an integer, against 100 bytes", "publish, (null|integer), each", "100 bytes"
    ),
    at_most(0.7e-6, "`publish` of a small dict", "publish, small dict, each"),
    at_least(200, "`publish` of 100 bytes, against Ray actor calls", "publish, 100 bytes", "Ray actor calls"),
    at_least(4, "`publish` of 100 bytes, against pyzmq PUB/SUB", "publish, 100 bytes", "pyzmq PUB/SUB.*"),
    at_least(1 / 3, "`publish` of 100 bytes, against a hand-written loop", "publish, 100 bytes", f"{LOOPS['bytes']}.*"),
)


def run(plan: Plan) -> list[Row]:
    """All in turns, under each placement."""
    generator = plan.random()
    events, dicts = payloads.hundred_bytes(generator), payloads.small_dicts(generator)
    rows: list[Row] = []
    with ExitStack() as stack:
        calls = stack.enter_context(ActorCalls())
        bare = stack.enter_context(BareSockets())
        queues: dict[int, PubSub] = {}
        try:
            queues = {size: stack.enter_context(PubSub(queue_events=size)) for size in (0, 1000)}
        except Missing as why:
            rows.append(skipped("pyzmq PUB/SUB", str(why)))
        field = stack.enter_context(Field(plan, "bench-publish-rate"))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (calls, bare, *queues.values()):
                place(placement, party.source_pids, party.other_pids)
            variants = {
                kind: sized(plan, partial(field.rate, kind, ["events"]), 5000) for kind in ("100 bytes", *SMALL)
            }
            variants["Ray actor calls"] = sized(plan, partial(calls.one_way_rate, events), 500)
            for size, pubsub in queues.items():
                variants[f"pyzmq PUB/SUB, queue of {size or 'any size'}"] = sized(
                    plan, partial(pubsub.received_rate, events), 20_000
                )
            for codec, name in LOOPS.items():
                what = events if codec in ("bytes", "calls") else dicts
                for pack in PACKS[1:]:
                    variants[f"{name}, packs of {pack}"] = sized(
                        plan, partial(bare.packed_rate, codec, what, pack), 20_000
                    )
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            each = {kind: per_event(samples[kind]) for kind in ("100 bytes", *SMALL)}
            rows += [
                Row(f"publish, {kind}, each", placement, each[kind], "100 bytes", each["100 bytes"]) for kind in SMALL
            ]
            rows.append(Row("publish, small dict, each", placement, each["small dict"]))
            for kind, against in COMPARED:
                if "pyzmq" in against and not queues:
                    continue  # a row says so already
                name, baseline = best_of(samples, against)
                note = f"loss up to {queues[1000].lost_share:.0%} with a queue of 1000" if "pyzmq" in name else ""
                rows.append(Row(f"publish, {kind}", placement, samples[kind], name, baseline, note=note))
    return rows
