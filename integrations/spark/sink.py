"""Spark's rows into a channel.

Exactly once: each attempt at a partition stages its rows beside the channel's log, under a number of its own, and says
so in its commit message. When all partitions are done, the driver names the attempts that won, and their rows become
events of the channel at once. What else was staged is dropped. The log remembers the write by name: a second commit of
it, by whomever, changes nothing.

At least once: rows are published as they come, and again when Spark tries again.
"""

from __future__ import annotations

import itertools
import secrets
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from echannel_ray.integrations.spark import files
from echannel_ray.integrations.spark.connection import connected
from echannel_ray.integrations.spark.opening import opened_for
from echannel_ray.integrations.spark.options import SinkOptions
from echannel_ray.integrations.spark.types import cast
from echannel_ray.logs.entries import Chosen, NotStaged, WriteAttempt

# Spark's names for them are internal to it: tests/integrations/test_streaming_sink.py would tell if they changed.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class Counts(NamedTuple):
    """What an attempt has sent."""

    rows: int
    data_bytes: int


@dataclass
class Written(WriterCommitMessage):
    """What an attempt at a partition reports to the driver; `chosen` is None where its rows are published already."""

    write: str
    chosen: Chosen | None
    counts: Counts
    paths: tuple[str, ...] = ()


class _Counting:
    """Batches as the channel takes them, counted on their way."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self.rows = 0
        self.data_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.rows += batch.num_rows
                self.data_bytes += batch.nbytes
                yield cast(batch, self._schema)

    @property
    def counts(self) -> Counts:
        """So far."""
        return Counts(self.rows, self.data_bytes)


class _Sink:
    """What both writers share. It is made on the driver, and travels to the executors without a connection."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._options = options
        self._schema = opened_for(schema, options)

    def _named(self, write: str) -> str:
        """The name under which to write: another one where it was aborted, since such a write is over for good. It
        never has two that are committed: the first one that was not aborted is taken.
        """
        options, name = self._options, write
        if options.is_exactly_once:
            client = connected(options.target.endpoint)
            for number in itertools.count(1):
                if not client.is_aborted(options.target.channel, name):
                    break
                name = f"{write}~{number}"
        return name

    def _write(self, batches: Iterator[pa.RecordBatch], write: str) -> Written:
        options = self._options
        client = connected(options.target.endpoint)
        channel = options.target.channel
        sent = _Counting(batches, self._schema)
        if not options.is_exactly_once:
            # What a gateway had taken for another channel may be lost with it: then Spark has to try the task again.
            # It does so at once, and this call waits for the gateway to be back.
            client.publish(channel, sent, may_repeat=client.channel(channel).is_on_disk)
            return Written(write, None, sent.counts)
        # A number that nobody had: Spark counts attempts from 0 again in the next driver, which may repeat this write.
        place = WriteAttempt(write, _context().partitionId(), secrets.randbits(62))
        paths: tuple[str, ...] = ()
        if options.directory is None:
            entries = client.stage(channel, place, sent)
        else:
            paths = files.staged(client, channel, place, sent, options.directory, self._schema)
            entries = len(paths)
        if client.is_aborted(channel, write):
            raise NotStaged(
                f"write {write!r} to channel {channel!r} is aborted, and its rows were dropped: its job has failed, or "
                "it staged nothing for so long that its lease ended. Write again (the same writeId will do)"
            )
        return Written(write, Chosen(place.partition, place.attempt, entries), sent.counts, paths)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        options, write = self._options, written[0].write
        rows = sum(each.counts.rows for each in written)
        data_bytes = sum(each.counts.data_bytes for each in written)
        how = "published"
        chosen = [each.chosen for each in written if each.chosen is not None]
        if options.is_exactly_once:
            done = connected(options.target.endpoint).commit(options.target.channel, write, chosen)
            how = "had been committed before" if done.repeated else f"committed as events {done.first} to {done.next}"
            if options.directory is not None and not done.repeated:
                files.remove_others(options.directory, write, {path for each in written for path in each.paths})
        # A worker of Spark's has no logging set up; what goes to its standard error appears in the driver's.
        print(
            f"echannel: write {write} to channel {options.target.channel!r}: {rows} rows, {data_bytes} bytes in "
            f"{len(written)} partitions {how}",
            file=sys.stderr,
        )

    def _abort(self, write: str) -> None:
        options = self._options
        if not options.is_exactly_once:
            return
        is_aborted = connected(options.target.endpoint).abort(options.target.channel, write)
        if is_aborted and options.directory is not None:
            files.remove_others(options.directory, write, set())


class BatchSink(_Sink, DataSourceArrowWriter):
    """One job's writer."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        super().__init__(schema, options)
        self._name = self._named(options.write or f"spark-{uuid.uuid4().hex}")

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: one attempt at one partition."""
        return self._write(iterator, self._name)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: all partitions are done."""
        self._commit(messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: the job has failed, or Spark has not heard that its commit was done."""
        self._abort(self._name)


class StreamingSink(_Sink, DataSourceStreamArrowWriter):
    """A query's writer. Spark makes it anew to commit, so what `write` has seen comes in its messages."""

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: one attempt at one partition of an epoch."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError(
                "this version of Spark does not say which query and batch a task belongs to: use one that "
                "echannel-ray[spark] was tested with"
            )
        return self._write(iterator, self._named(f"{query}/{batch}"))

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: the epoch's partitions are done."""
        self._commit(messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: the epoch has failed. Where no task came to its end, what is staged goes with its lease."""
        for write in {message.write for message in messages if isinstance(message, Written)}:
            self._abort(write)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # Spark calls `write` in a task
    return context
