"""What do a record's bytes cost on their way, where sender and consumer lay out its fields in the same way or not?

In one process, without links: what the sender does is the same for any size, and the receiver converts only what
differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from echannel_ray.benchmarks.harness.alone import Alone, Timed, difference, timed_on_fresh
from echannel_ray.benchmarks.harness.records import SIZES, filled, frozen, quote
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, interleave
from echannel_ray.benchmarks.harness.up_to_socket import Receiving, Sending

from echannel_ray.records.reading import Reader
from echannel_ray.records.writing import array_format
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import Format

BLOCK_BYTES = 128 << 10


def run(plan: Plan) -> list[Row]:
    """The sender's side, then the receiver's for each size of a record."""
    rows = _sending(plan)
    for size in SIZES:
        rows += _receiving(plan, size)
    return rows


# ---- at the sender ----


def _senders(seed: int) -> Mapping[str, Timed]:
    measures: dict[str, Timed] = {}
    for size, numbers in SIZES.items():
        dtype = quote(numbers)
        array = filled(dtype, 1, seed)
        sending = Sending(dtype)
        measures[f"frozen {size}"] = partial(sending.seconds, frozen(array))
        measures[f"changeable {size}"] = partial(sending.seconds, array)
        measures[f"memcpy {size}"] = timed_on_fresh(_copied, array.tobytes())
    return measures


def _copied(data: bytes) -> bytes:
    return bytes(memoryview(data))


def _sending(plan: Plan) -> list[Row]:
    with Alone(_senders, plan.seed) as alone:
        taken = interleave(plan, alone.measures(plan), "s", higher_is_better=False)
    smallest, *others = SIZES
    first = taken[f"frozen {smallest}"]
    rows = [
        Row(f"encode a record of {size} that nobody can change", "one", taken[f"frozen {size}"], smallest, first, goal)
        for size, goal in [(each, at_most(1.3)) for each in others]
    ]
    for size in SIZES:
        more = difference(taken[f"changeable {size}"], taken[f"frozen {size}"])
        what = f"encode a record of {size} that can be changed: what that adds"
        rows.append(Row(what, "one", more, "a memcpy of it", taken[f"memcpy {size}"]))
    return rows


# ---- at the receiver ----


def _receivers(size: str, seed: int) -> Mapping[str, Timed]:
    target = quote(SIZES[size])
    wider = np.dtype([("unexpected", "i8"), *((name, target[name]) for name in target.names or ())])
    records = max(1, BLOCK_BYTES // target.itemsize)
    array = filled(target, records, seed)
    measures: dict[str, Timed] = {"memcpy": timed_on_fresh(_copied, array.tobytes())}
    for name, dtype in {
        "same": target,
        "same, wider": wider,
        "foreign": target.newbyteorder("S"),
        "foreign, wider": wider.newbyteorder("S"),
    }.items():
        came = np.zeros(records, dtype)
        for field in target.names or ():
            came[field] = array[field]
        sent = array_format(dtype, types.schema_of(dtype))
        reader = Reader(target, types.schema_of(target), "numpy")
        if not (reader.batch_of_block(sent, came.tobytes(), records) == array).all():
            raise AssertionError(f"{name} records arrive as others")
        measures[name] = timed_on_fresh(partial(_read, reader, sent, records), came.tobytes())
        measures[f"{name}, whole path"] = Receiving(reader, sent, came.tobytes(), records).seconds
    return measures


def _read(reader: Reader, sent: Format, records: int, block: bytes) -> Any:
    return reader.batch_of_block(sent, block, records)


def _receiving(plan: Plan, size: str) -> list[Row]:
    with Alone(_receivers, size, plan.seed) as alone:
        taken = interleave(plan, alone.measures(plan), "s", higher_is_better=False)
    rows = []
    for path in ("", ", whole path"):
        where = f"{size} records, block of 128 KB{path or ', reader alone'}"
        foreign, same = taken[f"foreign{path}"], taken[f"same{path}"]
        foreign_wider, same_wider = taken[f"foreign, wider{path}"], taken[f"same, wider{path}"]
        rows.append(
            Row(
                f"a field nobody expects, other byte order: {where}",
                "one",
                foreign_wider,
                "without it",
                foreign,
                at_most(1.3),
            )
        )
        rows.append(
            Row(
                f"a field nobody expects, same byte order, what it adds: {where}",
                "one",
                difference(same_wider, same),
                "a memcpy of the block",
                taken["memcpy"],
                None if path else at_most(1),
            )
        )
        rows.append(Row(f"other byte order: {where}", "one", foreign, "the same byte order", same))
    return rows
