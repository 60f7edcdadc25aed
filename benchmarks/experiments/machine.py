"""What do sockets, pyzmq and Ray give on this machine, without echannel_ray? For information: nothing here is ours."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.pubsub import PubSub
from echannel_ray.benchmarks.baselines.sockets import PACKS, BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Plan, best_of, interleave, sized


def run(plan: Plan) -> list[Row]:
    """Round trips, one-way rates and bandwidths of the baselines."""
    generator = plan.random()
    events = payloads.hundred_bytes(generator)
    dicts = payloads.small_dicts(generator)
    large = payloads.events_of("1 MB", plan.seed)
    rows = []
    with ExitStack() as stack:
        calls = stack.enter_context(ActorCalls())
        near = stack.enter_context(BareSockets())
        far = stack.enter_context(BareSockets(nodes=2))
        to_one = stack.enter_context(PubSub())
        to_four = stack.enter_context(PubSub(subscribers=4))
        everything = (calls, near, far, to_one, to_four)
        for placement in PLACEMENTS:
            for party in everything:
                place(placement, party.source_pids, party.other_pids)
            trips = interleave(
                plan,
                {
                    "Ray actor call and ray.get": partial(calls.round_trip_seconds, events[0], 200),
                    "bare sockets": partial(near.round_trip_seconds, events[0], 2000),
                    "bare sockets, two nodes": partial(far.round_trip_seconds, events[0], 1000),
                },
                "s",
                higher_is_better=False,
            )
            rows += [Row(f"round trip, 100 B: {name}", placement, samples) for name, samples in trips.items()]
            rates = {
                "Ray actor calls": sized(plan, partial(calls.one_way_rate, events), 500),
                "pyzmq PUB/SUB 1 to 1": sized(plan, partial(to_one.received_rate, events), 20_000),
                "pyzmq PUB/SUB 1 to 4, each": sized(plan, partial(to_four.received_rate, events), 20_000),
            }
            for codec, kind, what in (
                ("bytes", "100 B, msgspec", events),
                ("pickle", "dict, pickle", dicts),
                ("dict", "dict, msgspec", dicts),
            ):
                for pack in PACKS:
                    rates[f"sockets, {kind}, packs of {pack}"] = sized(
                        plan, partial(near.packed_rate, codec, what, pack), 5_000
                    )
            one_way = interleave(plan, rates, "events/s", higher_is_better=True)
            for kind in ("100 B, msgspec", "dict, pickle", "dict, msgspec"):
                name, _ = best_of(one_way, f"sockets, {kind}, packs of")
                one_way[f"{name} (the best pack)"] = one_way.pop(name)
            rows += [Row(f"one way: {name}", placement, samples) for name, samples in one_way.items()]
            bandwidths = {
                "bare sockets": sized(plan, partial(near.large_rate, large), 50),
                "bare sockets, two nodes": sized(plan, partial(far.large_rate, large), 50),
            }
            bandwidth = interleave(plan, bandwidths, "events/s", higher_is_better=True)
            rows += [Row(f"1 MB events: {name}", placement, samples) for name, samples in bandwidth.items()]
    return rows
