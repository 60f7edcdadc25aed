"""A sink's channel, opened on the driver before any row is written."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from echannel_ray.errors import EChannelError
from echannel_ray.integrations.spark.connection import connected
from echannel_ray.integrations.spark.options import AT_LEAST_ONCE, SinkOptions
from echannel_ray.integrations.spark.types import travelling


class NotRetained(EChannelError):
    """A sink can't write exactly once to a channel whose log is not on disk (`.channel`)."""


def opened_for(schema: StructType, options: SinkOptions) -> pa.Schema:
    """What rows have to be for the sink's channel, which is made where there is none."""
    target = options.target
    ours = travelling(schema, target.channel)
    info = connected(target.endpoint).channel(target.channel, ours, options.retain)
    if options.is_exactly_once and not (info.is_retained and info.is_on_disk):
        raise NotRetained(
            f"channel {target.channel!r} is not retained on disk, so a sink can't write to it exactly once: create it "
            f"with retain=ec.Retention(disk=True), or use .option('delivery', '{AT_LEAST_ONCE}')",
            channel=target.channel,
        )
    assert info.schema is not None  # it was opened with one
    return _merged(info.schema, ours)


def _merged(channels: pa.Schema, ours: pa.Schema) -> pa.Schema:
    """The channel's fields (a nullable one that we lack is null), and those that we have besides."""
    has = set(ours.names)
    taken = [field for field in channels if field.name in has or field.nullable]
    added = [field for field in ours if channels.get_field_index(field.name) < 0]
    return pa.schema([*taken, *added])
