"""The command as people run it: a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
