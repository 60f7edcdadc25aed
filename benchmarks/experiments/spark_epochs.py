"""What does a channel add to an epoch of structured streaming, as its sink and as its source?

Small epochs, one after the other, against a sink and a source in Python that do nothing. An epoch's time is the query's
own: `durationMs.triggerExecution` of its progress, the median of a run.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import echannel_ray as ec
from echannel_ray.benchmarks.harness.alone import difference
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave
from echannel_ray.benchmarks.harness.spark import features, keep_batch, running_spark
from echannel_ray.gateway.client import GatewayClient

EPOCH_ROWS = 100
FIRST_EPOCHS = 3  # which start Python and compile
EPOCHS, SHORT_EPOCHS = 30, 10
RETAINED_EPOCHS = 2000  # more than a run takes before it is stopped
RUN_SECONDS = 60
GOALS = (at_most(0.1, "what a sink or a source adds to a streaming epoch", "added by the .*"),)
ADDED = {"sink": "a sink that discards", "source": "a source that yields a batch from memory"}


class Queries:
    """Queries of epochs of so many rows, each from its start."""

    def __init__(self, spark: SparkSession, handoff: Handoff, folder: Path, epochs: int) -> None:
        self._spark, self._folder, self._epochs = spark, folder, epochs
        self._written = {"channel": "written", "endpoint": handoff.endpoint}
        self._read = {"channel": "read", "endpoint": handoff.endpoint, "maxRowsPerEpoch": str(EPOCH_ROWS)}
        for name in ("written", "read"):
            handoff.open(name, ec.Retention(disk=True))
        (batch,) = features(spark, EPOCH_ROWS).coalesce(1).toArrow().combine_chunks().to_batches()
        self._file = keep_batch(batch, folder / "batch.arrow")
        with GatewayClient(handoff.endpoint) as client:
            client.channel("read", batch.schema)
            client.publish("read", [batch] * RETAINED_EPOCHS)
        self._schema = features(spark, EPOCH_ROWS).schema
        self._checkpoints = itertools.count()

    def variants(self) -> dict[str, Measure]:
        """Each as the seconds of an epoch."""
        made = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", EPOCH_ROWS).load()
        retained = self._spark.readStream.schema(self._schema).format("echannel").options(**self._read).load()
        remembered = self._spark.readStream.format("from_memory").option("file", self._file).load()
        return {
            "sink": partial(self._seconds, made, "echannel", self._written),
            ADDED["sink"]: partial(self._seconds, made, "discarding", {}),
            "source": partial(self._seconds, retained, "noop", {}),
            ADDED["source"]: partial(self._seconds, remembered, "noop", {}),
        }

    def _seconds(self, frame: DataFrame, sink: str, options: dict[str, str]) -> float:
        checkpoint = self._folder / f"checkpoint-{next(self._checkpoints)}"
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        try:
            return statistics.median(self._durations(query)[FIRST_EPOCHS:])
        finally:
            query.stop()

    def _durations(self, query: StreamingQuery) -> list[float]:
        for _ in range(RUN_SECONDS):
            query.awaitTermination(1)  # raises what a query ends with
            done = [each for each in query.recentProgress if each.numInputRows]
            if len(done) >= FIRST_EPOCHS + self._epochs:
                return [each.durationMs["triggerExecution"] / 1000 for each in done]
        raise TimeoutError(f"only {len(done)} epochs in {RUN_SECONDS} s: {query.status}")


def run(plan: Plan) -> list[Row]:
    """Each query in turns."""
    with (
        running_spark() as spark,
        Handoff("bench-spark-epochs") as handoff,
        tempfile.TemporaryDirectory(prefix="epochs-", ignore_cleanup_errors=True) as folder,
    ):
        queries = Queries(spark, handoff, Path(folder), SHORT_EPOCHS if plan.short else EPOCHS)
        samples = interleave(plan, queries.variants(), "s", higher_is_better=False)
    rows = []
    for ours, baseline in ADDED.items():
        added = difference(samples[ours], samples[baseline])
        rows.append(Row(f"epoch, {ours}", "free", samples[ours], baseline, samples[baseline]))
        rows.append(Row(f"added by the {ours}", "free", added))
    return rows
