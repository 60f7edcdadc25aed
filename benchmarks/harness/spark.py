"""A Spark of two cores beside the Ray of the benchmarks, and the rows that all its experiments write and read."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from echannel_ray.benchmarks.baselines import discarding
from echannel_ray.benchmarks.baselines.servers import Missing
from echannel_ray.benchmarks.harness.samples import Plan

ROW_BYTES = 71  # as Arrow has the columns below
ROWS = 6_000_000
SHORT_ROWS = 300_000
WARM_UP_ROWS = 20_000


@contextmanager
def running_spark() -> Iterator[SparkSession]:
    """A session that knows our format and those of the baselines; its JVM stays, and serves the next one."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Missing("there is no java: Spark needs Java 17 (openjdk-17-jre-headless)")
    from echannel_ray.integrations.spark import EChannelSource  # which complains in words of its own without pyspark

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as folder:
        options: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",  # a stream that is stopped tells pages of it
        }
        session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
        try:
            for source in (EChannelSource, *discarding.SOURCES):
                session.dataSource.register(source)
            yield session
        finally:
            session.stop()


def rows_of(plan: Plan) -> int:
    """How many rows a write has."""
    return SHORT_ROWS if plan.short else ROWS


def features(spark: SparkSession, rows: int) -> DataFrame:
    """Ten columns of several kinds."""
    key = sql.col("id")
    columns: dict[str, Column] = {
        "user": (key % 100_003).cast("int"),
        "price": key * 0.25,
        "score": sql.sqrt(key.cast("double")),
        "weight": (key % 1000).cast("float"),
        "amount": (key % 1_000_000).cast("decimal(12,2)"),
        "at": sql.timestamp_micros(key * 1000 + 1_700_000_000_000_000),
        "is_new": key % 2 == 0,
        "name": sql.concat(sql.lit("u"), (key % 100_003).cast("string")),
        "label": (key % 10).cast("string"),
    }
    return spark.range(rows).select("id", *(column.alias(name) for name, column in columns.items()))


def keep_batch(batch: pa.RecordBatch, file: Path) -> str:
    """Write a batch where the format "from_memory" is told to look for it."""
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return str(file)


def seconds_of(action: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began
