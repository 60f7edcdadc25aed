"""How long does it take to publish a shared object, and until all copies have it, against a `deliver` to as many
consumers?

Two numbers, one of which is set before each publish; copies in actors on the same node, and in modulators at their
producers. A prompt publish returns when all copies have it. A lazy one tells nobody, so here an event is delivered behind
it, for which each process pulls; where modulators have the copies, it delivers an event to its own to have that pull.
"""

from __future__ import annotations

from functools import partial

from echannel_ray.benchmarks.harness.eager import TIERS
from echannel_ray.benchmarks.harness.eager_field import EagerField
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave

COPIES = (1, 2, 4, 8)
HOLDERS = (None, *TIERS)  # actors, and modulators of both tiers
_EVENT = b"." * 100
_AXES = ("processes that hold a copy", "seconds", True, True, "JECho, section 5")

FIGURES = (
    Figure("shared_prompt", "Publishing a shared object promptly, until all copies have it", *_AXES),
    Figure("shared_lazy", "Publishing a shared object lazily, and until all copies have pulled it", *_AXES),
)


def run(plan: Plan) -> list[Row]:
    """One copy in both placements; more of them on one core, where what counts is the work."""
    rows = []
    with EagerField(plan, "bench-shared", consumers=max(COPIES)) as field:
        for copies in COPIES:
            field.connect([f"calm-{copies}"], copies)
        for tier in HOLDERS:
            for copies in COPIES:
                rows += _with(plan, field, tier, copies)
    return rows


def _with(plan: Plan, field: EagerField, tier: str | None, copies: int) -> list[Row]:
    name, orders = f"steered-{tier}-{copies}", f"orders-{tier}-{copies}"
    master, holders = field.producer, field.consumers[:copies]
    if tier is None:
        view = answer(master.share.remote())
        answer([holder.hold.remote(view) for holder in holders])
    else:
        answer([holder.open_admitting.remote(name) for holder in holders])
        answer(master.steer.remote(name, tier))
    answer(master.open.remote([orders]))
    answer([holder.pull_when_told.remote(orders, name if tier else None) for holder in holders])
    trips = (200 if plan.short else 1000) // copies
    rows = []
    # Modulators are in the processes that publish events: these are the source then.
    sources = field.consumer_pids[:copies] if tier else None
    for placement in PLACEMENTS if copies == 1 else PLACEMENTS[:1]:
        field.place_all(placement, sources)
        variants = {
            "prompt": partial(_publish, field, "prompt", trips),
            "lazy": partial(_publish, field, "lazy", trips),
            "pulled": lambda: float(answer(master.publish_and_order_seconds.remote(orders, trips))),
            "deliver": partial(field.deliver_seconds, f"calm-{copies}", _EVENT, trips),
        }
        rows += _rows(tier, copies, placement, interleave(plan, variants, "s", higher_is_better=False))
    for each in (master, *holders):
        for channel in (orders, name):
            answer(each.close_one.remote(channel))
    return rows


def _publish(field: EagerField, policy: str, trips: int) -> float:
    return float(answer(field.producer.publish_shared_seconds.remote(policy, trips)))


def _rows(tier: str | None, copies: int, placement: str, samples: dict[str, Samples]) -> list[Row]:
    holder = f"{tier} modulator" if tier else "actor"
    where = f"one copy in an {holder}" if copies == 1 else f"{copies} copies in {holder}s"
    is_point = placement == PLACEMENTS[0]
    prompt, lazy = ("shared_prompt", "shared_lazy") if is_point else ("", "")
    goal = at_most(2 if tier else 1.2) if copies == 1 else None
    measure = "publish a shared object"
    return [
        Row(
            f"{measure}, prompt, {where}", placement, samples["prompt"], "deliver", samples["deliver"], goal,
            figure=prompt, x=copies, series=f"{holder}s",
        ),
        Row(
            f"{measure}, lazy, {where}", placement, samples["lazy"], goal=at_most(10e-6) if copies == 1 else None,
            figure=lazy, x=copies, series=f"{holder}s, publish",
        ),
        Row(
            f"{measure}, lazy, until it was pulled, {where}", placement, samples["pulled"], "deliver",
            samples["deliver"], figure=lazy, x=copies, series=f"{holder}s, until pulled",
        ),
    ]  # fmt: skip
