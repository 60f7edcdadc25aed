"""Something measured by itself: in a process of its own, which is pinned and has none of Ray's threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.pinning import place
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, sized

Timed = Callable[[int], float]  # of so many calls, the seconds that each took
FRESH_BLOCKS = 64
MAX_CALLS = 2_000_000


class Alone(Child):
    """Runs what `make(*arguments)` gives, by name; `make` is called in the process itself."""

    def __init__(self, make: Callable[..., Mapping[str, Timed]], *arguments: Any) -> None:
        super().__init__(_serve, make, *arguments)
        self.names: list[str] = self.answer()
        place("one", [], [self.pid])

    def measures(
        self, plan: Plan, names: Iterable[str] | None = None, events_each: int = 1, max_calls: int = MAX_CALLS
    ) -> dict[str, Measure]:
        """For `interleave`: the seconds of an event, where a call is for several.

        `max_calls` is for what takes longer than is measured, such as making the bytes that a call is given.
        """
        return {name: self._measure(plan, name, events_each, max_calls) for name in names or self.names}

    def _measure(self, plan: Plan, name: str, events_each: int, max_calls: int) -> Measure:
        rate = sized(plan, lambda count: 1 / float(self.ask((name, count))), 5, max_calls)
        return lambda: 1 / rate() / events_each


def _serve(pipe: Connection, make: Callable[..., Mapping[str, Timed]], *arguments: Any) -> None:
    measures = make(*arguments)
    pipe.send([*measures])
    for name, count in requests(pipe):
        pipe.send(measures[name](count))


def timed(call: Callable[[], object]) -> Timed:
    """Of a call without arguments."""

    def measure(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - began) / count

    return measure


def timed_on_fresh(call: Callable[[bytes], object], content: bytes) -> Timed:
    """Of a call on bytes of this content that were made just before, as those that arrive are."""
    template = bytearray(content)

    def measure(count: int) -> float:
        seconds = 0.0
        for left in range(count, 0, -FRESH_BLOCKS):
            blocks = [bytes(template) for _ in range(min(left, FRESH_BLOCKS))]
            began = time.perf_counter()
            for block in blocks:
                call(block)
            seconds += time.perf_counter() - began
        return seconds / count

    return measure


def copied(data: bytes) -> bytes:
    """A memcpy: what no reading of the bytes could be quicker than, if it copied them."""
    return bytes(memoryview(data))


def difference(more: Samples, less: Samples) -> Samples:
    """What the one takes more than the other.

    Of the best of each: the best of the rounds' differences would be that in which the lesser one was disturbed.
    """
    return Samples(more.unit, more.higher_is_better, [max(more.best - less.best, 0.0)])
