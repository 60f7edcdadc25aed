"""How long does `subscribe` take until it is effective everywhere, with the managers up? Against an actor call."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from echannel_ray.benchmarks.baselines.actor_calls import ActorCalls
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples

GOALS = (at_most(0.020, "`subscribe`, until it is effective everywhere", "subscribe to .*, median"),)


def run(plan: Plan) -> list[Row]:
    """On channels that nobody uses, and on channels that a producer in another process has open."""
    per_round = 20
    idle = [f"idle-{number}" for number in range(per_round)]
    produced = [f"produced-{number}" for number in range(per_round)]
    medians = {name: Samples("s", higher_is_better=False) for name in ("idle", "produced")}
    worst = {name: Samples("s", higher_is_better=False) for name in ("idle", "produced")}
    calls_took = Samples("s", higher_is_better=False)
    with ExitStack() as stack:
        calls = stack.enter_context(ActorCalls())
        field = stack.enter_context(Field(plan, "bench-subscribe"))
        answer(field.producer.create.remote(idle))
        answer(field.producer.open.remote(produced))
        for _ in range(plan.rounds):
            for kind, names in (("idle", idle), ("produced", produced)):
                seconds = answer(field.consumers[0].subscribe_seconds.remote(names))
                medians[kind].values.append(median(seconds))
                worst[kind].values.append(max(seconds))
            calls_took.values.append(calls.round_trip_seconds(None, 100))
    rows = []
    for kind, what in (("idle", "a channel without producers"), ("produced", "a channel with a producer elsewhere")):
        rows.append(Row(f"subscribe to {what}, median", "free", medians[kind]))
        rows.append(Row(f"subscribe to {what}, median", "free", medians[kind], "ray.get of an actor call", calls_took))
        rows.append(
            Row(
                f"subscribe to {what}, slowest of {per_round}",
                "free",
                worst[kind],
                note=f"slowest of all rounds {max(worst[kind].values) * 1e3:.1f} ms",
            )
        )
    return rows
