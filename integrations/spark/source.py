"""A channel's retained events as rows of Spark, read by its executors, range by range."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from typing_extensions import override

from echannel_ray.errors import EChannelError, TypeMismatch
from echannel_ray.gateway.patience import Patience
from echannel_ray.integrations.spark.connection import connected
from echannel_ray.integrations.spark.options import EARLIEST, LATEST, SourceOptions, Target
from echannel_ray.integrations.spark.ranges import (
    Bounds,
    Marks,
    Range,
    StreamOffset,
    capped,
    ends,
    split,
    stream_offset,
    within,
)
from echannel_ray.integrations.spark.types import cast, check_readable, declared
from echannel_ray.logs.entries import Missing

_RENEWALS_PER_LEASE = 4
_AWAY_SECONDS = 30.0  # a log host may be starting again; what is away for longer is lost


class DataLoss(EChannelError):
    """What a query has to read is gone from a log (`.channel`, `.log`, `.first`, `.next`: None where all of it is)."""


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
        if missing.next is None:
            self._lost(wanted.log, start, None)
            return wanted.stop
        stop = min(missing.next, wanted.stop)
        self._lost(wanted.log, start, stop)
        return stop

    def _lost(self, log: str, first: int, next_: int | None) -> None:
        """Say that events from `first` on are gone; `DataLoss` where that is not allowed."""
        channel = self._options.target.channel
        if next_ is None:
            lost = f"log {log} of channel {channel!r} is gone, with its events from {first} on"
            advice = "See what became of its node and of the disk there"
        else:
            lost = f"events {first} to {next_ - 1} of log {log} of channel {channel!r} are gone"
            advice = (
                "Retention ended before they were read: retain more (retain=ec.Retention(...)), read more often, hold "
                "them with a longer lease (.option('leaseSeconds', ...))"
            )
        if self._options.fails_on_data_loss:
            raise DataLoss(
                f"{lost}. {advice}, or go on without them: .option('failOnDataLoss', 'false')",
                channel=channel,
                log=log,
                first=first,
                next=next_,
            )
        print(f"echannel: {lost}; going on without them (failOnDataLoss=false)", file=sys.stderr)

    def _bounds(self) -> dict[str, tuple[int, int]]:
        target = self._options.target
        return connected(target.endpoint).offsets(target.channel)


class BatchSource(_Source, DataSourceReader):
    """All that is retained, or the part between two offsets."""

    @override
    def partitions(self) -> Sequence[InputPartition]:
        """On the driver."""
        options = self._options
        bounds = self._bounds()
        start, stop = _marks(options.starting, bounds), _marks(options.ending, bounds)
        return list(split(start, stop, options.rows_per_partition))


def _marks(option: str | dict[str, int], bounds: Bounds) -> dict[str, int]:
    if option == LATEST:
        return {log: next_ for log, (_, next_) in bounds.items()}
    firsts = {log: first for log, (first, _) in bounds.items()}
    return firsts if isinstance(option, str) else {**firsts, **option}


class StreamingSource(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's reader. What it has not committed is held for it in the logs, as long as its lease is renewed."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        super().__init__(schema, options)
        self._last: dict[str, int] | None = None  # with AvailableNow: what was there at the start
        self._newest: StreamOffset | None = None
        self._renewed_at: float | None = None  # None: nothing is held by this run

    @override
    def initialOffset(self) -> dict[str, Any]:
        """On the driver, for a query without a checkpoint."""
        options = self._options
        if options.group is None:
            # Spark asks more than once, and takes one answer: a hold for each would outlive the others for a lease.
            return dict(stream_offset(f"spark-{uuid.uuid4().hex}", _marks(options.starting, self._bounds())))
        marks = self._hold(options.group)
        if isinstance(options.starting, dict):
            marks = {**marks, **options.starting}
        return dict(stream_offset(options.group, marks))

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """On the driver: up to where the next epoch goes."""
        group, marks = start["group"], start["logs"]
        lease = self._options.lease_seconds
        if self._renewed_at is None:
            self._acknowledge(group, marks)
        elif time.monotonic() > self._renewed_at + lease / _RENEWALS_PER_LEASE:
            self._hold(group)
        newest = ends(marks, self._bounds_with(marks))
        self._newest = stream_offset(group, newest)
        if self._last is not None:
            newest = capped(newest, {**marks, **self._last})
        if isinstance(limit, ReadMaxRows):
            newest = within(marks, newest, limit.max_rows)
        return dict(stream_offset(group, newest))

    def _bounds_with(self, marks: Marks) -> Bounds:
        """Of all logs. Those in the marks are waited for; one that stays away is lost, and not in it."""
        patience = Patience(_AWAY_SECONDS)
        while True:
            try:
                bounds = self._bounds()
            except Missing:  # a log went while the gateway asked its log host: next time it is not there at all
                if not patience.pause():
                    raise
                continue
            away = sorted(marks.keys() - bounds.keys())
            if not away or not patience.pause():
                for log in away:
                    self._lost(log, marks[log], None)
                return bounds

    def _acknowledge(self, group: str, marks: Marks) -> None:
        """The group has done with all before these; what follows is held for it."""
        target, lease_seconds = self._options.target, self._options.lease_seconds
        connected(target.endpoint).acknowledge(target.channel, group, marks, lease_seconds)
        self._renewed_at = time.monotonic()

    def _hold(self, group: str) -> dict[str, int]:
        """Renew the lease; where the group is."""
        options = self._options
        start = options.starting if isinstance(options.starting, str) else EARLIEST
        marks = connected(options.target.endpoint).group(options.target.channel, group, start, options.lease_seconds)
        self._renewed_at = time.monotonic()
        return marks

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        """As the option says."""
        max_rows = self._options.max_rows_per_epoch
        return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all there will be."""
        self._last = ends({}, self._bounds())

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: its lag is what is between this and where its epoch ended."""
        return None if self._newest is None else dict(self._newest)

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """On the driver: the ranges of an epoch."""
        return list(split(start["logs"], end["logs"], self._options.rows_per_partition))

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """On the driver, when the epoch after it begins: what is before can be forgotten."""
        self._acknowledge(end["group"], end["logs"])
