"""Values of every type: from Spark into a channel, and from there to Spark and to whoever takes columns."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from tests.integrations.values import ROWS, SCHEMA


@pytest.mark.parametrize("options", [{}, {"delivery": "at_least_once"}, {"transfer": "files"}], ids=str)
def test_values_come_back_as_they_were(spark, channel, options, tmp_path):
    sent = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    channel.save(sent, path=tmp_path, **options)
    back = channel.load()
    assert back.schema == SCHEMA
    for expected, got in zip(sent.collect(), back.collect(), strict=True):
        for name in SCHEMA.names:
            assert repr(got[name]) == repr(expected[name]), name  # NaN is itself, and -0.0 is not 0.0


def test_what_travels_is_in_utc(spark, channel):
    at = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone.utc)
    channel.save(spark.createDataFrame([(at, at.replace(tzinfo=None))], "zoned timestamp, wall timestamp_ntz"))
    with channel.gateway.client() as client:
        ((log, (_, stop)),) = client.offsets(channel.name).items()
        (batch,) = client.read(channel.name, log, 0, stop)
    assert batch.schema.field("zoned").type == pa.timestamp("us", "UTC")
    assert batch.to_pylist() == [{"zoned": at, "wall": at.replace(tzinfo=None)}]


def test_types_that_spark_has_not(spark, channel):
    berlin = pa.timestamp("ns", "Europe/Berlin")
    schema = pa.schema([("small", pa.uint8()), ("large", pa.uint64()), ("at", berlin), ("half", pa.float16())])
    at = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone.utc)
    rows = [{"small": 255, "large": 2**64 - 1, "at": at, "half": 0.5}]
    with channel.gateway.client() as client:
        client.channel(channel.name, schema, {"disk": True})
        client.publish(channel.name, [pa.RecordBatch.from_pylist(rows, schema)])
    read = channel.load().select("small", f.col("large").cast("string"), f.unix_seconds("at"), "half")
    assert [tuple(row) for row in read.collect()] == [(255, str(2**64 - 1), int(at.timestamp()), 0.5)]
