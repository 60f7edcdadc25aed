"""Do the rate and the CPU time per event and stage stay flat from 2 to 8 stages?

Each stage is a process that publishes on the next channel what arrives on its own; the last one counts.
"""

from __future__ import annotations

from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.pinning import CORES, unpin
from echannel_ray.benchmarks.harness.rows import Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.usage import cpu_seconds

STAGES = (1, 2, 4, 8)


def run(plan: Plan) -> list[Row]:
    """Pipelines of each length over the same processes, in turns; the last process of the field ends each of them."""
    events = 5_000 if plan.short else 50_000
    rates = {stages: Samples("events/s", higher_is_better=True) for stages in STAGES}
    costs = {stages: Samples("s", higher_is_better=False) for stages in STAGES}
    with Field(plan, "bench-pipeline", consumers=STAGES[-1]) as field:
        unpin([field.producer_pid, *field.consumer_pids, *field.concentrator_pids])
        for stages in STAGES:
            _connect(field, stages)
        order, generator = list(STAGES), plan.random()
        for _ in range(plan.rounds):
            generator.shuffle(order)
            for stages in order:
                busy = [field.producer_pid, *field.consumer_pids[-stages:], *field.concentrator_pids]
                began = cpu_seconds(busy)
                rates[stages].values.append(_rate(field, stages, events))
                costs[stages].values.append((cpu_seconds(busy) - began) / events / stages)
    rows = []
    for stages in STAGES:
        base = None if stages <= 2 else 2
        judged = base is not None and len(CORES) >= stages + 2
        rows.append(
            Row(
                f"rate, {stages} stages",
                "free",
                rates[stages],
                "2 stages" if base else "",
                rates[2] if base else None,
                at_least(0.8) if judged else None,
                "" if judged or not base else f"not judged: {stages + 2} processes on {len(CORES)} cores",
            )
        )
        rows.append(
            Row(
                f"CPU per event and stage, {stages} stages",
                "free",
                costs[stages],
                "2 stages" if base else "",
                costs[2] if base else None,
                at_most(1.2) if base else None,
            )
        )
    return rows


def _connect(field: Field, stages: int) -> None:
    members = field.consumers[-stages:]
    names = [f"pipeline-{stages}-stage-{number}" for number in range(stages)]
    answer(members[-1].subscribe.remote(names[-1:]))
    for member, incoming, outgoing in zip(members, names, names[1:], strict=False):
        answer(member.relay.remote(incoming, outgoing))
    answer(field.producer.open.remote(names[:1]))


def _rate(field: Field, stages: int, events: int) -> float:
    last = field.consumers[-1]
    answer(last.expect.remote(events))
    began = answer(field.producer.publish.remote("100 bytes", events, [f"pipeline-{stages}-stage-0"]))
    return events / float(answer(last.ended.remote()) - began)
