"""A stream whose log is lost with its disk, or was never held: the driver's side of the source, without Spark."""

from __future__ import annotations

import shutil
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from echannel_ray.integrations.spark import source
from echannel_ray.integrations.spark.options import SourceOptions
from echannel_ray.integrations.spark.source import DataLoss, StreamingSource
from echannel_ray.logs.entries import Missing
from tests.integrations.gateways import LocalGateway

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
IDS = StructType().add("id", "long", nullable=False)
ALL = ReadAllAvailable()


class Stream:
    """A channel "ids", and readers of it as Spark makes them."""

    def __init__(self, directory):
        self._directory = directory
        directory.mkdir()
        self.gateway = LocalGateway(directory)

    def publish(self, first, stop, **retain):
        """Ids of this range, a thousand in each entry."""
        with self.gateway.client() as client:
            client.channel("ids", SCHEMA, {"disk": True, **retain})
            for start in range(first, stop, 1000):
                ids = pa.array(range(start, min(stop, start + 1000)))
                client.publish("ids", [pa.RecordBatch.from_arrays([ids], schema=SCHEMA)])

    def reader(self, **options):
        where = {"channel": "ids", "endpoint": self.gateway.endpoint}
        return StreamingSource(IDS, SourceOptions.of({**where, **options}))

    def first(self):
        """The offset of the first event that is retained."""
        with self.gateway.client() as client:
            ((first, _),) = client.offsets("ids").values()
        return first

    def lose_log(self):
        """The gateway comes back without its logs' files, and so with other logs."""
        self.gateway.end()
        for path in (self._directory / "data").glob("ids.log*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.gateway.start()


@pytest.fixture
def stream(tmp_path):
    made = Stream(tmp_path / "gateway")
    yield made
    made.gateway.end()


@pytest.fixture
def soon(monkeypatch):
    """A log that is away is lost soon."""
    monkeypatch.setattr(source, "_AWAY_SECONDS", 0.2)


def ids_of(reader, start, end):
    ranges = reader.partitions(start, end)
    return [each for part in ranges for batch in reader.read(part) for each in batch.column("id").to_pylist()]


def test_a_log_that_is_lost_is_an_error_that_names_it(stream, soon):
    stream.publish(0, 10)
    reader = stream.reader()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    (log,) = end["logs"]
    stream.lose_log()
    with pytest.raises(DataLoss, match=f"log {log} of channel 'ids' is gone, with its events from 10 on.*failOn"):
        reader.latestOffset(end, ALL)


def test_a_stream_goes_on_without_a_log_that_is_lost(stream, soon, capsys):
    stream.publish(0, 10)
    reader = stream.reader(failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    (lost,) = start["logs"]
    stream.lose_log()
    stream.publish(10, 30)
    end = reader.latestOffset(start, ALL)
    assert lost not in end["logs"]
    assert f"log {lost} of channel 'ids' is gone" in capsys.readouterr().err
    assert ids_of(reader, start, end) == list(range(10, 30))
    reader.commit(start)  # which names the log that is lost
    reader.commit(end)
    assert reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize("fails", [True, False])
def test_an_epoch_that_is_replayed_without_its_log(stream, fails):
    stream.publish(0, 10)
    reader = stream.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    stream.lose_log()
    successor = stream.reader(failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLoss, match="is gone, with its events from 0 on"):
            ids_of(successor, start, end)
    else:
        assert ids_of(successor, start, end) == []


def test_a_log_whose_keeper_comes_back_is_waited_for(stream, monkeypatch):
    stream.publish(0, 10)
    reader = stream.reader()
    start = reader.initialOffset()
    (log,) = start["logs"]
    host = Mock(side_effect=[{}, Missing(log, 0, None), {}, reader._bounds()])
    monkeypatch.setattr(reader, "_bounds", host)
    assert list(reader.latestOffset(start, ALL)["logs"].values()) == [10]


def test_what_is_asked_and_not_used_holds_nothing(stream):
    stream.publish(0, 1000, max_bytes=20_000)
    for _ in range(2):
        unused = stream.reader().initialOffset()
    stream.publish(1000, 50_000)
    assert stream.first() > 1000
    reader = stream.reader()
    with pytest.raises(DataLoss, match=f"events 0 to {stream.first() - 1} of log"):
        ids_of(reader, unused, reader.latestOffset(unused, ALL))


def test_a_stream_that_has_begun_is_held(stream):
    stream.publish(0, 1000, max_bytes=20_000)
    reader = stream.reader()
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    stream.publish(1000, 50_000)
    assert stream.first() == 0
    assert ids_of(reader, start, reader.latestOffset(start, ALL)) == list(range(50_000))
