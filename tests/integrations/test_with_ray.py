"""Spark and Ray together: rows go from one to the other and back, value by value."""

from __future__ import annotations

import pyarrow as pa
import pytest

import echannel_ray as ec
from tests.integrations.io import Channel, finish
from tests.integrations.values import ROWS, SCHEMA


class ClusterGateway:
    """A gateway of this process's session."""

    def __init__(self, session):
        self.endpoint = str(session.gateway())


@pytest.fixture(scope="module")
def session(spark, two_nodes):  # Spark first: forking its JVM takes a process with few threads
    with ec.connect() as session:
        yield session


@pytest.fixture
def through(spark, session, request):
    return lambda name: Channel(spark, ClusterGateway(session), f"{request.node.name}-{name}")


def test_values_come_back_from_ray_as_they_were(spark, through, tmp_path):
    sent = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    outgoing, returning = through("out"), through("back")
    outgoing.save(sent)
    subscription = ec.channel(outgoing.name).subscribe(batches="arrow", start="earliest")
    batches, rows = [], 0
    while rows < len(ROWS):
        batches.append(subscription.get(30))
        rows += batches[-1].num_rows
    subscription.close()
    back = ec.channel(returning.name, batches[0].schema, retain=ec.Retention(disk=True))
    with back.producer() as producer:
        for batch in batches:
            assert isinstance(batch, pa.RecordBatch)
            producer.publish_many(batch)
    got = returning.load()
    assert got.schema == SCHEMA
    for expected, row in zip(sent.collect(), got.collect(), strict=True):
        for name in SCHEMA.names:
            assert repr(row[name]) == repr(expected[name]), name


def test_events_of_actors_are_a_stream(spark, through, tmp_path):
    scores = through("scores")
    record = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with ec.channel(scores.name, record, retain=ec.Retention(disk=True)).producer() as producer:
        for first in (0, 100):
            producer.publish_many([{"id": each} for each in range(first, first + 50)])
            ids = pa.array(range(first + 50, first + 100))
            producer.publish_many(pa.RecordBatch.from_arrays([ids], schema=record))
            producer.drain(30)
            seen = scores.stream(group="spark", maxRowsPerEpoch=60).writeStream.format("parquet")
            seen = seen.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
            finish(seen.trigger(availableNow=True).start())
            read = spark.read.parquet(str(tmp_path / "out"))
            assert sorted(row.id for row in read.collect()) == list(range(first + 100))


def test_the_same_write_is_applied_once(spark, through):
    ids = through("ids")
    for _ in range(2):
        ids.save(spark.range(0, 100_000, numPartitions=2), writeId="w")
    subscription = ec.channel(ids.name).subscribe(batches="arrow", start="earliest")
    ids.save(spark.range(100_000, 100_001), writeId="last")
    got: list[int] = []
    while not got or got[-1] != 100_000:
        got += subscription.get(30).column("id").to_pylist()
    subscription.close()
    assert got == list(range(100_001))
