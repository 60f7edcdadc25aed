"""Arrow Flight, which carries record batches through gateways, and the size in which they travel.

Only gateways need Flight, so it is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def flight() -> Any:
    """The module `pyarrow.flight`; an ImportError that says how to get it."""
    try:
        import pyarrow.flight
    except ImportError as error:
        raise ImportError(
            'gateways need pyarrow with Arrow Flight, which is not installed: pip install "echannel-ray[spark]"'
        ) from error
    return pyarrow.flight


def pieces_of(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, cut so that none has (much) more than so many bytes, if rows are of about equal size."""
    for batch in batches:
        count = -(-batch.nbytes // max_bytes) or 1
        step = -(-batch.num_rows // count)
        for at in range(0, batch.num_rows, step or 1):
            yield batch.slice(at, step)
