"""How many bytes a second do events of 1 MB carry on one node, against the bare program of sockets?

And where the consumer reads each byte, also against Zenoh with shared memory, and against what could be done at best by
who publishes bytes and keeps them: one copy into shared memory. An array arrives as a view of that, and bytes as bytes,
which is a copy more. What is loaned is written by the producer each time, as Zenoh's buffers are.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from echannel_ray.benchmarks.baselines.one_copy import OneCopy
from echannel_ray.benchmarks.baselines.peers import start
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.baselines.zenoh_shared import ZenohShared
from echannel_ray.benchmarks.harness import payloads
from echannel_ray.benchmarks.harness.field import Field
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave, sized

KINDS = ("1 MB", "1 MB array")
READ = "1 MB, read by the consumer"
ARRAY_READ, LOAN_READ = "1 MB array, read by the consumer", "1 MB array on loan, read by the consumer"
BARE, ONE_COPY, ZENOH = "bare sockets", "one copy into shared memory", "Zenoh, shared memory"
GOALS = (
    at_least(0.6, "1 MB events, against bare sockets", "|".join(KINDS), BARE),
    at_least(0.8, "1 MB events that are read, against one copy into shared memory", f"{READ}|{ARRAY_READ}", ONE_COPY),
    at_least(2, "1 MB events on loan that are read, against Zenoh with shared memory", LOAN_READ, ZENOH),
)


def run(plan: Plan) -> list[Row]:
    """Bytes, and NumPy arrays."""
    large = payloads.events_of("1 MB", plan.seed)
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        one_copy = stack.enter_context(OneCopy(payloads.LARGE_BYTES, is_read=True))
        zenoh, rows = start(stack, {ZENOH: ZenohShared})
        field = stack.enter_context(Field(plan, "bench-large"))
        field.connect(["events"])
        field.connect_reading("read")
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (bare, one_copy, *zenoh.values()):
                place(placement, party.source_pids, party.other_pids)
            variants = {kind: _megabytes(sized(plan, partial(field.rate, kind, ["events"]), 50)) for kind in KINDS}
            variants[BARE] = _megabytes(sized(plan, partial(bare.large_rate, large), 50))
            samples = interleave(plan, variants, "MB/s", higher_is_better=True)
            rows += [Row(kind, placement, samples[kind], BARE, samples[BARE]) for kind in KINDS]
            ours = {
                READ: partial(field.rate, "1 MB", ["read"]),
                ARRAY_READ: partial(field.rate, "1 MB array", ["read"]),
                LOAN_READ: partial(field.rate_of_loans, "1 MB array", "read"),
            }
            theirs = {
                BARE: partial(bare.large_rate, large, is_read=True),
                ONE_COPY: partial(one_copy.rate, large),
                **{name: partial(party.rate, large) for name, party in zenoh.items()},
            }
            variants = {name: _megabytes(sized(plan, rate, 50)) for name, rate in (ours | theirs).items()}
            samples = interleave(plan, variants, "MB/s", higher_is_better=True)
            rows += [Row(kind, placement, samples[kind], name, samples[name]) for kind in ours for name in theirs]
    return rows


def _megabytes(rate: Measure) -> Measure:
    return lambda: rate() * payloads.LARGE_BYTES / 1e6
