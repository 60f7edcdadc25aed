"""Drivers of Spark in processes of their own: on a cluster, or to be killed.

`python -m tests.integrations.drivers JOB JSON` runs one of the jobs below.
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
    """A process with one of the jobs."""

    def __init__(self, job: str, **arguments: Any) -> None:
        command = [sys.executable, "-m", "tests.integrations.drivers", job, json.dumps(arguments)]
        environ = {**os.environ, **environment()}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True)

    def wait(self, seconds: float) -> None:
        """Until its job is done."""
        assert self._process.wait(seconds) == 0

    def kill(self) -> None:
        """`kill -9` to it and to its JVM, which takes the executors along."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)


def _save(rows: DataFrame, endpoint: str, channel: str) -> None:
    rows.write.format("echannel").mode("append").options(channel=channel, endpoint=endpoint).save()


def overtake(spark: SparkSession, endpoint: str, channel: str) -> None:
    """A task that is stuck, and that another attempt overtakes."""
    rows = spark.range(0, 2 * ROWS, numPartitions=4)
    _save(rows.mapInArrow(overtaken(endpoint, channel), "id long"), endpoint, channel)


def crash(spark: SparkSession, endpoint: str, channel: str) -> None:
    """A task whose executor dies."""
    rows = spark.range(0, 2 * ROWS, numPartitions=2)
    _save(rows.mapInArrow(killing_its_executor(endpoint, channel), "id long"), endpoint, channel)


def stream(spark: SparkSession, endpoint: str, channel: str, given: str, checkpoint: str, marker: str) -> None:
    """A query that gets stuck in the middle of an epoch."""
    rows = spark.readStream.schema("id long").parquet(given).mapInArrow(stuck(endpoint, channel, marker), "id long")
    sink = rows.writeStream.format("echannel").options(channel=channel, endpoint=endpoint)
    sink.option("checkpointLocation", checkpoint).start().awaitTermination()


def _main(job: str, arguments: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from echannel_ray.integrations.spark import EChannelSource

    builder = SparkSession.builder.master(arguments.pop("master")).config(map={**LOCALLY, **arguments.pop("config")})
    spark = builder.getOrCreate()
    spark.dataSource.register(EChannelSource)
    jobs: dict[str, Callable[..., None]] = {"overtake": overtake, "crash": crash, "stream": stream}
    jobs[job](spark, **arguments)
    spark.stop()


if __name__ == "__main__":
    _main(sys.argv[1], json.loads(sys.argv[2]))
