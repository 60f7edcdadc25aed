"""The environment of all tests, and the fixtures that bring a Ray cluster or forbid one."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# How long something takes is for the benchmarks, also how long it takes to make an example.
hypothesis.settings.register_profile("ours", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ours")
# Ray reads these when it is imported, and each process that it starts inherits them.
assert "ray" not in sys.modules, "ray was imported before its environment was set"
# A directory of our own keeps other Rays of this machine from finding ours, and ours from finding them; what a run that
# was killed has left behind, or changed, is not found either. It is short because the paths of Unix sockets below it
# may have 107 bytes.
if WORKER := os.environ.get("PYTEST_XDIST_WORKER"):  # as long, and beside that of the process that started this one
    FIRST_DIRECTORY = Path(os.environ["TMPDIR"])
    OUR_DIRECTORY = FIRST_DIRECTORY.with_name(f"e{WORKER.removeprefix('gw')}{FIRST_DIRECTORY.name[2:]}")
    OUR_DIRECTORY.mkdir()
else:
    OUR_DIRECTORY = Path(tempfile.mkdtemp(prefix="ec"))
OUR_DIRECTORY.chmod(0o711)  # others may pass, as through the system's: what is inside has to keep them out
tempfile.tempdir = None  # what `mkdtemp` took from the environment, it would keep
os.environ.update(
    TMPDIR=str(OUR_DIRECTORY),
    RAY_TMPDIR=str(OUR_DIRECTORY),
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # binds to 127.0.0.1; `_node_ip_address` alone is ignored on Linux
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",  # under `uv run`, workers would get a virtual environment of their own
    RAY_AUTH_MODE="disabled",  # a local `ray.init()` would write a token to the home directory
)
os.environ.pop("RAY_ADDRESS", None)
# Spark's machines live for seconds: what compiles for speed, what collects with several threads and what looks through
# the bytecode of its jars only costs there.
os.environ["JAVA_TOOL_OPTIONS"] = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Hundreds of processes import the package: the first of them compiles it for the others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from tests.clusters import LastingCluster, LocalCluster  # noqa: E402


@pytest.fixture(scope="session")
def lasting() -> Iterator[LastingCluster]:
    """The cluster that modules share; `two_nodes` is it for one of them."""
    cluster = LastingCluster()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def two_nodes(lasting: LastingCluster) -> Iterator[LocalCluster]:
    """The shared cluster, and this process as its driver, until the module ends."""
    with lasting.joined() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Callable[..., LocalCluster]]:
    """Call it with `LocalCluster`'s arguments to have a cluster of the module's own, and this process as its driver.

    A second call ends the cluster before it: a process is in one at a time.
    """
    running: list[LocalCluster] = []

    def stop() -> None:
        while running:
            running.pop().stop()

    def start(nodes: int = 1, cpus: int = 4) -> LocalCluster:
        stop()
        running.append(LocalCluster(nodes, cpus))
        return running[-1]

    yield start
    stop()


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in this test may start or join a Ray."""
    import ray

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("this test has to run without Ray")

    monkeypatch.setattr(ray, "init", refuse)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector of garbage need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`, who has done a file or a folder takes the next."""
    from tests.scheduling import BySharing

    return BySharing(config, log)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove Ray's files; where something failed, its logs may say why, so they stay."""
    if not WORKER and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        for directory in our_directories():
            shutil.rmtree(directory, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where Ray's logs are, when they are there."""
    for directory in our_directories():
        if any((directory / "ray").glob("session_2*")):
            terminalreporter.write_line(f"Ray's logs: {directory / 'ray'}")


def our_directories() -> list[Path]:
    """This process's, and those of the processes that it started with `-n`."""
    return sorted(OUR_DIRECTORY.parent.glob(f"e?{OUR_DIRECTORY.name[2:]}"))
