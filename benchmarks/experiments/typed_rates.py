"""How many typed records a second go from one process to another of the same node, small ones and large ones?

Large ones against the bare program of sockets with the same hops, and against MPI with derived datatypes where it is
installed: that one goes straight from process to process.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.baselines.mpi import MISSING, MpiPair, command
from benchmarks.baselines.sockets import BareSockets
from benchmarks.harness.pinning import PLACEMENTS, place
from benchmarks.harness.records import DEPTH, SERIES, Reading, filled, quote
from benchmarks.harness.rows import Row, at_least
from benchmarks.harness.samples import Measure, Plan, Samples, interleave, sized
from benchmarks.harness.typed import LARGE_RECORDS, TypedField

LARGE = {"100 KB records": SERIES, "mixed 100 KB records": DEPTH}
WAYS = ("one by one", "in bulk", "in bulk, frozen")  # frozen: arrays that nobody can change


def run(plan: Plan) -> list[Row]:
    """Small ones, then large ones."""
    with ExitStack() as stack:
        bare = stack.enter_context(BareSockets())
        field = stack.enter_context(TypedField(plan, "bench-typed"))
        field.connect_typed("quotes", quote(), batches="numpy")
        field.connect_typed("readings", Reading)
        for kind, dtype in LARGE.items():
            field.connect_typed(kind, dtype, batches="numpy")
        found = command()
        mpi = stack.enter_context(MpiPair(*found)) if found else None
        rows = []
        for placement in PLACEMENTS:
            field.place(placement)
            place(placement, bare.source_pids, bare.other_pids)
            rows += _small(plan, field, placement)
            if mpi is not None:
                place(placement, mpi.source_pids, mpi.other_pids)
            # Two ranks on one core would only wait for each other's turn: MPI looks for messages without a pause.
            rows += _large(plan, field, bare, mpi if placement == "two" else None, placement)
    return rows


def _small(plan: Plan, field: TypedField, placement: str) -> list[Row]:
    variants = {
        "bulk": sized(plan, partial(field.rate_in_bulk, "quotes", "quotes"), 126_000, 10_000_000),
        "single": sized(plan, partial(field.rate, "readings", ["readings"]), 6_000),
    }
    taken = interleave(plan, variants, "events/s", higher_is_better=True)
    return [
        Row("100 B records in bulk, to batches of NumPy", placement, taken["bulk"], goal=at_least(10e6)),
        Row("104 B records one by one, instances of a class", placement, taken["single"]),
    ]


def _large(plan: Plan, field: TypedField, bare: BareSockets, mpi: MpiPair | None, placement: str) -> list[Row]:
    rates = {}
    for kind in LARGE:
        rates[f"{kind}, one by one"] = _megabytes(plan, partial(field.rate, kind, [kind]))
        rates[f"{kind}, in bulk"] = _megabytes(plan, partial(field.rate_in_bulk, kind, kind))
        rates[f"{kind}, in bulk, frozen"] = _megabytes(plan, partial(field.rate_in_bulk, f"frozen {kind}", kind))
        if mpi is not None:
            rates[f"MPI, {kind}"] = _megabytes(plan, partial(mpi.rate, LARGE[kind]))
    blobs = [record.tobytes() for record in filled(SERIES, LARGE_RECORDS, plan.seed)]
    rates["bare sockets"] = _megabytes(plan, partial(bare.large_rate, blobs))
    taken = interleave(plan, rates, "MB/s", higher_is_better=True)
    rows = []
    for kind in LARGE:
        for way in WAYS:
            mine = taken[f"{kind}, {way}"]
            goal = at_least(0.8) if kind == "100 KB records" else None
            rows.append(Row(f"{kind}, {way}", placement, mine, "bare sockets", taken["bare sockets"], goal))
        rows += _against_mpi(kind, placement, taken)
    return rows


def _against_mpi(kind: str, placement: str, taken: dict[str, Samples]) -> list[Row]:
    if placement != "two":
        return []
    mine, theirs = taken[f"{kind}, in bulk"], taken.get(f"MPI, {kind}")
    if theirs is None:
        return [Row(f"{kind}, in bulk, against MPI", placement, mine, note=MISSING)]
    return [Row(f"{kind}, in bulk", placement, mine, "mpi4py, derived datatypes", theirs, at_least(2))]


def _megabytes(plan: Plan, rate_of: Any) -> Measure:
    rate = sized(plan, rate_of, 100)
    return lambda: rate() * SERIES.itemsize / 1e6
