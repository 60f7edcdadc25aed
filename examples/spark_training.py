"""From Spark's feature engineering into models that train on Ray while the Spark stage still runs.

    pip install "echannel-ray[spark]" scikit-learn      # and Java 17
    python examples/spark_training.py                   # half a minute; --rows makes it longer

Spark derives features from raw trips and writes them to a channel. Two actors share what comes (they are a group), each
trains a classifier batch by batch (`partial_fit`), and reports how it does on trips that it has not seen. In the end
the models become one: their mean.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import echannel_ray as ec
from echannel_ray.demo.machine import two_nodes

CHANNEL = "features"
FEATURES = ("distance", "hour_sine", "hour_cosine", "is_weekend", "speed")
LABEL = "is_late"
TRAINERS = 2
TIMEOUT_SECONDS = 120


def features_of_trips(spark: Any, rows: int, partitions: int) -> Any:
    """The Spark side: raw trips, made here, and what a model needs of them."""
    from pyspark.sql import functions as f

    raw = spark.range(0, rows, numPartitions=partitions).select(
        (f.rand(1) * 30).alias("distance"),
        (f.rand(2) * 24).alias("hour"),
        (f.rand(3) * 7).cast("int").alias("day"),
        (10 + f.rand(4) * 60).alias("speed"),
        f.randn(5).alias("luck"),
    )
    angle = f.col("hour") / 24 * (2 * np.pi)
    minutes = f.col("distance") / f.col("speed") * 60
    rush = f.exp(-f.pow((f.col("hour") - 17) / 2, 2))
    return raw.select(
        (f.col("distance") / 30).alias("distance"),
        f.sin(angle).alias("hour_sine"),
        f.cos(angle).alias("hour_cosine"),
        (f.col("day") >= 5).cast("double").alias("is_weekend"),
        (f.col("speed") / 70).alias("speed"),
        (minutes + 15 * rush + 3 * f.col("luck") > 25).cast("int").alias("is_late"),
    )


class Trainer:
    """An actor: trains on its share of the rows, as they come."""

    def __init__(self) -> None:
        from sklearn.linear_model import SGDClassifier

        self.model = SGDClassifier(loss="log_loss", random_state=0)
        self.rows = 0
        self.accuracy = 0.0  # on the rows that came last, before they were learned

    def start(self) -> None:
        """Join the group."""
        channel = ec.channel(CHANNEL, retain=ec.Retention(disk=True))
        self.subscription = channel.subscribe(self.learn, batches="arrow", group="trainers", start="earliest")

    def learn(self, batch: Any) -> None:
        """The handler: a record batch at a time."""
        inputs = np.column_stack([batch.column(name).to_numpy() for name in FEATURES])
        labels = batch.column(LABEL).to_numpy()
        if self.rows:
            self.accuracy += 0.05 * (self.model.score(inputs, labels) - self.accuracy)
        self.model.partial_fit(inputs, labels, classes=(0, 1))
        self.rows += batch.num_rows

    def progress(self) -> tuple[int, float]:
        """How many rows it has learned from, and how well it did lately."""
        return self.rows, self.accuracy

    def weights(self) -> tuple[np.ndarray, np.ndarray] | None:
        """What it has learned. Nothing, if the other one was always sooner: whoever is free takes what comes next."""
        return (self.model.coef_, self.model.intercept_) if self.rows else None


def spark_session() -> Any:
    """A Spark on this machine, which knows channels."""
    from pyspark.sql import SparkSession

    from echannel_ray.integrations.spark import EChannelSource

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need this environment too
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .appName("features")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(EChannelSource)
    return spark


def train(rows: int, partitions: int = 16) -> float:
    """Run it all; how often the mean of the models is right."""
    import ray

    endpoint = str(ec.connect().gateway())
    trainers = [ray.remote(num_cpus=0)(Trainer).remote() for _ in range(TRAINERS)]
    ray.get([trainer.start.remote() for trainer in trainers])
    spark = spark_session()
    try:
        features = features_of_trips(spark, rows, partitions)
        write = features.write.format("echannel").mode("append").option("channel", CHANNEL)
        with reporting(trainers):
            # At least once: a batch is on its way to the trainers as soon as Spark has it. (`exactly_once`, the
            # default, hands over what a whole job has written, when it is committed.)
            write.option("endpoint", endpoint).option("delivery", "at_least_once").save()
        print(f"{report(trainers, 'Spark is done'):,} of {rows:,} rows had been learned from when Spark was done")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while report(trainers, "Spark is done") < rows:
            if time.monotonic() > deadline:
                raise TimeoutError(f"rows are missing: {ec.channel(CHANNEL).stats()}")
            time.sleep(0.5)
        learned = ray.get([trainer.weights.remote() for trainer in trainers])
        return accuracy(spark, [each for each in learned if each is not None])
    finally:
        spark.stop()


@contextlib.contextmanager
def reporting(trainers: list[Any]) -> Iterator[None]:
    """Print every second how far the trainers are."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(1.0):
            report(trainers, "Spark runs")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def report(trainers: list[Any], what: str) -> int:
    """Print how far the trainers are; all their rows."""
    import ray

    progress = ray.get([trainer.progress.remote() for trainer in trainers])
    shares = ", ".join(f"{rows:>9,} rows {accuracy:5.1%}" for rows, accuracy in progress)
    print(f"{what:>13}: {shares}", flush=True)
    return sum(rows for rows, _ in progress)


def accuracy(spark: Any, weights: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Of the mean of the models, on other trips."""
    fresh = features_of_trips(spark, 20_000, 1).toPandas()
    coefficients = np.mean([each for each, _ in weights], axis=0)
    intercept = np.mean([each for _, each in weights], axis=0)
    late = fresh[list(FEATURES)].to_numpy() @ coefficients.T + intercept > 0
    return float(np.mean(late.ravel() == (fresh[LABEL].to_numpy() == 1)))


def what_is_missing() -> str:
    """What has to be installed first; nothing, if all is there."""
    missing = [name for name in ("pyspark", "pyarrow", "sklearn") if importlib.util.find_spec(name) is None]
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing.append("Java 17 (openjdk-17-jre-headless, on Debian)")
    return ", ".join(missing)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--if-possible", action="store_true", help="end in peace where Spark or Java is missing")
    arguments = parser.parse_args()
    missing = what_is_missing()
    if missing:
        print(f"No training from Spark: {missing} is missing.")
        sys.exit(0 if arguments.if_possible else 1)
    with two_nodes():
        print(f"Accuracy of the mean of the models: {train(arguments.rows):.1%}")
        ec.shutdown()


if __name__ == "__main__":
    main()
