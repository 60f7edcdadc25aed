"""Drivers of Spark in processes of their own: on a cluster, and to be killed.

`python -m tests.integrations.drivers JSON` runs the jobs below that it is told of, one after the other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.gateway.processes import ROOT
from tests.integrations.faulty import killing_its_executor, overtaken, stuck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCALLY = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",  # what fails here on purpose fills pages
}
ROWS = 100_000  # in batches of 10,000


def environment() -> dict[str, str]:
    """Spark's Python workers are like this one, and find these tests."""
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}


class Driver:
    """A process with a session of Spark on a cluster."""

    def __init__(self, master: str, **config: str) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integrations.drivers",
                json.dumps({**LOCALLY, "spark.master": master, **config}),
            ],
            cwd=ROOT,
            env={**os.environ, **environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        """Whether it can be told of another job."""
        return self._process.poll() is None

    def begin(self, job: str, **arguments: Any) -> None:
        """Have it do a job."""
        assert self._process.stdin is not None
        print(json.dumps([job, arguments]), file=self._process.stdin, flush=True)

    def run(self, job: str, **arguments: Any) -> int:
        """Have it do a job, to its end; how many tasks have failed."""
        self.begin(job, **arguments)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())  # nothing, if it has failed

    def kill(self) -> None:
        """`kill -9` to it and to its JVM. Executors end when their driver is gone."""
        if self.is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate(timeout=30)


def _save(rows: DataFrame, endpoint: str, channel: str) -> None:
    rows.write.format("echannel").mode("append").options(channel=channel, endpoint=endpoint).save()


def overtake(spark: SparkSession, endpoint: str, channel: str) -> None:
    """A task that is stuck, and that another attempt overtakes."""
    rows = spark.range(0, 2 * ROWS, numPartitions=4)
    _save(rows.mapInArrow(overtaken(endpoint, channel), "id long"), endpoint, channel)


def crash(spark: SparkSession, endpoint: str, channel: str, marker: str) -> None:
    """A task whose executor dies."""
    rows = spark.range(0, 2 * ROWS, numPartitions=2)
    _save(rows.mapInArrow(killing_its_executor(endpoint, channel, marker), "id long"), endpoint, channel)


def stream(spark: SparkSession, endpoint: str, channel: str, given: str, checkpoint: str, marker: str) -> None:
    """A query that gets stuck in the middle of an epoch."""
    rows = spark.readStream.schema("id long").parquet(given).mapInArrow(stuck(endpoint, channel, marker), "id long")
    sink = rows.writeStream.format("echannel").options(channel=channel, endpoint=endpoint)
    sink.option("checkpointLocation", checkpoint).start().awaitTermination()


def _main(config: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from echannel_ray.integrations.spark import EChannelSource

    spark = SparkSession.builder.config(map=config).getOrCreate()
    spark.dataSource.register(EChannelSource)
    jobs: dict[str, Callable[..., None]] = {"overtake": overtake, "crash": crash, "stream": stream}
    for line in sys.stdin:
        job, arguments = json.loads(line)
        spark.sparkContext.setJobGroup(arguments["channel"], job)
        jobs[job](spark, **arguments)
        print(_failed_tasks(spark, arguments["channel"]), flush=True)
    spark.stop()


def _failed_tasks(spark: SparkSession, group: str) -> int:
    """Of the jobs of a group; attempts that were not needed any more are none."""
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds]
    failed: list[int] = [tracker.getStageInfo(stage).numFailedTasks for stage in stages]
    return sum(failed)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
