"""Where and with what a run took place: the machine, the versions, the revision. Read once, before Ray starts."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from echannel_ray.benchmarks import extras

FOLDER = Path(__file__).resolve().parent
MAX_LOAD_PER_CORE = 0.5


@dataclass(frozen=True)
class Machine:
    """This machine; the load average is that of the minute before the run."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    load_average: float

    @property
    def doubts(self) -> list[str]:
        """Why not to trust what is measured here: others were at work."""
        if self.load_average <= MAX_LOAD_PER_CORE * self.cores:
            return []
        return [f"the load average was {self.load_average:.1f} on {self.cores} cores before the run began"]


@dataclass(frozen=True)
class Facts:
    """What all results of a run have in common."""

    machine: Machine
    versions: dict[str, str]
    revision: str
    date: str


def facts(sources: Path = FOLDER.parent) -> Facts:
    """Those of this process; `sources` is the working tree that it was made of."""
    return Facts(_machine(), extras.versions(), _revision(sources), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))


def _machine() -> Machine:
    return Machine(
        cpu=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        load_average=os.getloadavg()[0],
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()  # ARM has no such line


def _revision(sources: Path) -> str:
    """The commit that was measured, if this is its working tree: a wheel may lie inside somebody else's repository."""
    if _git(sources, "rev-parse", "--show-toplevel") != str(sources.resolve()):
        return ""
    # The results themselves are in the tree too, and are written during a run: only code makes a difference.
    changed = _git(sources, "status", "--porcelain", "--", "*.py")
    return _git(sources, "rev-parse", "HEAD") + (" and changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=extras.ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
