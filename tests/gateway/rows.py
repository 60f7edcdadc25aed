"""Rows that tests send."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

SCHEMA = pa.schema([pa.field("number", pa.int64(), False), pa.field("text", pa.string())])
ON_DISK = {"disk": True}


def batch_of(first: int, count: int) -> pa.RecordBatch:
    """Rows whose numbers are those from `first`."""
    numbers = range(first, first + count)
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA)


def batches_of(rows: int, each: int = 100, first: int = 0) -> list[pa.RecordBatch]:
    return [batch_of(at, each) for at in range(first, first + rows, each)]


def numbers_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("number").to_pylist()]


def numbers_in(client, channel: str) -> list[int]:
    """All that a channel's log has."""
    ((log, (first, behind)),) = client.offsets(channel).items()
    return numbers_of(client.read(channel, log, first, behind))
