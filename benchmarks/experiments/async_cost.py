"""What does `publish` cost per event for the payloads of JECho's Table 1, from the first call until all are handled?

That table's last column: the source has a core of its own, and nothing waits. Ray actor calls are made and forgotten, a
compiled graph is kept full, pyzmq pushes and pulls, NATS publishes, Redis publishes or adds to a stream, in
pipelines. All of them pickle each event and unpickle it at the other end; the bare program only packs bytes of the
same size.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.compiled_graph import CompiledGraph
from echannel_ray.benchmarks.baselines.nats import Nats
from echannel_ray.benchmarks.baselines.peers import Maker, loss, start
from echannel_ray.benchmarks.baselines.pyzmq import PushPull
from echannel_ray.benchmarks.baselines.redis import RedisPair
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Plan, interleave

PAPER = "JECho, table 1"
PLACEMENT = PLACEMENTS[-1]
PACK = 256
BARE = f"bare sockets, packs of {PACK}"
# How each is made, and how many events give a sample of about a seventh of a second.
OTHERS: dict[str, tuple[Maker, int]] = {
    "Ray actor calls": (ActorCalls, 1_000),
    "Ray compiled graph": (CompiledGraph, 3_000),
    "pyzmq": (PushPull, 60_000),
    "NATS": (Nats, 25_000),
    "Redis PUBLISH": (partial(RedisPair, "PUBLISH"), 15_000),
    "Redis stream": (partial(RedisPair, "XADD"), 15_000),
}
OUR_EVENTS, BARE_EVENTS = 60_000, 200_000


def run(plan: Plan) -> list[Row]:
    """Each payload in all ways, in turns."""
    share = 4 if plan.short else 1
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        others, rows = start(stack, {name: make for name, (make, _) in OTHERS.items()})
        field = stack.enter_context(Field(plan, "bench-async-cost"))
        field.connect(["events"])
        field.place(PLACEMENT)
        for party in (bare, *others.values()):
            place(PLACEMENT, party.source_pids, party.other_pids)
        for name, event in payloads.jecho_payloads(plan.random()).items():
            events, body = payloads.events_of(name, plan.seed), pickle.dumps(event, 5)
            samples = interleave(
                plan,
                {
                    "ours": partial(field.publish_seconds, name, ["events"], OUR_EVENTS // share),
                    BARE: partial(bare.packed_seconds, "bytes", [body], PACK, BARE_EVENTS // share),
                    **{
                        other: partial(pair.one_way_seconds, events, OTHERS[other][1] // share)
                        for other, pair in others.items()
                    },
                },
                "s",
                higher_is_better=False,
            )
            ours = samples["ours"]
            rows.append(Row(f"publish, {name}", PLACEMENT, ours, BARE, samples[BARE]))
            rows += [
                Row(f"publish, {name}", PLACEMENT, ours, against, samples[against], note=loss(other))
                for against, other in others.items()
            ]
    return rows
