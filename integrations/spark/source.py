"""A channel's retained events as rows of Spark, read by its executors, range by range."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from echannel_ray.errors import EChannelError, TypeMismatch
from echannel_ray.integrations.spark.connection import connected
from echannel_ray.integrations.spark.options import EARLIEST, LATEST, SourceOptions, Target
from echannel_ray.integrations.spark.ranges import Range, StreamOffset, capped, ends, split, stream_offset, within
from echannel_ray.integrations.spark.types import cast, check_readable, declared
from echannel_ray.logs.entries import Missing

_RENEWALS_PER_LEASE = 4


class DataLoss(EChannelError):
    """What a query has to read is gone from a log (`.channel`, `.log`, `.first`, `.next`)."""


def channel_schema(target: Target) -> pa.Schema:
    """What the events of a channel have; `TypeMismatch` where it has no type."""
    schema = connected(target.endpoint).channel(target.channel).schema
    if schema is None:
        raise TypeMismatch(
            f"channel {target.channel!r} has no type, so its events can't be rows: create it with one, "
            f"ec.channel({target.channel!r}, Type, retain=...)",
            channel=target.channel,
            field=None,
        )
    return schema


class _Source:
    """What both readers share: it travels to the executors, without a connection."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._options = options
        self._schema = declared(schema)
        check_readable(channel_schema(options.target), self._schema, options.target.channel)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the rows of a range. A range that is read again has the same rows."""
        if not isinstance(partition, Range):
            return  # what Spark reads where there are no partitions
        start, stop = partition.start, partition.stop
        while start < partition.stop:
            try:
                for batch in self._batches(partition.log, start, stop):
                    start += batch.num_rows
                    yield cast(batch, self._schema)
                stop = partition.stop
            except Missing as missing:
                if start < missing.first < stop:
                    stop = missing.first  # what is before the gap comes first
                else:
                    start = self._behind(missing, start, partition)

    def _batches(self, log: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        target = self._options.target
        return connected(target.endpoint).read(target.channel, log, start, stop)

    def _behind(self, missing: Missing, start: int, wanted: Range) -> int:
        """Where to go on behind what is gone; `DataLoss` where that is not allowed."""
        stop = wanted.stop if missing.next is None else min(missing.next, wanted.stop)
        channel = self._options.target.channel
        lost = f"events {start} to {stop - 1} of log {wanted.log} of channel {channel!r} are gone: retention ended"
        if self._options.fails_on_data_loss:
            raise DataLoss(
                f"{lost} before they were read. Retain more (retain=ec.Retention(...)), read more often, hold them "
                "with a longer lease (.option('leaseSeconds', ...)), or go on without them: "
                ".option('failOnDataLoss', 'false')",
                channel=channel,
                log=wanted.log,
                first=start,
                next=stop,
            ) from missing
        print(f"echannel: {lost}; going on without them (failOnDataLoss=false)", file=sys.stderr)
        return stop


class BatchSource(_Source, DataSourceReader):
    """All that is retained, or the part between two offsets."""

    def partitions(self) -> Sequence[InputPartition]:
        """On the driver."""
        options = self._options
        bounds = connected(options.target.endpoint).offsets(options.target.channel)
        firsts = {log: first for log, (first, _) in bounds.items()}
        nexts = {log: next_ for log, (_, next_) in bounds.items()}
        start, stop = _marks(options.starting, firsts, nexts), _marks(options.ending, firsts, nexts)
        return list(split(start, stop, options.rows_per_partition))


def _marks(option: str | dict[str, int], firsts: dict[str, int], nexts: dict[str, int]) -> dict[str, int]:
    named = {EARLIEST: firsts, LATEST: nexts}
    return named[option] if isinstance(option, str) else {**firsts, **option}


class StreamingSource(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's reader. What it has not committed is held for it in the logs, as long as its lease is renewed."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        super().__init__(schema, options)
        self._last: dict[str, int] | None = None  # with AvailableNow: what was there at the start
        self._newest: StreamOffset | None = None
        self._renewed_at = -float("inf")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """On the driver, for a query without a checkpoint."""
        options = self._options
        group = options.group or f"spark-{uuid.uuid4().hex}"
        marks = self._hold(group)
        if isinstance(options.starting, dict):
            marks = {**marks, **options.starting}
        return dict(stream_offset(group, marks))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """On the driver: up to where the next epoch goes."""
        group, marks = start["group"], start["logs"]
        lease = self._options.lease_seconds
        if time.monotonic() > self._renewed_at + lease / _RENEWALS_PER_LEASE:
            self._hold(group)
        target = self._options.target
        newest = ends(marks, connected(target.endpoint).offsets(target.channel))
        self._newest = stream_offset(group, newest)
        if self._last is not None:
            newest = capped(newest, {**marks, **self._last})
        if isinstance(limit, ReadMaxRows):
            newest = within(marks, newest, limit.max_rows)
        return dict(stream_offset(group, newest))

    def _hold(self, group: str) -> dict[str, int]:
        """Renew the lease; where the group is."""
        options = self._options
        start = options.starting if isinstance(options.starting, str) else EARLIEST
        marks = connected(options.target.endpoint).group(options.target.channel, group, start, options.lease_seconds)
        self._renewed_at = time.monotonic()
        return marks

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the option says."""
        max_rows = self._options.max_rows_per_epoch
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what is there now for all there will be."""
        target = self._options.target
        self._last = ends({}, connected(target.endpoint).offsets(target.channel))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress: its lag is what is between this and where its epoch ended."""
        return None if self._newest is None else dict(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """On the driver: the ranges of an epoch."""
        return list(split(start["logs"], end["logs"], self._options.rows_per_partition))

    def commit(self, end: dict[str, Any]) -> None:
        """On the driver, when the epoch after it begins: what is before can be forgotten."""
        options = self._options
        marks: Mapping[str, int] = end["logs"]
        connected(options.target.endpoint).acknowledge(
            options.target.channel, end["group"], marks, options.lease_seconds
        )
        self._renewed_at = time.monotonic()
