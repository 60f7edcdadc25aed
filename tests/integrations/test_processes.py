"""Executors and drivers that die, and attempts that are overtaken: each row is there once all the same."""

from __future__ import annotations

import shutil

import pytest

from tests.integrations.drivers import ROWS, Driver
from tests.integrations.faulty import wait_for
from tests.integrations.io import finish
from tests.integrations.standalone import StandaloneCluster

JOB_SECONDS = 200
pytestmark = pytest.mark.timeout(300)
# Of all jobs of a driver; each of them says what it needs of that.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    running = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def drivers():
    started: list[Driver] = []
    yield started
    for each in started:
        each.kill()


@pytest.fixture
def driver(cluster, drivers):
    """The driver on the cluster, or another one where a test has killed it."""
    if not (drivers and drivers[-1].is_running):
        memory = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
        drivers.append(Driver(cluster.url, **memory, **SPECULATION))
    return drivers[-1]


@pytest.fixture
def where(gateway, request):
    """The test's channel."""
    return {"endpoint": gateway.endpoint, "channel": request.node.name}


def values(gateway, name):
    """What it has, when nothing is staged."""
    with gateway.client() as client:
        assert client.staged_bytes(name) == 0
    return gateway.values(name)


def test_an_attempt_that_is_overtaken(driver, gateway, where):
    # The stuck attempt ends with the commit, which another one has to bring about: by speculation, since none fails.
    assert driver.run("overtake", **where) == 0
    assert values(gateway, where["channel"]) == list(range(2 * ROWS))


def test_an_executor_that_dies_in_the_middle(driver, gateway, where, tmp_path):
    assert driver.run("crash", marker=str(tmp_path / "killed"), **where) == 1
    assert values(gateway, where["channel"]) == list(range(2 * ROWS))


def test_a_driver_that_dies_in_the_middle_of_an_epoch(driver, spark, channel, where, tmp_path):
    spark.range(ROWS).write.parquet(str(tmp_path / "in"))
    marker = tmp_path / "staged"
    paths = {"given": str(tmp_path / "in"), "checkpoint": str(tmp_path / "checkpoint"), "marker": str(marker)}
    driver.begin("stream", **where, **paths)
    try:
        wait_for(marker.exists, "staging", JOB_SECONDS)
    finally:
        driver.kill()
    with channel.gateway.client() as client:
        assert client.staged_bytes(channel.name) > 0
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    for _ in range(2):
        finish(channel.sink(rows, tmp_path / "checkpoint").trigger(availableNow=True).start())
        assert sorted(channel.values()) == list(range(ROWS))
