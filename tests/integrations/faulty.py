"""Steps of a job that fail in the middle, where a test wants them to.

They run in Spark's Python workers, before the sink: what comes out of them is staged by then.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from echannel_ray.gateway.client import GatewayClient

Batches = Iterator[pa.RecordBatch]
WAIT_SECONDS = 60


def wait_for(condition: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not happened"
        time.sleep(0.02)


def _is_early(attempts: int = 1) -> bool:
    """Whether this is one of the first attempts at the first partition."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId() == 0 and context.attemptNumber() < attempts


def failing_in_the_middle(endpoint: str, channel: str, attempts: int = 1) -> Callable[[Batches], Batches]:
    """The first attempts at the first partition fail when some of its rows are staged."""

    def step(batches: Batches) -> Batches:
        yield from _some(batches, endpoint, channel)
        if _is_early(attempts):
            raise RuntimeError("as the test wants it")
        yield from batches

    return step


def aborting(endpoint: str, channel: str, write: str) -> Callable[[Batches], Batches]:
    """Its write is aborted when some rows are staged, as when its lease ends."""

    def step(batches: Batches) -> Batches:
        yield from itertools.islice(batches, 3)
        with GatewayClient(endpoint) as client:
            client.abort(channel, write)
        yield from batches

    return step


def killing_its_executor(endpoint: str, channel: str, marker: str) -> Callable[[Batches], Batches]:
    """The first attempt at partition 0 kills the executor's JVM, the parent of the Python daemon.

    No other partition is done before that: Spark would speculate then, and might need this attempt no more.
    """

    def step(batches: Batches) -> Batches:
        yield from _some(batches, endpoint, channel)
        if _is_early():
            Path(marker).touch()
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        wait_for(Path(marker).exists, "the end of an executor")
        yield from batches

    return step


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def overtaken(endpoint: str, channel: str) -> Callable[[Batches], Batches]:
    """The first attempt at partition 0 goes on only when the write is committed without it."""

    def step(batches: Batches) -> Batches:
        yield from _some(batches, endpoint, channel)
        if _is_early():
            _wait_for_events(endpoint, channel)
        yield from batches

    return step


def waiting_to_be_seen(endpoint: str, channel: str) -> Callable[[Batches], Batches]:
    """It goes on only when consumers have events."""

    def step(batches: Batches) -> Batches:
        yield from itertools.islice(batches, 3)
        _wait_for_events(endpoint, channel)
        yield from batches

    return step


def _wait_for_events(endpoint: str, channel: str) -> None:
    with GatewayClient(endpoint) as client:
        wait_for(lambda: any(stop for _, stop in client.offsets(channel).values()), "the first event")


def stuck(endpoint: str, channel: str, marker: str) -> Callable[[Batches], Batches]:
    """When some rows are staged, it says so and waits: for the test to end this process, or to remove what it said."""

    def step(batches: Batches) -> Batches:
        yield from _some(batches, endpoint, channel)
        if not Path(f"{marker}.gone").exists():
            Path(marker).touch()
            wait_for(lambda: Path(f"{marker}.gone").exists(), "the end")
        yield from batches

    return step


def _some(batches: Batches, endpoint: str, channel: str) -> Batches:
    """Some batches, and then nothing before the gateway has one: Spark keeps the last for a while."""
    yield from itertools.islice(batches, 3)
    with GatewayClient(endpoint) as client:
        wait_for(lambda: client.staged_bytes(channel), "staging")
