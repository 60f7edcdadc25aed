"""How long does it take to publish a shared object, against a `deliver` to a handler in the same process as the copy?

Two numbers, one of which is set before each publish; one secondary copy in an actor on the same node.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from benchmarks.harness.field import Field, answer
from benchmarks.harness.pinning import PLACEMENTS
from benchmarks.harness.rows import Row, at_most
from benchmarks.harness.samples import Plan, interleave

_EVENT = b"." * 100


def run(plan: Plan) -> list[Row]:
    """Prompt and lazy publishes and deliveries, in turns."""
    rows = []
    trips = 500 if plan.short else 2500
    with ExitStack() as stack:
        field = stack.enter_context(Field(plan, "bench-shared"))
        field.connect(["events"])
        answer(field.consumers[0].hold.remote(answer(field.producer.share.remote())))

        def publish(policy: str) -> float:
            return float(answer(field.producer.publish_shared_seconds.remote(policy, trips)))

        for placement in PLACEMENTS:
            field.place(placement)
            samples = interleave(
                plan,
                {
                    "prompt": partial(publish, "prompt"),
                    "lazy": partial(publish, "lazy"),
                    "deliver": partial(field.deliver_seconds, "events", _EVENT, trips),
                },
                "s",
                higher_is_better=False,
            )
            rows.append(
                Row(
                    "publish a shared object, prompt, one copy in an actor", placement, samples["prompt"], "deliver",
                    samples["deliver"], at_most(1.2),
                )
            )  # fmt: skip
            rows.append(Row("publish a shared object, lazy", placement, samples["lazy"], goal=at_most(10e-6)))
    return rows
