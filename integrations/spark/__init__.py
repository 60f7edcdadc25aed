"""Channels as sources and sinks of Spark, by a gateway: `spark.dataSource.register(EChannelSource)`.

Nothing of Ray is needed where Spark runs, neither on its driver nor on its executors.
"""

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError('pyspark is missing: pip install "echannel-ray[spark]"') from error

from echannel_ray.integrations.spark.data_source import EChannelSource

__all__ = ["EChannelSource"]
