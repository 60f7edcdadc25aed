"""Where processes run: unpinned figures are bimodal, since a wake-up across cores costs about 20 µs.

`one` puts all processes on one core and shows pure CPU cost; `two` puts the source on its own core and everything else
on another, and shows what pipelining gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

CORES = sorted(os.sched_getaffinity(0))
PLACEMENTS = ("one", "two") if len(CORES) > 1 else ("one",)


def pin(pid: int, cores: Iterable[int]) -> None:
    """Bind every thread of a process; threads that it starts later inherit their starter's binding."""
    wanted, pinned = set(cores), set[int]()
    while threads := {int(name) for name in os.listdir(f"/proc/{pid}/task")} - pinned:
        for thread in threads:
            with suppress(ProcessLookupError):  # the thread ended meanwhile
                os.sched_setaffinity(thread, wanted)
        pinned |= threads


def place(placement: str, source_pids: Iterable[int], other_pids: Iterable[int]) -> None:
    """Bind the source and everything else as `placement` says."""
    source_core = CORES[0] if placement == "two" else CORES[1 % len(CORES)]
    for pid in source_pids:
        pin(pid, {source_core})
    for pid in other_pids:
        pin(pid, {CORES[1 % len(CORES)]})


def unpin(pids: Iterable[int]) -> None:
    """Let processes run on every core again."""
    for pid in pids:
        pin(pid, CORES)
