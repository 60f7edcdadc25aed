"""Batches into channels."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, VariantType

from echannel_ray.integrations.spark.options import SinkOptions
from echannel_ray.integrations.spark.sink import BatchSink, Counts, Written
from echannel_ray.logs.entries import Chosen, WriteAttempt
from tests.integrations.faulty import aborting, failing_in_the_middle, waiting_to_be_seen

ROWS = 100_000  # in batches of 10,000
IDS = StructType().add("id", "long", nullable=False)


def test_each_row_is_there_once_by_partition(spark, channel):
    channel.save(spark.range(0, ROWS, numPartitions=3))
    assert channel.values() == list(range(ROWS))
    with channel.gateway.client() as client:
        info = client.channel(channel.name)
        assert info.is_on_disk
        assert [(field.name, str(field.type), field.nullable) for field in info.schema] == [("id", "int64", False)]
        assert client.staged_bytes(channel.name) == 0


def test_the_same_write_is_applied_once(spark, channel):
    for _ in range(2):
        channel.save(spark.range(100), writeId="monday")
    channel.save(spark.range(100, 150), writeId="tuesday")
    assert channel.values() == list(range(150))


def test_writes_without_a_name_are_different_ones(spark, channel):
    for _ in range(2):
        channel.save(spark.range(10))
    assert sorted(channel.values()) == sorted([*range(10)] * 2)


def test_nothing_is_a_write_too(spark, channel):
    channel.save(spark.range(10).where("id < 0"), writeId="nothing")
    channel.save(spark.range(10), writeId="nothing")
    assert channel.values() == []


def test_a_job_that_failed_is_run_again_under_its_name(spark, channel):
    step = failing_in_the_middle(channel.gateway.endpoint, channel.name, attempts=4)
    with pytest.raises(PySparkException, match="as the test wants it"):
        channel.save(spark.range(0, ROWS, numPartitions=2).mapInArrow(step, IDS), writeId="w")
    with channel.gateway.client() as client:
        assert client.staged_bytes(channel.name) == 0
        assert client.is_aborted(channel.name, "w")
    for _ in range(2):
        channel.save(spark.range(0, ROWS, numPartitions=2), writeId="w")
    assert channel.values() == list(range(ROWS))


def test_a_task_that_fails_is_tried_again(spark, channel):
    step = failing_in_the_middle(channel.gateway.endpoint, channel.name)
    channel.save(spark.range(0, ROWS, numPartitions=2).mapInArrow(step, IDS))
    assert channel.values() == list(range(ROWS))


@pytest.mark.parametrize("fault", ["stage:1:before", "stage:5:after", "commit:1:before", "commit:1:after"])
def test_a_gateway_that_is_killed(spark, channel, fault):
    channel.gateway.restart(fault)
    channel.gateway.restart_when_dead()
    channel.save(spark.range(0, ROWS, numPartitions=2), writeId="w")
    channel.gateway.restarted()
    assert channel.values() == list(range(ROWS))
    channel.gateway.restart()
    channel.save(spark.range(0, ROWS, numPartitions=2), writeId="w")
    assert channel.values() == list(range(ROWS))


def test_an_abort_after_the_commit_is_nothing(channel):
    base = {"channel": channel.name, "endpoint": channel.gateway.endpoint, "writeId": "w"}
    sink = BatchSink(IDS, SinkOptions.of(base))
    channel.save(channel.spark.range(10), writeId="w")
    sink.abort([Written("w", None, Counts(0, 0)), None])
    assert channel.values() == list(range(10))


def test_what_comes_after_the_commit_is_dropped(channel):
    channel.save(channel.spark.range(10), writeId="w")
    with channel.gateway.client() as client:
        schema = client.channel(channel.name).schema
        late = pa.RecordBatch.from_pydict({"id": [99]}, schema=schema)
        entries = client.stage(channel.name, WriteAttempt("w", 0, 12345), [late])
        assert client.commit(channel.name, "w", [Chosen(0, 12345, entries)]).repeated
        assert client.staged_bytes(channel.name) == 0
    assert channel.values() == list(range(10))


def test_rows_pass_through_at_once(spark, channel):
    step = waiting_to_be_seen(channel.gateway.endpoint, channel.name)
    channel.save(spark.range(0, ROWS, numPartitions=2).mapInArrow(step, IDS), delivery="at_least_once")
    assert sorted(channel.values()) == list(range(ROWS))


def test_rows_pass_through_a_gateway_that_is_killed(spark, channel):
    channel.save(spark.range(0))  # a channel that is retained on disk
    channel.gateway.restart("publish:3:after")
    channel.gateway.restart_when_dead()
    channel.save(spark.range(0, ROWS, numPartitions=2), delivery="at_least_once")
    channel.gateway.restarted()
    assert sorted(set(channel.values())) == list(range(ROWS))


def test_rows_of_a_write_that_is_aborted_fail_their_task(spark, channel):
    step = aborting(channel.gateway.endpoint, channel.name, "w")
    with pytest.raises(PySparkException, match=r"'w' .* is aborted, and its rows were dropped"):
        channel.save(spark.range(0, ROWS, numPartitions=2).mapInArrow(step, IDS), writeId="w")
    assert channel.values() == []


def test_a_channel_that_is_not_on_disk_is_refused(spark, channel):
    channel.save(spark.range(10), delivery="at_least_once")
    with pytest.raises(PySparkException, match=r"retain=ec\.Retention\(disk=True\).*at_least_once"):
        channel.save(spark.range(10))


def test_retention_of_a_channel_that_is_made(spark, channel):
    for first in range(0, 300_000, 50_000):
        channel.save(spark.range(first, first + 50_000, numPartitions=1), retainBytes=1_000_000)
    values = channel.values()
    assert 0 < len(values) < 300_000
    assert values[-1] == 299_999


def test_columns_that_can_not_travel_are_named_before_anything_runs(spark, channel):
    rows = spark.range(1).select("id", f.parse_json(f.lit("1")).alias("parsed"))
    assert isinstance(rows.schema["parsed"].dataType, VariantType)
    with pytest.raises(PySparkException, match="column 'parsed' is variant, which can't travel"):
        channel.save(rows)
    with channel.gateway.client() as client, pytest.raises(LookupError):
        client.channel(channel.name)


def test_a_channel_is_not_overwritten(spark, channel):
    with pytest.raises(PySparkException, match="append"):
        spark.range(1).write.format("echannel").mode("overwrite").options(
            channel=channel.name, endpoint=channel.gateway.endpoint
        ).save()
