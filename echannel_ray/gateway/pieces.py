"""Record batches in the size in which they travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def pieces_of(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, cut so that none has (much) more than so many bytes, if rows are of about equal size."""
    for batch in batches:
        count = -(-batch.nbytes // max_bytes) or 1
        step = -(-batch.num_rows // count)
        for at in range(0, batch.num_rows, step or 1):
            yield batch.slice(at, step)
