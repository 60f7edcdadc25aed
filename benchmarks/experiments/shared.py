"""How long does it take to publish a shared object, and until all copies have it, against a `deliver` to as many
consumers?

Two numbers, one of which is set before each publish; copies in actors on the same node, and in modulators at their
producers. A prompt publish returns when all copies have it. A lazy one tells nobody, so here an event is delivered
behind it, for which each process pulls; where modulators have the copies, it delivers one to them in turn.
"""

from __future__ import annotations

from functools import partial

from echannel_ray.benchmarks.harness.eager_field import EagerField
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, interleave

COPIES = (1, 2, 4, 8)
HOLDERS = {"actors": None, "inline modulators": "inline", "isolated modulators": "isolated"}
_EVENT = b"." * 100
_PROMPT = "publish a shared object, prompt, one copy in an"
GOALS = (
    at_most(1.2, "a prompt publish to a copy in an actor, against `deliver`", f"{_PROMPT} actor", "deliver"),
    at_most(2, "a prompt publish to a copy in a modulator, against `deliver`", f"{_PROMPT} .* modulator", "deliver"),
    at_most(10e-6, "a lazy publish with a copy in an actor", "publish a shared object, lazy, one copy in an actor"),
)

FIGURES = tuple(
    Figure(
        f"shared_{holders.split()[0]}",
        f"A shared object with copies in {holders}",
        "copies, each in a process",
        "time",
        log_x=True,
        log_y=True,
        paper="JECho, section 5",
    )
    for holders in HOLDERS
)


def run(plan: Plan) -> list[Row]:
    """One copy in both placements; more of them on one core, where what counts is the work."""
    rows = []
    with EagerField(plan, "bench-shared", consumers=max(COPIES)) as field:
        for copies in COPIES:
            field.connect([f"calm-{copies}"], copies)
        for kind in HOLDERS:
            for copies in COPIES:
                rows += _with(plan, field, kind, copies)
    return rows


def _with(plan: Plan, field: EagerField, kind: str, copies: int) -> list[Row]:
    tier = HOLDERS[kind]
    name, orders = f"steered-{tier}-{copies}", f"orders-{tier}-{copies}"
    master, holders = field.producer, field.consumers[:copies]
    if tier is None:
        view = master.share.remote()  # not fetched: this process would have a copy too
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
        variants: dict[str, Measure] = {
            "prompt": partial(_publish, field, "prompt", trips),
            "lazy": partial(_publish, field, "lazy", trips),
            "pulled": lambda: float(answer(master.publish_and_order_seconds.remote(orders, trips))),
            "deliver": partial(field.deliver_seconds, f"calm-{copies}", _EVENT, trips),
        }
        rows += _rows(kind, copies, placement, interleave(plan, variants, "s", higher_is_better=False))
    for each in (master, *holders):
        for channel in (orders, name):
            answer(each.close_one.remote(channel))
    return rows


def _publish(field: EagerField, policy: str, trips: int) -> float:
    return float(answer(field.producer.publish_shared_seconds.remote(policy, trips)))


def _rows(kind: str, copies: int, placement: str, samples: dict[str, Samples]) -> list[Row]:
    where = f"one copy in an {kind[:-1]}" if copies == 1 else f"{copies} copies in {kind}"
    figure = f"shared_{kind.split()[0]}" if placement == PLACEMENTS[0] else ""
    whole = {"prompt": "prompt", "pulled": "lazy, until all have pulled it"}
    lazy = f"publish a shared object, lazy, {where}"
    rows = [Row(lazy, placement, samples["lazy"], figure=figure, x=copies, series="lazy, publish")]
    rows += [
        Row(
            f"publish a shared object, {measure}, {where}",
            placement,
            samples[name],
            "deliver",
            samples["deliver"],
            figure=figure,
            x=copies,
            series=measure,
        )
        for name, measure in whole.items()
    ]
    return rows
