"""What does an event cost when 1 to 8 sinks get it: delivered to all of them, or published to all of them?

JECho's figure 4. The source has a core of its own, and the sinks, each a process, share another: the lines show the
work that a sink adds, which sinks with cores of their own would do side by side. Synchronously, Ray's calls are all
made before `ray.get` of all; pyzmq has a ROUTER and DEALERs, NATS an inbox for the replies, Zenoh a query to all.
Asynchronously, calls are made and forgotten, and the others publish; the slowest sink counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.baselines.nats import Nats
from echannel_ray.benchmarks.baselines.peers import Baseline, loss, start
from echannel_ray.benchmarks.baselines.pubsub import PubSub
from echannel_ray.benchmarks.baselines.pyzmq import PubSubs, RouterDealers
from echannel_ray.benchmarks.baselines.sockets import PACKS, BareSockets
from echannel_ray.benchmarks.baselines.zenoh import Zenoh
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, best_of, interleave, sized

SINKS = (1, 2, 4, 8)
FOUR = 4
PLACEMENT = PLACEMENTS[-1]
PAYLOADS = ("null", "composite")
FIGURES = tuple(
    Figure(
        name=f"sinks-{payload}",
        title=f"Time per event for several sinks: {payload}",
        x_label="sinks",
        y_label="time per event",
        log_x=True,
        log_y=True,
        paper="JECho, figure 4",
    )
    for payload in PAYLOADS
)
PUB_SUB = "pyzmq PUB/SUB"
OTHERS = {
    "Ray actor calls": ActorCalls,
    "pyzmq ROUTER/DEALER": RouterDealers,
    PUB_SUB: PubSubs,
    "NATS": Nats,
    "Zenoh": Zenoh,
}
TO_FOUR = "1 to 4, 100 B, each"
GOALS = (
    at_least(500_000, "`publish` to 4 consumer processes, each, on two cores", TO_FOUR, placement="two"),
    at_least(3.5, "`publish` to 4 consumer processes, each, against pyzmq PUB/SUB", TO_FOUR, PUB_SUB),
)
WAYS = {"deliver": "synchronous", "publish": "asynchronous"}
OURS = "echannel_ray"
# How many events to one sink make a sample of about a tenth of a second; of those to more sinks, as many fewer.
DELIVERIES = {OURS: 600, "Ray actor calls": 120, "pyzmq ROUTER/DEALER": 800, "NATS": 300, "Zenoh": 400}
EVENTS = {OURS: 30_000, "Ray actor calls": 400, PUB_SUB: 30_000, "NATS": 12_000, "Zenoh": 20_000}

Variants = Mapping[str, Measure]


def run(plan: Plan) -> list[Row]:
    """Every number of sinks in both ways, and the rate to four."""
    with Field(plan, "bench-sinks", consumers=SINKS[-1]) as field:
        for sinks in SINKS:
            field.connect([_channel(sinks)], consumers=sinks)
        return _times(plan, field) + _rates_to_four(plan, field)


def _channel(sinks: int) -> str:
    return f"for-{sinks}"


def _times(plan: Plan, field: Field) -> list[Row]:
    """The points of the figures."""
    with ExitStack() as stack:
        others, rows = start(stack, {name: partial(make, SINKS[-1]) for name, make in OTHERS.items()})
        field.place(PLACEMENT)
        for party in others.values():
            place(PLACEMENT, party.source_pids, party.other_pids)
        for payload in PAYLOADS:
            for sinks in SINKS:
                for way, variants in (
                    ("deliver", _deliveries(plan, field, others, payload, sinks)),
                    ("publish", _publications(plan, field, others, payload, sinks)),
                ):
                    samples = interleave(plan, variants, "s", higher_is_better=False)
                    rows += [
                        Row(
                            f"{way} to {sinks}, {payload}",
                            PLACEMENT,
                            samples[OURS],
                            f"{name}, {WAYS[way]}",
                            samples[name],
                            note=loss(others[name]),
                            figure=f"sinks-{payload}",
                            x=sinks,
                            series=f"{OURS}, {WAYS[way]}",
                        )
                        for name in variants
                        if name != OURS
                    ]
    return rows


def _deliveries(plan: Plan, field: Field, others: dict[str, Baseline], payload: str, sinks: int) -> Variants:
    event, share = payloads.events_of(payload, plan.seed)[0], _share(plan, sinks)
    ours = partial(field.deliver_seconds, _channel(sinks), event, DELIVERIES[OURS] // share)
    return {OURS: ours} | {
        name: partial(others[name].round_trip_seconds, event, count // share, sinks)
        for name, count in DELIVERIES.items()
        if name in others
    }


def _publications(plan: Plan, field: Field, others: dict[str, Baseline], payload: str, sinks: int) -> Variants:
    events, share = payloads.events_of(payload, plan.seed), _share(plan, sinks)
    ours = partial(field.publish_seconds, payload, [_channel(sinks)], EVENTS[OURS] // share)
    return {OURS: ours} | {
        name: partial(others[name].one_way_seconds, events, count // share, sinks)
        for name, count in EVENTS.items()
        if name in others
    }


def _share(plan: Plan, sinks: int) -> int:
    return sinks * (4 if plan.short else 1)


def _rates_to_four(plan: Plan, field: Field) -> list[Row]:
    """Of small events and with nothing serialised, against what sockets can do."""
    events = payloads.hundred_bytes(plan.random())
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets(sinks=FOUR))
        others, rows = start(stack, {PUB_SUB: partial(PubSub, FOUR)})
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (bare, *others.values()):
                place(placement, party.source_pids, party.other_pids)
            variants = {OURS: sized(plan, partial(field.rate, "100 bytes", [_channel(FOUR)]), 5000)}
            for name, pubsub in others.items():
                variants[name] = sized(plan, partial(pubsub.received_rate, events), 20_000)
            for pack in PACKS[2:]:
                variants[f"hand-written loop, packs of {pack}"] = sized(
                    plan, partial(bare.packed_rate, "bytes", events, pack), 20_000
                )
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            rows.append(Row(TO_FOUR, placement, samples[OURS]))
            for against in (*others, "hand-written loop"):
                name, baseline = best_of(samples, against)
                rows.append(Row(TO_FOUR, placement, samples[OURS], name, baseline))
    return rows
