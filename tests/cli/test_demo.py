"""The demonstration ends by itself, in time, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.cli.commands import ROOT
from tests.clusters import wait_until


@pytest.fixture
def folder():
    """For its files. Short, since paths of sockets are."""
    with tempfile.TemporaryDirectory(prefix="ec") as folder:
        yield Path(folder)


@pytest.fixture
def demo(folder):
    """Starts it."""
    started = []

    def start():
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "echannel_ray.demo"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_it_shows_that_nothing_is_lost(demo, folder):
    process = demo()
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, out + errors
    assert "kill -9" in out
    assert "nothing lost, nothing twice, all in order" in out
    assert "\x1b" not in out  # plain lines where there is no terminal
    assert errors == ""
    assert list(folder.iterdir()) == []


def test_it_ends_what_it_started_when_it_is_interrupted(demo, folder):
    process = demo()
    while "events/s" not in process.stdout.readline():
        assert process.poll() is None
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 6
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    wait_until(lambda: not any(each.is_running() for each in started))
    assert list(folder.iterdir()) == []
