"""The parts of the Spark benchmarks that need neither Spark's JVM nor Ray: what their baselines count and yield."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from echannel_ray.benchmarks.baselines.discarding import Discarding, FromMemory
from echannel_ray.benchmarks.baselines.servers import Missing
from echannel_ray.benchmarks.baselines.spark_today import ROWS_OF_A_FRAME, RowTaker, sender
from echannel_ray.benchmarks.experiments.spark_staging import Peak
from echannel_ray.benchmarks.harness.spark import keep_batch, running_spark

BATCH = pa.record_batch({"number": pa.array([1, 2, 3])})
SCHEMA = from_arrow_schema(BATCH.schema)
ARRIVAL_SECONDS = 30


def test_a_sink_that_discards_tells_what_all_tasks_saw(tmp_path):
    report = tmp_path / "seen"
    source = Discarding({"report": str(report)})
    writer = source.writer(SCHEMA, overwrite=False)
    first, second, empty = (writer.write(iter(batches)) for batches in ([BATCH, BATCH], [BATCH], []))
    writer.commit([second, empty, first, None])
    seen = json.loads(report.read_text())
    assert (seen["rows"], seen["data_bytes"]) == (9, 3 * BATCH.nbytes)
    assert seen["first_at"] == first.first_at < second.first_at


def test_an_epoch_is_discarded_without_a_report():
    writer = Discarding({}).streamWriter(SCHEMA, overwrite=False)
    seen = writer.write(iter([BATCH]))
    writer.commit([seen], 0)
    assert seen.rows == 3


@pytest.mark.parametrize(("times", "partitions"), [(7, 3), (2, 3), (6, 3)])
def test_batches_from_memory_are_shared_out_evenly(tmp_path, times, partitions):
    file = keep_batch(BATCH, tmp_path / "batch.arrow")
    source = FromMemory({"file": file, "times": str(times), "partitions": str(partitions)})
    assert source.schema().names == ["number"]
    reader = source.reader(source.schema())
    read = [list(reader.read(each)) for each in reader.partitions()]
    assert len(read) == partitions
    assert max(map(len, read)) - min(map(len, read)) <= 1
    assert [batch for batches in read for batch in batches] == [BATCH] * times


def test_a_stream_from_memory_has_a_batch_in_each_epoch(tmp_path):
    reader = FromMemory({"file": keep_batch(BATCH, tmp_path / "batch.arrow")}).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    (partition,) = reader.partitions(start, end)
    assert list(reader.read(partition)) == [BATCH]
    assert reader.latestOffset(end, None) != end


def test_pickled_rows_of_several_partitions_arrive():
    taker = RowTaker()
    rows = [(number, str(number)) for number in range(2 * ROWS_OF_A_FRAME + 1)]
    send = sender(tuple(taker.address()))
    partitions = [threading.Thread(target=send, args=(iter(part),)) for part in (rows, rows, [])]
    for each in partitions:
        each.start()
    taker.await_rows(2 * len(rows))
    for each in partitions:
        each.join(ARRIVAL_SECONDS)


def test_rows_that_do_not_come_are_an_error(monkeypatch):
    monkeypatch.setattr("echannel_ray.benchmarks.baselines.spark_today.ARRIVAL_SECONDS", 0.01)
    with pytest.raises(TimeoutError, match="only 0 of 1 rows came"):
        RowTaker().await_rows(1)


def test_the_peak_of_memory_is_that_within_the_block(monkeypatch):
    looked = threading.Event()
    sizes = iter([100, 300, 200])

    def resident_bytes(pids: list[int]) -> int:
        size = next(sizes, None)
        if size is None:
            looked.set()
        return size or 0

    monkeypatch.setattr("echannel_ray.benchmarks.experiments.spark_staging.resident_bytes", resident_bytes)
    with Peak([1]) as peak:
        assert looked.wait(ARRIVAL_SECONDS)
    assert (peak.before_bytes, peak.peak_bytes) == (100, 300)


def test_without_java_it_is_said_what_is_missing(monkeypatch, no_ray):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Missing, match="Java 17"), running_spark():
        pass
