"""How many rows a second does Spark write to a channel, against a sink that discards them and the ways that there were?

Batches of Arrow with exactly once, until the commit is done; and until an actor has all rows, which is what the ways
that there were have to be compared with.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import echannel_ray as ec
from echannel_ray.benchmarks.baselines.spark_today import SparkToday
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row, at_least
from echannel_ray.benchmarks.harness.samples import Measure, Plan, best_of, interleave
from echannel_ray.benchmarks.harness.spark import WARM_UP_ROWS, features, rows_of, running_spark, seconds_of

SLOW_ROWS = 200_000  # of what takes rows one by one: it would take minutes, and Python gigabytes
COLLECTED_ROWS = 1_000_000  # of what the driver has to hold
ALONE, TAKEN, FILES = "staged and committed", "until an actor has them", "files"
DISCARDED, PARQUET = "a sink that discards", "Parquet, then read by an actor"
PICKLED, COLLECTED = "foreachPartition, pickle, socket", "collect, ray.put"
WHOLE = "driver: "
GOALS = (
    at_least(0.9, "Spark's sink, against one that discards", ALONE, DISCARDED),
    at_least(4, "Spark until an actor has the rows, against pickle by `foreachPartition`", TAKEN, PICKLED),
    at_least(10, "Spark until an actor has the rows, against `collect` and `ray.put`", TAKEN, COLLECTED),
    at_least(1, "Spark by `transfer=files`, against Parquet", f"{TAKEN}, by files", PARQUET),
)


class Writes:
    """All ways to write rows."""

    def __init__(self, spark: SparkSession, handoff: Handoff, today: SparkToday, folder: str) -> None:
        self._spark, self._handoff, self._today, self._folder = spark, handoff, today, folder
        self._write_numbers = itertools.count()

    def discard(self, frame: DataFrame, rows: int) -> None:
        """Into a sink that only counts."""
        report = f"{self._folder}/seen"
        frame.write.format("discarding").mode("append").option("report", report).save()
        assert json.loads(Path(report).read_text())["rows"] == rows

    def alone(self, frame: DataFrame, rows: int) -> None:
        """Until it is committed; nobody consumes."""
        self._save(frame, "alone")

    def taken(self, frame: DataFrame, rows: int) -> None:
        """Until an actor has them."""
        self._save(frame, "taken")
        self._handoff.await_rows(rows)

    def files(self, frame: DataFrame, rows: int) -> None:
        """The same, through files."""
        self._save(frame, "files", transfer="files", path=f"{self._folder}/files")
        self._handoff.await_rows(rows)

    def _save(self, frame: DataFrame, channel: str, **options: str) -> None:
        writer = frame.write.format("echannel").mode("append").options(**options)
        writer = writer.option("channel", channel).option("endpoint", self._handoff.endpoint)
        writer.option("writeId", f"write-{next(self._write_numbers)}").save()

    def variants(self, plan: Plan) -> dict[str, Measure]:
        """All of them as rates."""
        every, slow = rows_of(plan), SLOW_ROWS // (4 if plan.short else 1)
        held = min(every, COLLECTED_ROWS)
        ways: dict[str, tuple[Callable[[DataFrame, int], object], int]] = {
            ALONE: (self.alone, every),
            TAKEN: (self.taken, every),
            FILES: (self.files, every),
            DISCARDED: (self.discard, every),
            PARQUET: (self._today.parquet, every),
            PICKLED: (self._today.pickle_rows, slow),
            COLLECTED: (self._today.collect, slow),
            f"{WHOLE}toPandas, ray.put": (self._today.to_pandas, held),
            f"{WHOLE}toArrow, ray.put": (self._today.to_arrow, held),
        }
        for write, _ in ways.values():
            self._seconds(write, WARM_UP_ROWS)
        return {name: self._rate(write, rows) for name, (write, rows) in ways.items()}

    def _seconds(self, write: Callable[[DataFrame, int], object], rows: int) -> float:
        frame = features(self._spark, rows)
        return seconds_of(lambda: write(frame, rows))

    def _rate(self, write: Callable[[DataFrame, int], object], rows: int) -> Measure:
        return lambda: rows / self._seconds(write, rows)

    @property
    def row_bytes(self) -> float:
        """What a row takes as Arrow, as the sink that discards has seen it."""
        seen = json.loads(Path(self._folder, "seen").read_text())
        return float(seen["data_bytes"]) / float(seen["rows"])


def run(plan: Plan) -> list[Row]:
    """All in turns. What holds all rows at a time, or takes them one by one, has fewer."""
    with (
        running_spark() as spark,
        Handoff("bench-spark-sink") as handoff,
        SparkToday() as today,
        tempfile.TemporaryDirectory(prefix="handoff-") as folder,
    ):
        for name in ("alone", "taken", "files"):
            handoff.open(name, ec.Retention(disk=True))
        handoff.take("taken")
        handoff.take("files")
        writes = Writes(spark, handoff, today, folder)
        samples = interleave(plan, writes.variants(plan), "rows/s", higher_is_better=True)
        whole, whole_samples = best_of(samples, WHOLE)
        note = f"{rows_of(plan):,} rows of {writes.row_bytes:.0f} bytes, exactly once"
        return [
            Row(ALONE, "free", samples[ALONE], DISCARDED, samples[DISCARDED], note=note),
            Row(TAKEN, "free", samples[TAKEN], DISCARDED, samples[DISCARDED], note=note),
            Row(TAKEN, "free", samples[TAKEN], PICKLED, samples[PICKLED], note=note),
            Row(TAKEN, "free", samples[TAKEN], COLLECTED, samples[COLLECTED], note=note),
            Row(TAKEN, "free", samples[TAKEN], whole, whole_samples, note="the driver holds all rows"),
            Row(f"{TAKEN}, by files", "free", samples[FILES], PARQUET, samples[PARQUET], note=note),
        ]
