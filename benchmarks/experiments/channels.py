"""Does the rate stay the same when one producer takes turns over 1 to 4,096 channels, and how fast are they made?"""

from __future__ import annotations

from functools import partial

from echannel_ray.benchmarks.harness.field import Field, answer
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave, sized

COUNTS = (1, 64, 1024, 4096)
SHORT_COUNTS = (1, 64, 512)


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
        rows.append(Row("channels created one after the other", "", created, goal=at_least(500)))
        field.connect(names)
        for placement in PLACEMENTS:
            field.place(placement)
            variants = {
                str(count): sized(plan, partial(field.rate, "100 bytes", names[:count]), 10_000) for count in counts
            }
            samples = interleave(plan, variants, "events/s", higher_is_better=True)
            one, goal = samples["1"], at_least(0.85)
            rows += [
                Row(f"{count} channels in turn, 100 B", placement, samples[str(count)], "1 channel", one, goal)
                for count in counts[1:]
            ]
    return rows
