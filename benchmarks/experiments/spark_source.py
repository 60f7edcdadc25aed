"""How many rows a second does Spark read of what a channel retains, against a source that has the batches in memory?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import echannel_ray as ec
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave
from echannel_ray.benchmarks.harness.spark import features, keep_batch, rows_of, running_spark, seconds_of
from echannel_ray.gateway.client import GatewayClient

CHANNEL = "features"
PARTITIONS = 12  # what six million rows have anyway
OURS, FROM_MEMORY = "read what is retained", "a source that yields the same batches"
GOALS = (at_least(0.8, "Spark's source, against the same batches from memory", OURS, FROM_MEMORY),)


def run(plan: Plan) -> list[Row]:
    """Both in turns, into Spark's own sink that drops rows."""
    rows = rows_of(plan)
    with (
        running_spark() as spark,
        Handoff("bench-spark-source") as handoff,
        tempfile.TemporaryDirectory(prefix="batches-") as folder,
    ):
        handoff.open(CHANNEL, ec.Retention(disk=True))
        where = {"channel": CHANNEL, "endpoint": handoff.endpoint}
        features(spark, rows).write.format("echannel").mode("append").options(**where).save()
        retained = spark.read.format("echannel").options(**where, rowsPerPartition=rows // PARTITIONS).load()
        repeated = _repeated(spark, handoff.endpoint, Path(folder, "batch.arrow"), rows)
        assert retained.count() == rows
        assert repeated.count() >= rows
        variants = {OURS: _rate(retained, rows), FROM_MEMORY: _rate(repeated, rows)}
        samples = interleave(plan, variants, "rows/s", higher_is_better=True)
        note = f"{rows:,} rows in {PARTITIONS} partitions"
        return [Row(OURS, "free", samples[OURS], FROM_MEMORY, samples[FROM_MEMORY], note=note)]


def _rate(frame: DataFrame, rows: int) -> Measure:
    def drop() -> None:
        frame.write.format("noop").mode("overwrite").save()

    return lambda: rows / seconds_of(drop)


def _repeated(spark: SparkSession, endpoint: str, file: Path, rows: int) -> DataFrame:
    """As many rows as the channel has, in batches like its first one."""
    with GatewayClient(endpoint) as client:
        ((log, (first, behind)),) = client.offsets(CHANNEL).items()
        batch = next(client.read(CHANNEL, log, first, behind))
    keep_batch(batch, file)
    times = -(-rows // batch.num_rows)
    return spark.read.format("from_memory").options(file=str(file), times=times, partitions=PARTITIONS).load()
