"""Channels as batches and streams of Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.integrations.io import finish, uncommit_last

ROWS = 10_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def publish(channel, first, stop, each=500, **retain):
    """Ids of this range, some in each entry."""
    with channel.gateway.client() as client:
        client.channel(channel.name, SCHEMA, {"disk": True, **retain})
        for start in range(first, stop, each):
            ids = pa.array(range(start, min(stop, start + each)))
            client.publish(channel.name, [pa.RecordBatch.from_arrays([ids], schema=SCHEMA)])


def log_of(channel):
    with channel.gateway.client() as client:
        (log,) = client.offsets(channel.name)
    return log


class Query:
    """A query that reads what is there, in the rows of a memory table, and may be run again from its checkpoint."""

    def __init__(self, channel, directory, **options):
        self._channel = channel
        self._directory = directory
        self._options = options

    def run(self, **options):
        """How many rows each epoch had, and the ids."""
        out = self._directory / "out"
        writer = self._channel.stream(**{**self._options, **options}).writeStream.format("parquet")
        writer = writer.option("path", str(out)).option("checkpointLocation", str(self._directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        finish(query)
        self.progress = query.recentProgress
        return sorted(row.id for row in self._channel.spark.read.schema("id long").parquet(str(out)).collect())

    def epochs(self):
        return [each["numInputRows"] for each in self.progress if each["numInputRows"]]


def test_a_batch_is_all_that_is_retained(channel):
    publish(channel, 0, ROWS)
    rows = channel.load(rowsPerPartition=700)
    assert rows.schema.simpleString() == "struct<id:bigint>"
    assert rows.rdd.getNumPartitions() == -(-ROWS // 700)
    assert [row.id for row in rows.collect()] == list(range(ROWS))


def test_a_batch_between_offsets(channel):
    publish(channel, 0, 1000)
    log = log_of(channel)
    options = {"startingOffsets": json.dumps({log: 250}), "endingOffsets": json.dumps({log: 260})}
    assert [row.id for row in channel.load(**options).collect()] == list(range(250, 260))
    assert channel.load(startingOffsets="latest").count() == 0


def test_a_schema_that_is_given(channel):
    publish(channel, 0, 10)
    assert [row.id for row in channel.load("id decimal(20,0)").collect()] == list(range(10))
    with pytest.raises(PySparkException, match="column 'price' is declared as double, and the channel has no such"):
        channel.load("price double").collect()


def test_a_channel_that_is_not_there(channel):
    with pytest.raises(PySparkException, match="there is no channel"):
        channel.load()


def test_epochs_have_no_more_rows_than_they_may(channel, tmp_path):
    publish(channel, 0, 1000)
    query = Query(channel, tmp_path, maxRowsPerEpoch=300)
    assert query.run() == list(range(1000))
    assert query.epochs() == [300, 300, 300, 100]
    source = query.progress[0]["sources"][0]
    assert source["latestOffset"] != source["endOffset"]  # which is how far behind it is


def test_a_query_goes_on_where_it_was(channel, tmp_path):
    publish(channel, 0, 1000)
    query = Query(channel, tmp_path, group="readers")
    assert query.run() == list(range(1000))
    publish(channel, 1000, 1500)
    assert query.run() == list(range(1500))
    assert query.epochs() == [500]
    with channel.gateway.client() as client:
        # The last epoch of a run is acknowledged by none: Spark does that when the next one begins.
        assert client.group(channel.name, "readers", "earliest", 60) == {log_of(channel): 1000}


def test_an_epoch_that_was_not_committed_is_read_again(channel, tmp_path):
    seen = []

    def run():
        rows = channel.stream(maxRowsPerEpoch=600)
        writer = rows.writeStream.foreachBatch(
            lambda rows, batch: seen.append((batch, [row.id for row in rows.collect()]))
        )
        finish(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())

    publish(channel, 0, 1000)
    run()
    uncommit_last(tmp_path)
    publish(channel, 1000, 1100)
    run()
    ranges = [(0, 0, 600), (1, 600, 1000), (1, 600, 1000), (2, 1000, 1100)]
    assert seen == [(batch, list(range(first, stop))) for batch, first, stop in ranges]


def test_a_stream_from_now_on(channel, tmp_path):
    publish(channel, 0, 1000)
    query = Query(channel, tmp_path, startingOffsets="latest")
    assert query.run() == []
    publish(channel, 1000, 1500)
    assert query.run() == list(range(1000, 1500))


def test_a_query_that_runs_sees_what_comes(channel, tmp_path):
    publish(channel, 0, 10)
    query = channel.stream().writeStream.format("memory").queryName("seen").start()
    try:
        for first in (10, 20):
            publish(channel, first, first + 10)
            query.processAllAvailable()
        assert sorted(row.id for row in channel.spark.table("seen").collect()) == list(range(30))
    finally:
        query.stop()


def test_what_is_gone_is_an_error_with_its_range(channel, tmp_path):
    publish(channel, 0, 1000, max_bytes=20_000)
    query = Query(channel, tmp_path, group="late", leaseSeconds=0.001)
    assert query.run() == list(range(1000))
    publish(channel, 1000, 50_000)
    with channel.gateway.client() as client:
        ((log, (first, _)),) = client.offsets(channel.name).items()
    assert first > 1000
    with pytest.raises(PySparkException, match=f"events 1000 to {first - 1} of log {log} .* are gone") as gone:
        query.run()
    assert "failOnDataLoss" in str(gone.value)
    assert query.run(failOnDataLoss="false") == [*range(1000), *range(first, 50_000)]


def test_a_group_that_is_away_misses_nothing_while_its_lease_lasts(channel, tmp_path):
    publish(channel, 0, 1000, max_bytes=20_000)
    query = Query(channel, tmp_path, group="away")
    assert query.run() == list(range(1000))
    publish(channel, 1000, 50_000)
    assert query.run() == list(range(50_000))
