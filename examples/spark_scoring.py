"""Structured streaming, scored by Ray actors in mid-flight: Spark → channel → actors → channel → Spark.

    pip install "echannel-ray[spark]"       # and Java 17
    python examples/spark_scoring.py        # about a minute

A Spark query writes readings of sensors to a channel. The scoring actors want the warm ones only: their filter is
E-code that runs beside the gateway's concentrator, so that the others go no further. What they think of each reading
they publish to another channel, which keeps it, and from which a second Spark query reads and counts.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from spark_training import spark_session  # beside this file

import echannel_ray as ec
from echannel_ray.demo.machine import two_nodes

READINGS = "readings"
SCORES = "scores"
SCORERS = 2
WARM = 60.0


@dataclasses.dataclass
class Reading:
    """A temperature, as a sensor says."""

    sensor: int
    number: int
    temperature: float


@dataclasses.dataclass
class Score:
    """What an actor says of a reading."""

    sensor: int
    number: int
    score: float


class Scorer:
    """An actor, one of a group that shares the warm readings."""

    def start(self) -> None:
        """Consume, and publish what it thinks."""
        self.scores = ec.channel(SCORES, Score, retain=ec.Retention(disk=True)).producer()
        warm = ec.channel(READINGS, Reading).derive(f"temperature > {WARM}")
        self.subscription = warm.subscribe(self.score, group="scorers")

    def score(self, reading: Reading) -> None:
        """The handler."""
        self.scores.publish(Score(reading.sensor, reading.number, (reading.temperature - WARM) / 40))


def readings(spark: Any, rows_a_second: int) -> Any:
    """The stream that Spark makes: ten sensors, each with a temperature that goes up and down."""
    from pyspark.sql import functions as f

    source = spark.readStream.format("rate").option("rowsPerSecond", rows_a_second).load()
    return source.select(
        (f.col("value") % 10).cast("int").alias("sensor"),
        f.col("value").alias("number"),
        (f.lit(50) + 50 * f.sin(f.col("value") / 100)).alias("temperature"),
    )


def run(checkpoints: str, rows_a_second: int, epochs: int) -> list[Any]:
    """Both queries, for so many epochs; the counts by sensor."""
    import ray
    from pyspark.sql import functions as f

    endpoint = str(ec.connect().gateway())
    ec.channel(READINGS, Reading)
    scorers = [ray.remote(num_cpus=0)(Scorer).remote() for _ in range(SCORERS)]
    ray.get([scorer.start.remote() for scorer in scorers])
    spark = spark_session()
    try:
        into = readings(spark, rows_a_second).writeStream.format("echannel").option("channel", READINGS)
        # An ordinary channel: what its consumers have is with them, and nothing is kept.
        into = into.option("endpoint", endpoint).option("delivery", "at_least_once")
        writing = into.option("checkpointLocation", f"{checkpoints}/readings").start()

        scores = spark.readStream.format("echannel").option("channel", SCORES).option("endpoint", endpoint)
        counted = scores.option("group", "counting").load().groupBy("sensor").agg(
            f.count("*").alias("readings"), f.avg("score").alias("score"), f.max("number").alias("last")
        )  # fmt: skip
        counting = (
            counted.writeStream.format("memory")
            .queryName("counted")
            .outputMode("complete")
            .option("checkpointLocation", f"{checkpoints}/scores")
            .start()
        )
        seen = -1
        while seen < epochs and writing.isActive and counting.isActive:
            progress = counting.lastProgress
            if progress is not None and progress["batchId"] > seen:
                seen = progress["batchId"]
                print(f"epoch {seen}: {progress['numInputRows']:,} scores came back", flush=True)
            counting.awaitTermination(0.2)  # returns early with the error of a query that has failed
        writing.stop()
        counting.processAllAvailable()
        counting.stop()
        for each in ec.channel(READINGS, Reading).stats().derived.values():
            print(f"beside the gateway: {each.events_in:,} readings in, {each.events_out:,} warm ones out")
        return list(spark.sql("select * from counted order by sensor").collect())
    finally:
        spark.stop()


def main() -> None:
    """The command line."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-a-second", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    with two_nodes():
        with tempfile.TemporaryDirectory() as checkpoints:
            for row in run(checkpoints, arguments.rows_a_second, arguments.epochs):
                print(f"sensor {row.sensor}: {row.readings:,} warm readings, {row.score:.2f} on average")
        ec.shutdown()


if __name__ == "__main__":
    main()
