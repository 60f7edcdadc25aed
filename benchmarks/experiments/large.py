"""How many bytes a second do events of 1 MB carry on one node, against the bare program of sockets?"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave, sized

KINDS = ("1 MB", "1 MB array")


def run(plan: Plan) -> list[Row]:
    """Bytes, and NumPy arrays."""
    rows = []
    large = payloads.events_of("1 MB", plan.seed)
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        field = stack.enter_context(Field(plan, "bench-large"))
        field.connect(["events"])
        for placement in PLACEMENTS:
            field.place(placement)
            place(placement, bare.source_pids, bare.other_pids)
            variants = {kind: _megabytes(sized(plan, partial(field.rate, kind, ["events"]), 50)) for kind in KINDS}
            variants["bare sockets"] = _megabytes(sized(plan, partial(bare.large_rate, large), 50))
            samples = interleave(plan, variants, "MB/s", higher_is_better=True)
            bare_rate = samples["bare sockets"]
            rows += [Row(kind, placement, samples[kind], "bare sockets", bare_rate, at_least(0.6)) for kind in KINDS]
    return rows


def _megabytes(rate: Measure) -> Measure:
    return lambda: rate() * payloads.LARGE_BYTES / 1e6
