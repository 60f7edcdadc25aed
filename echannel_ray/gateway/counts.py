"""What went through a gateway, and who uses it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

# A client between two calls is still there; Flight does not say when a connection ends.
_QUIET_SECONDS: Final = 60.0


class Counts:
    """The counters of one gateway; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(("rows_in", "batches_in", "bytes_in", "rows_out", "batches_out", "bytes_out"), 0)
        self._calling: Counter[str] = Counter()  # calls in progress, by the address of the client's connection
        self._last_call: dict[str, float] = {}

    def add(self, way: str, batch: pa.RecordBatch) -> None:
        """Count a batch that came "in" or went "out"."""
        with self._lock:
            self._totals[f"rows_{way}"] += batch.num_rows
            self._totals[f"batches_{way}"] += 1
            self._totals[f"bytes_{way}"] += batch.nbytes

    @contextmanager
    def call(self, client: str) -> Iterator[None]:
        """Count a call of this client as in progress within."""
        with self._lock:
            self._calling[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calling[client] -= 1
                self._calling += Counter()  # leaves out those at zero
                self._last_call.pop(client, None)
                self._last_call[client] = time.monotonic()
                self._forget_the_quiet()

    def stats(self) -> dict[str, int]:
        """Totals since the start, and how many clients there are now."""
        with self._lock:
            self._forget_the_quiet()
            return {**self._totals, "clients": len(self._last_call.keys() | self._calling)}

    def _forget_the_quiet(self) -> None:
        quiet_since = time.monotonic() - _QUIET_SECONDS
        for client, seen in list(self._last_call.items()):  # the longest quiet first
            if seen >= quiet_since:
                return
            del self._last_call[client]
