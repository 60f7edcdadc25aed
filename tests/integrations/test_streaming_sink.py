"""Streams into channels: each epoch once."""

from __future__ import annotations

import threading

import pytest
from pyspark.errors import PySparkException

from tests.integrations.faulty import failing_in_the_middle, stuck, wait_for
from tests.integrations.io import finish, uncommit_last

FILE_ROWS = 50_000


class Input:
    """Files with ids, of which each epoch takes one."""

    def __init__(self, spark, directory):
        self._spark = spark
        self._directory = directory
        self.files = 0

    def add(self):
        first = self.files * FILE_ROWS
        rows = self._spark.range(first, first + FILE_ROWS, numPartitions=1)
        rows.write.mode("append").parquet(str(self._directory))
        self.files += 1

    def stream(self):
        stream = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        return stream.parquet(str(self._directory))

    @property
    def ids(self):
        return list(range(self.files * FILE_ROWS))


@pytest.fixture
def given(spark, tmp_path):
    made = Input(spark, tmp_path / "in")
    for _ in range(2):
        made.add()
    return made


def write(channel, rows, tmp_path, **options):
    sink = channel.sink(rows, tmp_path / "checkpoint", **options)
    query = sink.trigger(availableNow=True).start()
    finish(query)
    return query


@pytest.mark.parametrize("options", [{}, {"transfer": "files"}], ids=str)
def test_each_epoch_is_there_once(channel, given, tmp_path, options):
    query = write(channel, given.stream(), tmp_path, path=tmp_path / "files", **options)
    assert sorted(channel.values()) == given.ids
    assert [each["sink"]["numOutputRows"] for each in query.recentProgress] == [FILE_ROWS] * 2
    given.add()
    write(channel, given.stream(), tmp_path, path=tmp_path / "files", **options)
    assert sorted(channel.values()) == given.ids


@pytest.mark.parametrize("options", [{}, {"transfer": "files"}], ids=str)
def test_an_epoch_whose_commit_spark_has_not_written_down(channel, given, tmp_path, options):
    options = {**options, "path": tmp_path / "files"}
    write(channel, given.stream(), tmp_path, **options)
    uncommit_last(tmp_path / "checkpoint")
    given.add()
    write(channel, given.stream(), tmp_path, **options)
    assert sorted(channel.values()) == given.ids


def test_an_epoch_that_failed_is_done_by_the_next_run(channel, given, tmp_path):
    step = failing_in_the_middle(channel.gateway.endpoint, channel.name, attempts=4)
    with pytest.raises(PySparkException, match="as the test wants it"):
        write(channel, given.stream().mapInArrow(step, "id long"), tmp_path)
    write(channel, given.stream(), tmp_path)
    assert sorted(channel.values()) == given.ids


def test_a_query_that_is_stopped_in_the_middle_of_an_epoch(channel, given, tmp_path):
    step = stuck(channel.gateway.endpoint, channel.name, str(tmp_path / "staged"))
    sink = channel.sink(given.stream().mapInArrow(step, "id long"), tmp_path / "checkpoint")
    query = sink.start()
    wait_for((tmp_path / "staged").exists, "staging")
    query.stop()
    write(channel, given.stream(), tmp_path)
    assert sorted(channel.values()) == given.ids


def test_a_gateway_that_is_killed_in_the_middle_of_an_epoch(channel, given, tmp_path):
    step = stuck(channel.gateway.endpoint, channel.name, str(tmp_path / "staged"))
    query = channel.sink(given.stream().mapInArrow(step, "id long"), tmp_path / "checkpoint")
    query = query.trigger(availableNow=True).start()
    wait_for((tmp_path / "staged").exists, "staging")
    channel.gateway.end()
    (tmp_path / "staged.gone").touch()
    channel.gateway.start()
    finish(query)
    assert sorted(channel.values()) == given.ids


def test_a_gateway_that_is_killed_again_and_again(channel, given, tmp_path):
    for _ in range(4):
        given.add()
    ended = threading.Event()

    kills = []

    def kill():
        pause = 0.05
        while not ended.wait(pause):
            channel.gateway.restart()
            kills.append(pause)
            pause = (pause + 0.37) % 1.0  # at another moment of an epoch each time

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        write(channel, given.stream(), tmp_path)
    finally:
        ended.set()
        killer.join()
    assert len(kills) > 1
    assert sorted(channel.values()) == given.ids


def test_from_a_channel_into_another(channel, spark, tmp_path):
    channel.save(spark.range(1000))
    other = type(channel)(spark, channel.gateway, f"{channel.name}-copied")
    for stop in (1000, 1500):
        copied = channel.stream(maxRowsPerEpoch=300).selectExpr("id")
        finish(other.sink(copied, tmp_path / "checkpoint").trigger(availableNow=True).start())
        assert sorted(other.values()) == list(range(stop))
        channel.save(spark.range(stop, stop + 500))
