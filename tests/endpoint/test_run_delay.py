"""For how long the kernel says that a thread was kept from running, where it says so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from echannel_ray.endpoint.run_delay import _SETTLED, RunDelay
from tests.clusters import wait_until

pytestmark = pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/schedstat"), reason="this kernel does not count it"
)


def in_thread(call) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def work(seconds: float) -> None:
    """Have the processor for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.fixture
def rival():
    """A process that does nothing but compute, and a thread that shares its core."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(process.pid, {core})
    try:
        yield lambda: os.sched_setaffinity(threading.get_native_id(), {core})
    finally:
        process.kill()
        process.wait()


def test_a_thread_whose_core_others_want(rival):
    delays = []

    def run() -> None:
        rival()
        delay = RunDelay()
        delays.append(delay.look())
        work(0.2)
        delays.append(delay.look())

    in_thread(run)
    before, after = delays
    assert after - before > 0.05


def test_a_wait_is_none():
    delay = RunDelay()
    began, before = time.monotonic(), delay.look()
    threading.Event().wait(0.2)
    assert delay.look() - before < time.monotonic() - began - 0.19


def test_it_asks_who_sends_most_and_bears_that_a_thread_ends():
    delay = RunDelay()
    in_thread(delay.look)
    for _ in range(_SETTLED):
        delay.look()
        assert delay._thread != threading.get_ident()
    delay.look()
    assert delay._thread == threading.get_ident()
    assert delay.seconds >= 0


def test_a_thread_that_got_the_name_of_one_that_ended_is_asked():
    delay, tasks = RunDelay(), []

    def run() -> None:
        tasks.append(f"/proc/self/task/{threading.get_native_id()}")
        delay.look()

    in_thread(run)
    wait_until(lambda: not os.path.exists(tasks[0]))  # `join` returns a little earlier
    seconds = delay.seconds
    delay._thread = threading.get_ident()  # as if it had been ours
    assert delay.look() == seconds
    assert delay._descriptor < 0
    for _ in range(_SETTLED + 1):
        delay.look()
    assert delay._thread == threading.get_ident()
    assert delay._descriptor >= 0


def test_without_what_the_kernel_counts_there_is_no_delay(monkeypatch):
    def refuse(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", refuse)
    delay = RunDelay()
    work(0.01)
    assert delay.look() == delay.look() == 0
