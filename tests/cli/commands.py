"""The command as people run it, a process of its own; and within a test's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner, Result

import echannel_ray as ec
from echannel_ray.cli import app

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "echannel_ray.cli"]


def echannel(*arguments: str, stdin: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start it."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def inside(*arguments: str, stdin: str = "") -> Result:
    """Run a command in this process, as the driver that it is, and goes on to be: others take seconds to join."""
    with (
        patch("echannel_ray.overview.ray_connection.running_ray", _this_ray),
        patch("echannel_ray.cli.inside.joined", _this_process),
    ):
        return CliRunner().invoke(app, arguments, input=stdin)


@contextlib.contextmanager
def _this_process(namespace: str) -> Iterator[None]:
    ec.connect(namespace)
    yield


@contextlib.contextmanager
def _this_ray(address: str | None) -> Iterator[None]:
    yield
