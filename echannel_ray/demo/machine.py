"""Two Ray nodes on this machine, which listen on loopback only, and nothing of which is left afterwards."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from echannel_ray.overview.ray_connection import join

OBJECT_STORE_BYTES = 80 * 1024 * 1024
_END_SECONDS = 10.0


@contextlib.contextmanager
def two_nodes() -> Iterator[list[str]]:
    """Two Ray nodes: their ids. This process is the driver, on the first."""
    if "ray" in sys.modules:
        raise RuntimeError("the demonstration starts a Ray of its own: run it in a process that has not imported Ray")
    # A folder of its own: no other Ray of this machine finds this one. Short, because paths of sockets are.
    folder = tempfile.mkdtemp(prefix="ecd-")
    signal.signal(signal.SIGTERM, interrupt)
    os.environ.update(
        RAY_TMPDIR=folder,
        TMPDIR=folder,  # where the concentrators have their sockets
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # binds to 127.0.0.1
        RAY_AUTH_MODE="disabled",  # a local Ray would write a token to the home directory
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
    )
    os.environ.pop("RAY_ADDRESS", None)
    tempfile.tempdir = folder  # what `mkdtemp` above took from TMPDIR, it would keep
    print("Starting two Ray nodes on this machine ...", flush=True)
    try:
        yield from _cluster()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cluster() -> Iterator[list[str]]:
    from ray.cluster_utils import Cluster

    cluster = None
    try:
        cluster = Cluster()
        nodes = [
            cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE_BYTES, include_dashboard=False)
            for _ in range(2)
        ]
        join(cluster.address, logging.ERROR)
        # `kill` and a CI job that is cancelled clean up as Ctrl-C does. Ray has just put a handler of its own there.
        signal.signal(signal.SIGTERM, interrupt)
        yield [str(node.node_id) for node in nodes]
    finally:
        with _uninterrupted():
            _end(cluster)


def _end(cluster: object) -> None:
    import psutil  # Ray brings it along
    import ray

    # Workers end some time after their raylet: their folder must not go before them.
    started = psutil.Process().children(recursive=True)
    with contextlib.suppress(Exception):  # whatever state it is in: what counts is that the processes end
        ray.shutdown()
        cluster.shutdown()  # type: ignore[attr-defined]
    for process in psutil.wait_procs(started, timeout=1)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(started, timeout=_END_SECONDS)


def interrupt(number: int, frame: Any) -> None:
    """The handler of a signal that ends the demonstration."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Clean up within although Ctrl-C comes a second time."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
