"""An inline modulator where tracing is on: it sees events without their traces, and what passes has its own again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from echannel_ray.formats.trace_context import Traced
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulation.replica import Replica
from echannel_ray.modulation.services import Services


class TracedReplica(Replica):
    """A replica whose events carry traces. An event that it emits in a later call than it got it in has none: to know
    it by then, it would have to be kept for good.
    """

    def __init__(self, modulator: Modulator, services: Services) -> None:
        super().__init__(modulator, services)
        self._enqueue = modulator.enqueue
        self.enqueue_one = self._enqueue_opened
        self._given: dict[int, Traced] = {}  # by the ids of the events

    @override
    def enqueue(self, events: Sequence[Any]) -> None:
        self._given.clear()
        super().enqueue([self._opened(event) for event in events])

    def _enqueue_opened(self, event: Any) -> None:
        self._given.clear()
        self._enqueue(self._opened(event))

    @override
    def dequeue(self, count: int) -> list[Any]:
        taken: list[Any] = []
        while self.waiting and len(taken) < count:
            event = self.modulator.dequeue(self._opened(self.waiting.popleft()))
            if event is not None:
                taken += self._closed([event])
            self.keep_emitted()
        return taken

    @override
    def take(self) -> list[Any]:
        taken = self._closed(super().take())
        self._given.clear()
        return taken

    @override
    def keep_emitted(self) -> None:
        if self.queues:
            self.waiting.extend(self._closed(self.emitted))
            self.emitted.clear()
            self._given.clear()

    def _opened(self, event: Any) -> Any:
        if type(event) is not Traced:
            return event
        self._given[id(event.event)] = event
        return event.event

    def _closed(self, emitted: Iterable[Any]) -> list[Any]:
        return [self._given.get(id(event), event) for event in emitted]
