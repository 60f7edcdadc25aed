"""The format "echannel"."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from typing_extensions import override

from echannel_ray.integrations.spark.options import SinkOptions, SourceOptions, Target
from echannel_ray.integrations.spark.sink import BatchSink, StreamingSink
from echannel_ray.integrations.spark.source import BatchSource, StreamingSource, channel_schema
from echannel_ray.integrations.spark.types import spark_schema


class EChannelSource(DataSource):
    """Channels in Spark: `spark.dataSource.register(EChannelSource)`, and then `.format("echannel")`.

    Options of all: `channel`, `endpoint` (the text of a gateway's), `namespace`.

    Writing: `delivery` ("exactly_once" or "at_least_once"), `writeId` (a batch with the same one is applied once),
    `transfer` ("arrow" or "files", with `path`), `retainBytes` and `retainSeconds` of a channel that is made.

    Reading: `startingOffsets`, `endingOffsets` (of a batch), `rowsPerPartition`, `failOnDataLoss`, and of streams
    `group`, `leaseSeconds`, `maxRowsPerEpoch`.
    """

    @classmethod
    @override
    def name(cls) -> str:
        """What `.format(...)` calls it."""
        return "echannel"

    @override
    def schema(self) -> StructType:
        """Of a typed channel's events, where the reader is given none."""
        target = Target.of(self.options)
        return spark_schema(channel_schema(target), target.channel)

    @override
    def reader(self, schema: StructType) -> BatchSource:
        """For `spark.read`."""
        return BatchSource(schema, SourceOptions.of(self.options))

    @override
    def streamReader(self, schema: StructType) -> StreamingSource:
        """For `spark.readStream`."""
        return StreamingSource(schema, SourceOptions.of(self.options))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """For `df.write`."""
        if overwrite:
            raise ValueError('a channel can\'t be overwritten: use .mode("append")')
        return BatchSink(schema, SinkOptions.of(self.options))

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamingSink:
        """For `df.writeStream`."""
        if overwrite:
            raise ValueError('a channel can\'t be overwritten: use .outputMode("append")')
        return StreamingSink(schema, SinkOptions.of(self.options))
