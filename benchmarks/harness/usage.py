"""What a process used: CPU time to the nanosecond, and resident memory."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of processes since they began, threads that ended included.

    The kernel's CPU clock of a process (`clock_getcpuclockid`): /proc/<pid>/stat only counts in steps of 10 ms.
    """
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes, shared pages counted in each."""
    return sum(int(psutil.Process(pid).memory_info().rss) for pid in pids)
