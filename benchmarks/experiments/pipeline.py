"""Do the rate and the CPU time per event and stage stay flat from 2 to 8 stages?

Each stage is a process that publishes on the next channel what arrives on its own; the last one counts. The times per
event are JECho's figure 5: asynchronously the inverse of the rate; synchronously, each stage delivers onward and waits
inside its handler. Beside them are chained actor calls: each stage calls the next, and forgets or awaits it. Nothing
is pinned. With more processes than cores, only the CPU time shows whether a stage costs the same in longer pipelines.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.actor_calls import ActorChain
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.pinning import CORES, unpin
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, interleave, per_event
from echannel_ray.benchmarks.harness.usage import cpu_seconds

STAGES = (1, 2, 4, 8)
FIGURES = (
    Figure(
        name="pipeline",
        title="Time per event through a pipeline",
        x_label="stages",
        y_label="time per event",
        log_x=True,
        log_y=True,
        paper="JECho, figure 5",
    ),
)
UNCROWDED = "2 stages, with a core for each process"
GOALS = (
    at_least(0.8, "rate of a longer pipeline, where each stage has a core", "rate, .* stages", UNCROWDED),
    at_most(1.2, "CPU per event and stage of a longer pipeline", "CPU per event and stage, .* stages", "2 stages"),
)
OURS, CALLS = "echannel_ray", "chained actor calls"
PAYLOAD = "100 bytes"
# How many events through one stage make a sample of about a seventh of a second; through more stages, as many fewer.
DELIVERIES, SYNCHRONOUS_CALLS, ASYNCHRONOUS_CALLS = 1_000, 200, 800


def run(plan: Plan) -> list[Row]:
    """Pipelines of each length over the same processes, in turns; the last process of the field ends each of them."""
    with ExitStack() as stack:
        chain = stack.enter_context(ActorChain(STAGES[-1]))
        field = stack.enter_context(Field(plan, "bench-pipeline", consumers=STAGES[-1]))
        unpin([field.producer_pid, *field.consumer_pids, *field.concentrator_pids])
        for stages in STAGES:
            _connect(field, stages)
        rates, costs = _rates_and_costs(plan, field)
        return _judged(rates, costs) + _points(plan, field, chain, rates)


def _rates_and_costs(plan: Plan, field: Field) -> tuple[dict[int, Samples], dict[int, Samples]]:
    """Of each length: events a second, and the CPU time per event and stage."""
    events = 5_000 if plan.short else 50_000
    rates = {stages: Samples("events/s", higher_is_better=True) for stages in STAGES}
    costs = {stages: Samples("s", higher_is_better=False) for stages in STAGES}
    order, generator = list(STAGES), plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        for stages in order:
            busy = [field.producer_pid, *field.consumer_pids[-stages:], *field.concentrator_pids]
            began = cpu_seconds(busy)
            rates[stages].values.append(_rate(field, stages, events))
            costs[stages].values.append((cpu_seconds(busy) - began) / events / stages)
    return rates, costs


def _judged(rates: dict[int, Samples], costs: dict[int, Samples]) -> list[Row]:
    """Each length against two stages."""
    rows = []
    for stages in STAGES:
        base = None if stages <= 2 else 2
        judged = base is not None and len(CORES) >= stages + 2
        rows.append(
            Row(
                f"rate, {stages} stages",
                "free",
                rates[stages],
                (UNCROWDED if judged else "2 stages") if base else "",
                rates[2] if base else None,
                note="" if judged or not base else f"not judged: {stages + 2} processes on {len(CORES)} cores",
            )
        )
        rows.append(
            Row(
                f"CPU per event and stage, {stages} stages",
                "free",
                costs[stages],
                "2 stages" if base else "",
                costs[2] if base else None,
            )
        )
    return rows


def _points(plan: Plan, field: Field, chain: ActorChain, rates: dict[int, Samples]) -> list[Row]:
    """The points of the figure."""
    events = payloads.events_of(PAYLOAD, plan.seed)
    rows = []
    for stages in STAGES:
        share = stages * (4 if plan.short else 1)
        variants: dict[str, Measure] = {
            OURS: partial(field.deliver_seconds, _names(stages, "waiting")[0], events[0], DELIVERIES // share),
            "awaited": partial(chain.round_trip_seconds, events[0], SYNCHRONOUS_CALLS // share, stages),
            "forgotten": partial(chain.one_way_seconds, events, ASYNCHRONOUS_CALLS // share, stages),
        }
        samples = interleave(plan, variants, "s", higher_is_better=False)
        for way, ours, against in (
            ("asynchronous", per_event(rates[stages]), "forgotten"),
            ("synchronous", samples[OURS], "awaited"),
        ):
            rows.append(
                Row(
                    f"time per event, {way}, {stages} stages",
                    "free",
                    ours,
                    f"{CALLS}, {way}",
                    samples[against],
                    figure="pipeline",
                    x=stages,
                    series=f"{OURS}, {way}",
                )
            )
    return rows


def _names(stages: int, kind: str = "passing") -> list[str]:
    return [f"pipeline-{stages}-{kind}-{number}" for number in range(stages)]


def _connect(field: Field, stages: int) -> None:
    members = field.consumers[-stages:]
    passing, waiting = _names(stages), _names(stages, "waiting")
    answer(members[-1].subscribe.remote([passing[-1], waiting[-1]]))
    for number, member in enumerate(members[:-1]):
        answer(member.relay.remote(*passing[number : number + 2]))
        answer(member.relay_and_wait.remote(*waiting[number : number + 2]))
    answer(field.producer.open.remote([passing[0], waiting[0]]))


def _rate(field: Field, stages: int, events: int) -> float:
    last = field.consumers[-1]
    answer(last.expect.remote(events))
    began = answer(field.producer.publish.remote(PAYLOAD, events, _names(stages)[:1]))
    return events / float(answer(last.ended.remote()) - began)
