"""Ray actor calls: what a Ray program does without event channels. The caller is an actor too, to be pinned."""

from __future__ import annotations

import os
import time
from itertools import cycle, islice
from types import TracebackType
from typing import Any

import ray

ANSWER_SECONDS = 120.0


class Callee:
    """Takes calls and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def handle(self, event: Any) -> None:
        """One event."""
        self._count += 1

    def count(self) -> int:
        """How many calls came before this one."""
        return self._count

    def pid(self) -> int:
        """The process's id."""
        return os.getpid()


class Caller:
    """Calls a `Callee`, and measures."""

    def pid(self) -> int:
        """The process's id."""
        return os.getpid()

    def round_trip_seconds(self, callee: Any, event: Any, count: int) -> float:
        """Seconds of a call and `ray.get` of its result."""
        began = time.perf_counter()
        for _ in range(count):
            ray.get(callee.handle.remote(event))
        return (time.perf_counter() - began) / count

    def one_way_rate(self, callee: Any, events: list[Any], count: int) -> float:
        """Calls a second when nobody waits for the results; they are ordered, so the last one waits for all."""
        began = time.perf_counter()
        for event in islice(cycle(events), count):
            callee.handle.remote(event)
        ray.get(callee.count.remote())
        return count / (time.perf_counter() - began)


class ActorCalls:
    """A caller and a callee in two processes of one node."""

    def __init__(self) -> None:
        self._callee: Any = ray.remote(Callee).options(num_cpus=0).remote()
        self._caller: Any = ray.remote(Caller).options(num_cpus=0).remote()
        self.source_pids = [self._get(self._caller.pid.remote())]
        self.other_pids = [self._get(self._callee.pid.remote())]

    def round_trip_seconds(self, event: Any, count: int) -> float:
        """Seconds of a call and `ray.get` of its result."""
        return float(self._get(self._caller.round_trip_seconds.remote(self._callee, event, count)))

    def one_way_rate(self, events: list[Any], count: int) -> float:
        """Calls a second when nobody waits for each result."""
        return float(self._get(self._caller.one_way_rate.remote(self._callee, events, count)))

    def close(self) -> None:
        """End the actors."""
        for actor in (self._caller, self._callee):
            ray.kill(actor)

    def __enter__(self) -> ActorCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _get(ref: Any) -> Any:
        return ray.get(ref, timeout=ANSWER_SECONDS)
