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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    running = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.stop()


@pytest.fixture
def run(cluster, gateway, request):
    """Runs a job on the cluster: what its channel has then."""
    drivers = []

    def run(job, **config):
        name = request.node.name
        config = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", **config}
        driver = Driver(job, master=cluster.url, endpoint=gateway.endpoint, channel=name, config=config)
        drivers.append(driver)
        driver.wait(JOB_SECONDS)
        with gateway.client() as client:
            assert client.staged_bytes(name) == 0
        return gateway.values(name)

    yield run
    for driver in drivers:
        driver.kill()


def test_an_attempt_that_is_overtaken(run):
    speculation = {
        "spark.task.maxFailures": "1",  # to be tried again takes speculation, then
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    # The stuck attempt ends with the commit, which another one has to bring about.
    assert run("overtake", **speculation) == list(range(2 * ROWS))


def test_an_executor_that_dies_in_the_middle(run):
    assert run("crash") == list(range(2 * ROWS))


def test_a_driver_that_dies_in_the_middle_of_an_epoch(spark, channel, tmp_path):
    spark.range(ROWS).write.parquet(str(tmp_path / "in"))
    marker = tmp_path / "staged"
    where = {"endpoint": channel.gateway.endpoint, "channel": channel.name}
    paths = {"given": str(tmp_path / "in"), "checkpoint": str(tmp_path / "checkpoint"), "marker": str(marker)}
    driver = Driver("stream", master="local[2]", config={}, **where, **paths)
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
