"""What does a field that nobody expects cost the receiver, where sender and consumer lay out records alike or not?

The field is in front of all others, so that each of them is elsewhere than expected. In one process, without links: the
reader alone, and the whole path from the socket on (which is what the plots have, for a record by itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from echannel_ray.benchmarks.harness.alone import Alone, Timed, copied, difference, timed_on_fresh
from echannel_ray.benchmarks.harness.records import SIZES, filled, quote
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave
from echannel_ray.benchmarks.harness.up_to_socket import Receiving
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import Format

FOREIGN, SAME = "other byte order", "same byte order"
FIGURES = tuple(
    Figure(
        name,
        f"Receiving a record, {order} byte order",
        "size of a record (bytes)",
        "time from the socket to the event",
        log_x=True,
        log_y=True,
        paper=paper,
    )
    for name, order, paper in (
        (FOREIGN, "other", "ECho, figure 4 (2000)"),
        (SAME, "the same", "ECho, figure 5 (2000)"),
    )
)
WITHOUT = "without it"
_UNEXPECTED = "a field nobody expects"
GOALS = (
    at_most(1.3, f"{_UNEXPECTED}, where byte orders differ", f"{_UNEXPECTED}, other byte order: .*, block .*", WITHOUT),
    at_most(
        1,
        f"{_UNEXPECTED}, where byte orders are the same, against a copy",
        f"{_UNEXPECTED}, same byte order, .*, reader alone",
        "a memcpy of the block",
    ),
)
BLOCK_BYTES = 128 << 10
MAX_CALLS = 5000  # making the bytes takes longer than reading them


def run(plan: Plan) -> list[Row]:
    """Each size: blocks of 128 KB, then a record by itself."""
    rows = []
    for size, numbers in SIZES.items():
        with Alone(_receivers, numbers, plan.seed) as alone:
            taken = interleave(plan, alone.measures(plan, max_calls=MAX_CALLS), "s", higher_is_better=False)
        rows += _of_blocks(size, taken)
        rows += _of_one(size, quote(numbers).itemsize, taken)
    return rows


def _receivers(numbers: int, seed: int) -> Mapping[str, Timed]:
    target = quote(numbers)
    wider = np.dtype([("unexpected", "i8"), *((name, target[name]) for name in target.names or ())])
    array = filled(target, max(1, BLOCK_BYTES // target.itemsize), seed)
    measures: dict[str, Timed] = {"memcpy": timed_on_fresh(copied, array.tobytes())}
    for name, dtype in {
        "same": target,
        "same, wider": wider,
        "foreign": target.newbyteorder("S"),
        "foreign, wider": wider.newbyteorder("S"),
    }.items():
        came = np.zeros(len(array), dtype)
        for field in target.names or ():
            came[field] = array[field]
        sent = format_of_dtype(dtype, types.schema_of(dtype))
        reader = Reader(target, types.schema_of(target), "numpy")
        if not (reader.batch_of_block(sent, came.tobytes(), len(array)) == array).all():
            raise AssertionError(f"{name} records arrive as others")
        measures[name] = timed_on_fresh(partial(_read, reader, sent, len(array)), came.tobytes())
        measures[f"{name}, whole path"] = Receiving(reader, sent, came.tobytes(), len(array)).seconds
        measures[f"{name}, one"] = Receiving(reader, sent, came[:1].tobytes(), 1).seconds
    return measures


def _read(reader: Reader, sent: Format, records: int, block: bytes) -> Any:
    return reader.batch_of_block(sent, block, records)


def _of_blocks(size: str, taken: Mapping[str, Samples]) -> list[Row]:
    rows = []
    for path in ("", ", whole path"):
        where = f"{size} records, block of 128 KB{path or ', reader alone'}"
        foreign, same = taken[f"foreign{path}"], taken[f"same{path}"]
        wider, more = taken[f"foreign, wider{path}"], difference(taken[f"same, wider{path}"], same)
        rows += [
            Row(f"a field nobody expects, other byte order: {where}", "one", wider, WITHOUT, foreign),
            Row(
                f"a field nobody expects, same byte order, what it adds: {where}",
                "one",
                more,
                "a memcpy of the block",
                taken["memcpy"],
            ),
            Row(f"other byte order: {where}", "one", foreign, "the same byte order", same),
        ]
    return rows


def _of_one(size: str, record_bytes: int, taken: Mapping[str, Samples]) -> list[Row]:
    return [
        Row(
            f"a field nobody expects, {order} byte order: a record of {size} by itself, whole path",
            "one",
            taken[f"{name}, wider, one"],
            WITHOUT,
            taken[f"{name}, one"],
            figure=figure,
            x=record_bytes,
            series="with a field that nobody expects",
        )
        for name, order, figure in (("foreign", "other", FOREIGN), ("same", "same", SAME))
    ]
