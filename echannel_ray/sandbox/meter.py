"""Whether a sandbox keeps its limits, seen from outside: by the clock of its CPU time, not by what it says.

What it says of its progress decides only how the time that it has anyway is spread over the events of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from echannel_ray.modulation.admission import Admission
from echannel_ray.sandbox.area import ProgressPage
from echannel_ray.sandbox.messages import InstallDone

_RATE_SECONDS: Final = 1.0
_CPU_CLOCK: Final = 2  # CPUCLOCK_SCHED, for `(~pid << 3) | 2`, as clock_getcpuclockid makes it


@dataclass(eq=False)
class Task:
    """What a sandbox was asked for: so many items, each with so much CPU time."""

    number: int
    count: int
    max_seconds: float
    events: tuple[Sequence[int], Sequence[Any]] | None = None  # kinds and payloads; None: nothing that has an `Outcome`
    is_batch: bool = False


def max_install_seconds(limits: Admission) -> float:
    """CPU for unpickling and `key()`: more than for an event, since it makes classes and runs once."""
    return max(limits.max_seconds_per_event, 0.5)


class Meter:
    """Measures one sandbox; the warden looks at it now and then, never for a batch that is done in between."""

    def __init__(self, pid: int, limits: Admission, progress: ProgressPage) -> None:
        self._pid = pid
        self._clock = (~pid << 3) | _CPU_CLOCK
        self._limits = limits
        self._progress = progress
        self._last_cpu = 0.0
        self._charged = 0.0
        self._tasks = 0  # that have begun
        self._tasks_seen = 0
        self._was_idle = True
        self._unasked = 4
        self._made_before = -1  # up to this task there is time to make the modulator
        self._counts = (0, 0)
        self._task_mark = self._item_mark = self._rate_mark = (time.monotonic(), 0.0)

    def works(self) -> bool:
        """Whether the clock of this process, which lives, can be read."""
        try:
            return self._pid > 0 and time.clock_gettime(self._clock) >= 0
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """The CPU time that the process has used, or had when it ended."""
        try:
            self._last_cpu = time.clock_gettime(self._clock)
        except OSError:
            pass  # it has ended
        return self._last_cpu

    def begin_task(self) -> None:
        """Something new was asked for; it may be done before anybody looks."""
        self._tasks += 1

    def allow_more(self) -> None:
        """Allow time for something besides tasks that the sandbox was asked for."""
        self._unasked += 1

    def allow_making(self) -> None:
        """The modulator is made anew: with the task that follows there is time for that too."""
        self.allow_more()
        self._made_before = self._tasks + 1

    def charge(self, seconds: float) -> None:
        """Add the time that the sandbox has cost its producer."""
        self._charged += seconds

    def look(self, now: float, task: Task | None, installed: InstallDone | None) -> str | None:
        """The limit that the sandbox has broken, if any."""
        cpu = self.cpu_seconds() + self._charged
        counts = self._progress.read()
        mark = (now, cpu)
        tasks = self._tasks
        if tasks != self._tasks_seen or (task is None) != self._was_idle:
            self._tasks_seen = tasks
            self._was_idle = task is None
            self._task_mark = self._item_mark = mark
        elif counts != self._counts:
            self._item_mark = mark
        self._counts = counts
        return self._over_time(now, cpu, task, installed) or self._over_rate(now, cpu)

    def _over_time(self, now: float, cpu: float, task: Task | None, installed: InstallDone | None) -> str | None:
        began, used = self._item_mark
        seconds = self._limits.max_seconds_per_event if task is None else task.max_seconds
        is_making = task is not None and task.events is None
        making = max_install_seconds(self._limits) if self._tasks <= self._made_before else 0.0
        what = "to be made" if is_making else "for one event"
        if cpu - used > seconds + making:
            if is_making:
                return f"it used more than {seconds:g} s of CPU while it was made (unpickling, __setstate__, key())"
            return f"it used more than {seconds:g} s of CPU for one event (max_seconds_per_event)"
        # By the clock on the wall: a busy machine must not look like a sleeper.
        most = max(seconds, 20 * self._limits.max_seconds_per_event, 5.0)
        if task is not None and now - began > most:
            return f"it took more than {most:g} s {what}"
        began, used = self._task_mark
        if task is not None:
            count = task.count
        else:  # its timer, restarts, updates
            period = installed.period_seconds if installed is not None else None
            count = self._unasked + int((now - began) / period if period else 0)
        if cpu - used > seconds * count + making:
            return f"it used more than {seconds:g} s of CPU for each of {count:,} events (max_seconds_per_event)"
        return None

    def _over_rate(self, now: float, cpu: float) -> str | None:
        began, used = self._rate_mark
        if now - began < _RATE_SECONDS:
            return None
        self._rate_mark = (now, cpu)
        fraction = (cpu - used) / (now - began)
        if self._limits.max_cpu_fraction < 1.0 and fraction > self._limits.max_cpu_fraction:
            return f"it used {fraction:.0%} of a core for {now - began:.1f} s (max_cpu_fraction)"
        return None
