"""One Spark for all tests of this folder, and a gateway for each file of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.drivers import LOCALLY, environment
from tests.integrations.gateways import LocalGateway
from tests.integrations.io import Channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads. It takes seconds and a gigabyte, so there is one, and its time zone isn't UTC."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    from pyspark.sql import SparkSession

    from echannel_ray.integrations.spark import EChannelSource

    os.environ.update(environment())
    options: dict[str, Any] = {
        **LOCALLY,
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.timeType.enabled": "true",
    }
    session = SparkSession.builder.master("local[2,4]").config(map=options).getOrCreate()
    session.dataSource.register(EChannelSource)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway for the module's tests, each of which has a channel of its own."""
    running = LocalGateway(tmp_path_factory.mktemp("gateway"))
    yield running
    running.end()


@pytest.fixture
def channel(spark: SparkSession, gateway: LocalGateway, request: pytest.FixtureRequest) -> Channel:
    """The test's channel, as Spark reads and writes it."""
    return Channel(spark, gateway, request.node.name)
