"""How long after a stage of Spark began has a Ray actor its first batch, against Parquet that is written and then read?

Pass-through (`delivery=at_least_once`), to a channel that retains nothing. A sink that discards its batches tells when
the stage's first one is there: what Spark takes to plan, to start Python and to make it.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from echannel_ray.benchmarks.baselines.spark_today import SparkToday
from echannel_ray.benchmarks.harness.alone import difference
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, interleave
from echannel_ray.benchmarks.harness.spark import WARM_UP_ROWS, features, rows_of, running_spark

CHANNEL = "features"
OURS, PARQUET, DISCARDED = "the first batch in an actor", "Parquet, then read by an actor", "a sink that discards"

GOALS = (
    at_most(0.2, "the first batch of a stage in an actor, against Parquet", OURS, PARQUET),
    at_most(0.5, "the first batch in an actor, behind the stage's first", "behind the stage's first batch"),
)


class FirstBatches:
    """From the start of a write until its first batch is somewhere, in seconds."""

    def __init__(self, spark: SparkSession, handoff: Handoff, today: SparkToday, folder: str, rows: int) -> None:
        self._frame = features(spark, rows)
        self._handoff, self._today, self._report, self._rows = handoff, today, Path(folder, "seen"), rows

    def save(self) -> None:
        """Write to the channel, which is made where there is none."""
        writer = self._frame.write.format("echannel").mode("append").option("delivery", "at_least_once")
        writer.option("channel", CHANNEL).option("endpoint", self._handoff.endpoint).save()

    def ours(self) -> float:
        """In an actor, by the channel."""
        began = time.monotonic()
        self.save()
        first_at, _ = self._handoff.await_rows(self._rows)
        return first_at - began

    def parquet(self) -> float:
        """In an actor, by files."""
        began = time.monotonic()
        return self._today.parquet(self._frame, self._rows) - began

    def discarded(self) -> float:
        """In a task of Spark's."""
        began = time.monotonic()
        self._frame.write.format("discarding").mode("append").option("report", str(self._report)).save()
        return float(json.loads(self._report.read_text())["first_at"]) - began


def run(plan: Plan) -> list[Row]:
    """All in turns."""
    rows = rows_of(plan)
    with (
        running_spark() as spark,
        Handoff("bench-spark-first-batch") as handoff,
        SparkToday() as today,
        tempfile.TemporaryDirectory(prefix="handoff-") as folder,
    ):
        warm_up = FirstBatches(spark, handoff, today, folder, WARM_UP_ROWS)
        warm_up.save()  # which makes the channel
        handoff.take(CHANNEL)
        for write in (warm_up.ours, warm_up.parquet, warm_up.discarded):
            write()
        first = FirstBatches(spark, handoff, today, folder, rows)
        variants = {OURS: first.ours, PARQUET: first.parquet, DISCARDED: first.discarded}
        samples = interleave(plan, variants, "s", higher_is_better=False)
    behind = difference(samples[OURS], samples[DISCARDED])
    note = f"of {rows:,} rows"
    return [
        Row(OURS, "free", samples[OURS], PARQUET, samples[PARQUET], note=note),
        Row("behind the stage's first batch", "free", behind, note=note),
    ]
