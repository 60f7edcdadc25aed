"""Batches on their way to a gateway: cut to size, numbered, and kept until they are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from echannel_ray import errors
from echannel_ray.gateway.flight import pieces_of

if TYPE_CHECKING:
    import pyarrow as pa

# With batches of 1 MB, enough to keep the connection and the host busy; what is kept to be sent again is no more.
MAX_UNACKNOWLEDGED: Final = 8


class OutgoingBatches:
    """What goes out in one call, on as many streams as it takes. Not thread-safe."""

    def __init__(self, batches: Iterable[pa.RecordBatch], max_batch_bytes: int) -> None:
        self._pieces = pieces_of(_alike(batches), max_batch_bytes)
        self._kept: deque[pa.RecordBatch] = deque()  # not acknowledged yet
        self._sent = 0  # of these, on the present stream
        self.acknowledged = 0
        self.rows = 0
        self._add()

    @property
    def schema(self) -> pa.Schema | None:
        """The schema that all batches have; None where there is none to send."""
        return self._kept[0].schema if self._kept else None

    def send(self, writer: Any, reader: Any, counted_from: int) -> None:
        """Send what is not acknowledged yet on a stream that was made for that; return when all is.

        The stream's acknowledgements count batches from that number on.
        """
        self._sent = 0
        try:
            while self._sent < len(self._kept) or self._add():
                writer.write_batch(self._kept[self._sent])
                self._sent += 1
                while self._sent >= MAX_UNACKNOWLEDGED:
                    if not self._read_acknowledgement(reader, counted_from):
                        return  # `close` raises what has happened
            writer.done_writing()
            while self._read_acknowledgement(reader, counted_from):
                pass
        finally:
            writer.close()

    @property
    def is_done(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return not self._kept

    def _add(self) -> bool:
        """Take the next piece; False where there is none."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._kept.append(piece)
        self.rows += piece.num_rows
        return True

    def _read_acknowledgement(self, reader: Any, counted_from: int) -> bool:
        """Wait for the next; False where the stream has ended."""
        data = reader.read()
        if data is None:
            return False
        done = counted_from + int(data.to_pybytes()) - self.acknowledged
        if not 0 <= done <= self._sent:
            raise errors.VersionMismatch(
                "the gateway acknowledged what was not sent to it: install the same version on both sides"
            )
        for _ in range(done):
            self._kept.popleft()
        self.acknowledged += done
        self._sent -= done
        return True


def _alike(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, checked to be of one schema."""
    schema = None
    for batch in batches:
        schema = schema or batch.schema
        if batch.schema != schema:
            raise ValueError(f"the batches of one call have one schema, and these have {schema} and {batch.schema}")
        yield batch
