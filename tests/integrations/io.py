"""A channel as Spark reads and writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

QUERY_SECONDS = 60


class Channel:
    """Options beyond the channel and its gateway, which is anything that has an endpoint, are given by name."""

    def __init__(self, spark: SparkSession, gateway: Any, name: str) -> None:
        self.spark = spark
        self.gateway = gateway
        self.name = name
        self._options = {"channel": name, "endpoint": gateway.endpoint}

    def save(self, rows: DataFrame, **options: Any) -> None:
        """Write a batch."""
        rows.write.format("echannel").mode("append").options(**self._options, **options).save()

    def load(self, schema: str | None = None, **options: Any) -> DataFrame:
        """Read a batch."""
        reader = self.spark.read.format("echannel").options(**self._options, **options)
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, **options: Any) -> DataFrame:
        """Read a stream."""
        return self.spark.readStream.format("echannel").options(**self._options, **options).load()

    def sink(self, rows: DataFrame, checkpoint: Any, **options: Any) -> DataStreamWriter:
        """Write a stream."""
        writer = rows.writeStream.format("echannel").options(**self._options, **options)
        return writer.option("checkpointLocation", str(checkpoint))

    def values(self) -> list[int]:
        """The column `id` of what is retained."""
        values: list[int] = self.gateway.values(self.name)
        return values


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself."""
    try:
        assert query.awaitTermination(QUERY_SECONDS), f"the query is still running: {query.status}"
    finally:
        query.stop()


def uncommit_last(checkpoint: Path) -> None:
    """As when the driver dies after an epoch, and before it has written down that the epoch was done."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()
