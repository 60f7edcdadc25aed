"""How many typed records a second go from one process to another of the same node, small ones and large ones?

Large ones against the bare program of sockets with the same hops; against one copy into shared memory, which is what
could be done at best with arrays that their owner keeps; and against MPI, which goes straight from process to process.
Nobody reads the numbers. Frozen arrays are such that nobody can change; those on loan are in shared memory from the
start.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from echannel_ray.benchmarks.baselines.mpi import MISSING, MpiPair
from echannel_ray.benchmarks.baselines.one_copy import OneCopy
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.records import DEPTH, SERIES, Reading, count_of, filled, quote
from echannel_ray.benchmarks.harness.rows import Row, at_least, skipped
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, interleave, sized
from echannel_ray.benchmarks.harness.typed import TypedField

EVEN, MIXED = "100 KB records", "mixed 100 KB records"
MPI_WAYS = {EVEN: "mpi4py, contiguous doubles", MIXED: "mpi4py, derived datatypes"}
LARGE = {EVEN: SERIES, MIXED: DEPTH}
ONE_COPY, LOANED = "one copy into shared memory", "in bulk on loan"
GOALS = (
    at_least(10e6, "typed records of 100 B in bulk", "100 B records in bulk, .*"),
    at_least(0.8, "typed records of 100 KB, against bare sockets", f"{EVEN}, .*(?<!mixed)", "bare sockets"),
    at_least(0.8, "typed records of 100 KB, against one copy into shared memory", f"{EVEN}, in bulk", ONE_COPY),
    at_least(1, "typed records of 100 KB on loan, against MPI's doubles", f"{EVEN}, in bulk on loan", "mpi4py, .*"),
    at_least(2, "typed records of 100 KB with padding, against MPI's derived datatypes", f"{MIXED}, .*", "mpi4py, .*"),
)


def run(plan: Plan) -> list[Row]:
    """Small ones, then large ones."""
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        one_copy = stack.enter_context(OneCopy(SERIES.itemsize, is_read=False))
        field = stack.enter_context(TypedField(plan, "bench-typed"))
        field.connect_typed("quotes", quote(), batches="numpy")
        field.connect_typed("readings", Reading)
        field.make("quotes", quote())
        field.make("readings", Reading)
        for kind, dtype in LARGE.items():
            field.connect_typed(kind, dtype, batches="numpy")
            field.make(kind, dtype)
            field.make(f"frozen {kind}", dtype, freeze=True)
        mpi = None if MISSING else stack.enter_context(MpiPair())
        rows = []
        for placement in PLACEMENTS:
            field.place(placement)
            for party in (bare, one_copy):
                place(placement, party.source_pids, party.other_pids)
            rows += _small(plan, field, placement)
            if mpi is not None:
                place(placement, mpi.source_pids, mpi.other_pids)
            # Two ranks on one core would only wait for each other's turn: MPI looks for messages without a pause.
            rows += _large(plan, field, bare, one_copy, mpi if placement == "two" else None, placement)
    return rows


def _small(plan: Plan, field: TypedField, placement: str) -> list[Row]:
    variants = {
        "bulk": sized(plan, partial(field.rate_in_bulk, "quotes", "quotes"), 126_000, 10_000_000),
        "single": sized(plan, partial(field.rate, "readings", ["readings"]), 6_000),
    }
    taken = interleave(plan, variants, "events/s", higher_is_better=True)
    return [
        Row("100 B records in bulk, to batches of NumPy", placement, taken["bulk"]),
        Row("104 B records one by one, instances of a class", placement, taken["single"]),
    ]


def _large(
    plan: Plan, field: TypedField, bare: BareSockets, one_copy: OneCopy, mpi: MpiPair | None, placement: str
) -> list[Row]:
    blobs = [record.tobytes() for record in filled(SERIES, count_of(SERIES), plan.seed)]
    ours = {"one by one": partial(field.rate, EVEN, [EVEN])} | {
        way: partial(field.rate_in_bulk, kind, kind.removeprefix("frozen "))
        for way, kind in (("in bulk", EVEN), ("in bulk, frozen", f"frozen {EVEN}"), ("in bulk, mixed", MIXED))
    }
    ours[LOANED] = partial(field.rate_in_bulk, EVEN, EVEN, is_loaned=True)
    theirs = {"bare sockets": partial(bare.large_rate, blobs), ONE_COPY: partial(one_copy.rate, blobs)}
    if mpi is not None:
        theirs |= {f"MPI, {kind}": partial(mpi.rate, dtype) for kind, dtype in LARGE.items()}
    taken = interleave(
        plan, {name: _megabytes(plan, rate) for name, rate in (ours | theirs).items()}, "MB/s", higher_is_better=True
    )
    rows = [Row(f"{EVEN}, {way}", placement, taken[way], "bare sockets", taken["bare sockets"]) for way in ours]
    rows.append(Row(f"{EVEN}, in bulk", placement, taken["in bulk"], ONE_COPY, taken[ONE_COPY]))
    if placement == "two":
        pairs = ((EVEN, "in bulk", "in bulk"), (EVEN, LOANED, LOANED), (MIXED, "in bulk", "in bulk, mixed"))
        rows += [_against_mpi(kind, way, taken[ours], taken.get(f"MPI, {kind}")) for kind, way, ours in pairs]
    return rows


def _against_mpi(kind: str, way: str, ours: Samples, theirs: Samples | None) -> Row:
    if theirs is None:
        return skipped(f"{kind}, {way}, against MPI", str(MISSING))
    return Row(f"{kind}, {way}", "two", ours, MPI_WAYS[kind], theirs)


def _megabytes(plan: Plan, rate_of: Any) -> Measure:
    rate = sized(plan, rate_of, 100)
    return lambda: rate() * SERIES.itemsize / 1e6
