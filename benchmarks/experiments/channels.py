"""Does the rate stay the same when one producer takes turns over 1 to 4,096 channels, and how fast are they made?

The times per event are JECho's figure 6.
"""

from __future__ import annotations

from functools import partial

from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave, per_event, sized

COUNTS = (1, 4, 16, 64, 256, 1024, 4096)
SHORT_COUNTS = (1, 8, 64, 512)
JUDGED = (64, 512, 1024, 4096)
GOALS = (
    at_least(500, "channels made in a second", "channels created one after the other"),
    at_least(0.85, "64 channels in turn, against one", "64 channels in turn, .*", "1 channel"),
    at_least(0.85, "1,024 and 4,096 channels in turn, against one", r"\d{3,} channels in turn, .*", "1 channel"),
)
FIGURES = (
    Figure(
        name="channels",
        title="Time per event over several channels in turn",
        x_label="channels",
        y_label="time per event",
        log_x=True,
        paper="JECho, figure 6",
    ),
)


def run(plan: Plan) -> list[Row]:
    """One producer and one consumer process; every number of channels takes its turn."""
    counts = SHORT_COUNTS if plan.short else COUNTS
    names = [f"channel-{number}" for number in range(counts[-1])]
    rows = []
    with Field(plan, "bench-channels") as field:
        created = Samples("channels/s", higher_is_better=True)
        part = len(names) // plan.rounds
        for first in range(0, part * plan.rounds, part):
            seconds = answer(field.producer.create.remote(names[first : first + part]))
            created.values.append(part / float(seconds))
        rows.append(Row("channels created one after the other", "", created))
        field.connect(names)
        for placement in PLACEMENTS:
            field.place(placement)
            variants = {
                str(count): sized(plan, partial(field.rate, "100 bytes", names[:count]), 10_000) for count in counts
            }
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            rows += [
                Row(f"{count} channels in turn, 100 B", placement, samples[str(count)], "1 channel", samples["1"])
                for count in counts
                if count in JUDGED
            ]
            rows += [
                Row(
                    f"time per event, channels in turn: {count}",
                    placement,
                    per_event(samples[str(count)]),
                    figure="channels",
                    x=count,
                    series=f"echannel_ray, {placement}",
                )
                for count in counts
            ]
    return rows
