"""Data sources in Python that do as little as one can: what Spark itself takes, whatever a channel does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


@dataclass
class Seen(WriterCommitMessage):
    """What came to a task, and when it began to come (by `monotonic`, which all processes of a machine share)."""

    rows: int = 0
    data_bytes: int = 0
    first_at: float = float("inf")

    def add(self, batch: pa.RecordBatch) -> None:
        """A batch came."""
        self.first_at = min(self.first_at, time.monotonic())
        self.rows += batch.num_rows
        self.data_bytes += batch.nbytes


def _seen(batches: Iterator[pa.RecordBatch]) -> Seen:
    seen = Seen()
    for batch in batches:
        seen.add(batch)
    return seen


class BatchDiscarder(DataSourceArrowWriter):
    """Writes nothing but what it saw, into a file for who measures."""

    def __init__(self, report: str) -> None:
        self._report = report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Seen:
        return _seen(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        seen = [message for message in messages if isinstance(message, Seen)]
        said = {
            "rows": sum(each.rows for each in seen),
            "data_bytes": sum(each.data_bytes for each in seen),
            "first_at": min(each.first_at for each in seen),
        }
        Path(self._report).write_text(json.dumps(said))


class StreamDiscarder(DataSourceStreamArrowWriter):
    """The same of an epoch, without telling anybody."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Seen:
        return _seen(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


class Discarding(DataSource):
    """The format "discarding"; `report` is the file of a batch."""

    @classmethod
    def name(cls) -> str:
        return "discarding"

    def writer(self, schema: StructType, overwrite: bool) -> BatchDiscarder:
        return BatchDiscarder(self.options["report"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamDiscarder:  # noqa: N802
        return StreamDiscarder()


@dataclass
class Times(InputPartition):
    """How often a task yields the batch."""

    count: int


class BatchFromMemory(DataSourceReader):
    """Yields one batch again and again; it travels to the tasks with the reader."""

    def __init__(self, batch: pa.RecordBatch, times: int, partitions: int) -> None:
        self._batch, self._times, self._partitions = batch, times, partitions

    def partitions(self) -> Sequence[InputPartition]:
        even, more = divmod(self._times, self._partitions)
        return [Times(even + (number < more)) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Times)
        for _ in range(partition.count):
            yield self._batch


class StreamFromMemory(DataSourceStreamReader):
    """A batch in each epoch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Times(end["epoch"] - start["epoch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Times)
        for _ in range(partition.count):
            yield self._batch

    def commit(self, end: dict[str, Any]) -> None:
        pass


class FromMemory(DataSource):
    """The format "from_memory": the batch of the Arrow file `file`, `times` in so many `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "from_memory"

    def schema(self) -> StructType:
        return from_arrow_schema(self._batch().schema)

    def reader(self, schema: StructType) -> BatchFromMemory:
        return BatchFromMemory(self._batch(), int(self.options["times"]), int(self.options["partitions"]))

    def streamReader(self, schema: StructType) -> StreamFromMemory:  # noqa: N802
        return StreamFromMemory(self._batch())

    def _batch(self) -> pa.RecordBatch:
        with pa.OSFile(self.options["file"]) as file, pa.ipc.open_file(file) as reader:
            return reader.get_batch(0)


SOURCES = (Discarding, FromMemory)
