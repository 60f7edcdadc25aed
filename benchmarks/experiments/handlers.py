"""How long does it take until a new eager handler is in force at all producers, against a `deliver` of an event that
is as large, to as many processes?

Installed by `subscribe` and replaced by `reset`, each a median over several; modulators of three sizes, in both tiers.
The modulators' code is shipped with them, as that of a program is, and sandboxes are made.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from echannel_ray.benchmarks.harness.eager import TIERS
from echannel_ray.benchmarks.harness.eager_field import EagerField
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples

PRODUCERS = (1, 2, 4, 8)
CONTENTS: dict[str, Any] = {"no state": None, "100 integers": [*range(100)], "10 KB": bytes(10_000)}
JUDGED = "100 integers"  # at one producer
WAYS = ("installing", "replacing")
GOALS = (
    at_most(0.010, "installing a modulator inline", f"installing a modulator with {JUDGED}, inline, median"),
    at_most(
        0.005, "installing a modulator in a warm sandbox", f"installing a modulator with {JUDGED}, isolated, median"
    ),
    at_most(
        0.002, "replacing a modulator by `reset`, inline", f"replacing a modulator with {JUDGED}, inline .*, median"
    ),
    at_most(
        0.004,
        "replacing a modulator by `reset`, in a sandbox",
        f"replacing a modulator with {JUDGED}, isolated .*, median",
    ),
)

FIGURES = tuple(
    Figure(
        f"handlers_{how}",
        f"{how.capitalize()} an eager handler",
        "producers",
        "time until it is in force at all",
        log_x=True,
        log_y=True,
        paper="JECho, section 5",
    )
    for how in WAYS
)


def run(plan: Plan) -> list[Row]:
    """For each number of producers: the party that elsewhere produces consumes here, and the others produce."""
    rows = []
    with EagerField(plan, "bench-handlers", consumers=max(PRODUCERS)) as field:
        for producers in PRODUCERS:
            rows += _at(plan, field, producers)
    return rows


def _at(plan: Plan, field: EagerField, producers: int) -> list[Row]:
    name, calm, times = f"handlers-{producers}", f"calm-{producers}", 3 if plan.short else 6
    viewer = field.producer
    for each in field.consumers[:producers]:
        answer(each.open_admitting.remote(name))
    field.connect([calm], producers)
    cells = [(tier, content) for tier in TIERS for content in CONTENTS]
    taken = {(how, *cell): Samples("s", higher_is_better=False) for how in WAYS for cell in cells}
    delivered = {content: Samples("s", higher_is_better=False) for content in CONTENTS}
    generator = plan.random()
    for tier in TIERS:  # the first one of a process starts what sandboxes are forked from
        answer(viewer.install_seconds.remote(name, None, tier, 1))
    for _ in range(plan.rounds):
        generator.shuffle(cells)
        for tier, content in cells:
            seconds = answer(viewer.install_seconds.remote(name, CONTENTS[content], tier, times))
            for how, each in zip(WAYS, seconds, strict=True):
                taken[how, tier, content].values.append(median(each))
        for content, samples in delivered.items():
            samples.values.append(field.deliver_seconds(calm, CONTENTS[content], 100))
    for each in field.consumers[:producers]:
        answer(each.close_one.remote(name))
    rows = []
    for (how, tier, content), samples in taken.items():
        by = " by reset" if how == "replacing" else ""
        at = f" at {producers} producers" if producers > 1 else ""
        measure = f"{how} a modulator with {content}, {tier}{by}{at}, median"
        rows.append(
            Row(
                measure,
                "free",
                samples,
                f"deliver, {content}",
                delivered[content],
                figure=f"handlers_{how}",
                x=producers,
                series=f"{tier}, {content}",
            )
        )
        if content == JUDGED and producers == 1:
            rows.append(Row(measure, "free", samples))
    return rows
