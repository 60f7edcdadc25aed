"""Rows that go by files: what is on the channel, and which files are left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from echannel_ray.integrations.spark import files
from echannel_ray.logs.entries import WriteAttempt
from tests.clusters import wait_until

IDS = StructType().add("id", "long", nullable=False)
ROWS = 100_000


@pytest.fixture
def save(channel, tmp_path):
    return lambda rows, **options: channel.save(rows, transfer="files", path=tmp_path, **options)


def files_in(directory):
    return sorted(directory.rglob("*.parquet"))


def failing(attempts):
    """The first attempts at partition 0 fail when the sink has taken most rows."""

    def step(batches):
        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 0 and context.attemptNumber() < attempts:
            raise RuntimeError("as the test wants it")

    return step


def test_the_rows_are_in_files(spark, channel, save, tmp_path):
    save(spark.range(0, ROWS, numPartitions=3))
    assert channel.values() == list(range(ROWS))
    assert sum(pq.read_metadata(path).num_rows for path in files_in(tmp_path)) == ROWS
    assert channel.load().count() == ROWS


def test_files_of_attempts_that_failed_are_deleted(spark, channel, save, tmp_path):
    save(spark.range(0, ROWS, numPartitions=2).mapInArrow(failing(1), IDS))
    assert channel.values() == list(range(ROWS))
    assert len(files_in(tmp_path)) == 2


def test_files_of_a_job_that_failed_are_deleted(spark, channel, save, tmp_path):
    with pytest.raises(PySparkException, match="as the test wants it"):
        save(spark.range(0, ROWS, numPartitions=2).mapInArrow(failing(4), IDS), writeId="w")
    # An attempt whose rows have come when its job has failed already deletes its file itself.
    wait_until(lambda: [*tmp_path.iterdir()] == [])
    save(spark.range(ROWS), writeId="w")
    assert channel.values() == list(range(ROWS))


def test_a_write_that_is_repeated_leaves_the_files_of_the_first(spark, channel, save, tmp_path):
    save(spark.range(0, ROWS, numPartitions=2), writeId="w")
    before = files_in(tmp_path)
    save(spark.range(0, ROWS, numPartitions=3), writeId="w")
    assert files_in(tmp_path) == before
    assert channel.values() == list(range(ROWS))


def test_a_file_that_is_gone_is_a_range_that_is_missing(spark, channel, save, tmp_path):
    for first in (0, 100, 200):
        before = files_in(tmp_path)
        save(spark.range(first, first + 100, numPartitions=1))
        if first == 100:
            (middle,) = {*files_in(tmp_path)} - {*before}
    middle.unlink()
    with pytest.raises(PySparkException, match=r"events 100 to 199 of log .* are gone"):
        channel.load().collect()
    assert [row.id for row in channel.load(failOnDataLoss="false").collect()] == [*range(100), *range(200, 300)]


@pytest.fixture
def batch():
    return pa.RecordBatch.from_arrays(
        [pa.array(range(10))], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])
    )


def test_what_killed_attempts_have_left_goes_with_the_commit(channel, batch, tmp_path):
    with channel.gateway.client() as client:
        client.channel(channel.name, batch.schema, {"disk": True})
        killed, won = (
            files.staged(client, channel.name, WriteAttempt("w", 0, attempt), [batch], str(tmp_path), batch.schema)
            for attempt in range(2)
        )
    assert files_in(tmp_path) == sorted(map(Path, [*killed, *won]))
    files.remove_others(str(tmp_path), "w", won)
    assert files_in(tmp_path) == [*map(Path, won)]


def test_an_attempt_that_comes_too_late_deletes_its_files(channel, batch, tmp_path):
    with channel.gateway.client() as client:
        client.channel(channel.name, batch.schema, {"disk": True})
        client.commit(channel.name, "w", [])
        files.staged(client, channel.name, WriteAttempt("w", 0, 0), [batch], str(tmp_path), batch.schema)
    assert [*tmp_path.iterdir()] == []


def test_large_partitions_are_several_files(channel, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_FILE_BYTES", 13 * batch.nbytes)
    with channel.gateway.client() as client:
        client.channel(channel.name, batch.schema, {"disk": True})
        paths = files.staged(client, channel.name, WriteAttempt("w", 0, 0), [batch] * 25, str(tmp_path), batch.schema)
    assert [pq.read_metadata(path).num_rows for path in paths] == [130, 120]


def test_names_of_writes_lead_nowhere_else(tmp_path):
    directory = tmp_path / "inside"
    directory.mkdir()
    outside = tmp_path / "kept.parquet"
    outside.touch()
    files.remove_others(str(directory), "..", set())
    assert outside.exists()
