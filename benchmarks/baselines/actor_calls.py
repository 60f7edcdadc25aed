"""Ray actor calls: what a Ray program does without event channels. The caller is an actor too, to be pinned."""

from __future__ import annotations

import os
import time
from itertools import cycle, islice
from typing import Any

import ray

from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.field import answer, start


class Callee:
    """Takes calls and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def handle(self, event: Any) -> None:
        """One event, whose caller waits."""
        self._count += 1

    def post(self, event: Any) -> None:
        """One event, whose caller does not wait."""
        self._count += 1

    def count(self) -> int:
        """How many calls came before this one."""
        return self._count

    def pid(self) -> int:
        """The process's id."""
        return os.getpid()


class Stage(Callee):
    """Calls the next stage with what it was called with."""

    def __init__(self, onward: Any | None) -> None:
        super().__init__()
        self._onward = onward

    def handle(self, event: Any) -> None:
        """One event; done when the stages that follow are."""
        super().handle(event)
        if self._onward:
            ray.get(self._onward.handle.remote(event))

    def post(self, event: Any) -> None:
        """One event; the stages that follow will be done some time."""
        super().post(event)
        if self._onward:
            self._onward.post.remote(event)

    def count(self) -> int:
        """How many events came through all stages: the calls of each stage are ordered."""
        return int(ray.get(self._onward.count.remote())) if self._onward else super().count()


class Caller:
    """Calls callees, and measures."""

    def pid(self) -> int:
        """The process's id."""
        return os.getpid()

    def round_trip_seconds(self, callees: list[Any], event: Any, count: int) -> float:
        """Seconds of a call to each and `ray.get` of the results."""
        began = time.perf_counter()
        if len(callees) == 1:
            for _ in range(count):
                ray.get(callees[0].handle.remote(event))
        else:
            for _ in range(count):
                ray.get([callee.handle.remote(event) for callee in callees])
        return (time.perf_counter() - began) / count

    def one_way_rate(self, callees: list[Any], events: list[Any], count: int) -> float:
        """Events a second when nobody waits for the results; calls are ordered, so the last ones wait for all."""
        began = time.perf_counter()
        for event in islice(cycle(events), count):
            for callee in callees:
                callee.post.remote(event)
        ray.get([callee.count.remote() for callee in callees])
        return count / (time.perf_counter() - began)


class ActorCalls(Closing):
    """A caller and some callees, each in a process, of one node."""

    def __init__(self, callees: int = 1) -> None:
        self._callees = self._start_callees(callees)
        self.other_pids = [int(pid) for pid in answer([callee.pid.remote() for callee in self._callees])]
        self._caller = self._start_caller()
        self.source_pids = [int(answer(self._caller.pid.remote()))]

    def round_trip_seconds(self, event: Any, count: int, callees: int | None = None) -> float:
        """Seconds of calling so many (or all) with an event and `ray.get` of the results."""
        return float(answer(self._caller.round_trip_seconds.remote(self._called(callees), event, count)))

    def one_way_rate(self, events: list[Any], count: int, callees: int | None = None) -> float:
        """Events a second, each to so many (or all), when nobody waits for the results."""
        return float(answer(self._caller.one_way_rate.remote(self._called(callees), events, count)))

    def one_way_seconds(self, events: list[Any], count: int, callees: int | None = None) -> float:
        """Seconds of an event when nobody waits for the results."""
        return 1 / self.one_way_rate(events, count, callees)

    def _start_callees(self, number: int) -> list[Any]:
        return [start(Callee) for _ in range(number)]

    def _start_caller(self) -> Any:
        return start(Caller)

    def _called(self, number: int | None) -> list[Any]:
        return self._callees[:number]

    def close(self) -> None:
        """End the actors."""
        for actor in (self._caller, *self._callees):
            ray.kill(actor)


class ActorChain(ActorCalls):
    """The same with stages, each of which calls the next: the caller calls the first of so many."""

    def _start_callees(self, number: int) -> list[Any]:
        stages: list[Any] = []
        for _ in range(number):
            stages.insert(0, start(Stage, stages[0] if stages else None))
        return stages

    def _called(self, number: int | None) -> list[Any]:
        return [self._callees[-(number or len(self._callees))]]
