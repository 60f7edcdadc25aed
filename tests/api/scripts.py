"""Programs of their own: what happens when a driver starts Ray itself, forks, or ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

PREAMBLE = """
import os, sys, threading, time
import ray
import echannel_ray as ec
from tests.api.parties import Inbox, Party, PartyActor, ask, publish_all
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    output: str
    seconds_after_last_line: float


def run(body: str, *arguments: str, timeout: float = 90, finds_no_ray: bool = False) -> Ended:
    """Run it as `__main__`, and wait until it has ended. It prints `done` when only its exit is left.

    `finds_no_ray`: its `ray.init()` starts a Ray of its own.
    """
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    # Short, and with Ray's own files: see tests/conftest.py.
    with tempfile.TemporaryDirectory(prefix="ec", ignore_cleanup_errors=True) as directory:
        if finds_no_ray:
            environment["RAY_TMPDIR"] = directory
        path = Path(directory, "program.py")
        path.write_text(PREAMBLE + dedent(body))
        return _run([sys.executable, str(path), *arguments], environment, timeout)


def _run(command: Sequence[str], environment: dict[str, str], timeout: float) -> Ended:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: list[str] = []
    done_at = time.monotonic()
    killer = threading.Timer(timeout, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.strip() == "done":
                done_at = time.monotonic()
        process.wait()
    finally:
        killer.cancel()
        process.kill()
    return Ended(process.returncode, "".join(lines), time.monotonic() - done_at)
