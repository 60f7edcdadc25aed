"""One modulator at work at one producer. Pure: whoever calls it decides in which process that is, and how long it may
take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import length_hint
from typing import Any

from echannel_ray.modulation.modulator import Modulator, overrides
from echannel_ray.modulation.services import Services


class BrokenAt(Exception):
    """The modulator raised at one event of a batch (`.index`); `.cause` is what it raised."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(described(cause))
        self.index = index
        self.cause = cause


def described(error: BaseException) -> str:
    """An exception of code that may be anybody's, as text."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as trouble:  # of its own `__str__`
        text = f"(its __str__ raises {type(trouble).__name__})"
    return f"{name}: {text}" if text else name


class Replica:
    """Calls the modulator, and keeps what it emits until that is taken.

    What a modulator that overrides `dequeue` emits waits in `waiting` until the transport is ready.
    """

    def __init__(self, modulator: Modulator, services: Services) -> None:
        self.modulator = modulator
        self.emitted: list[Any] = []
        self.waiting: deque[Any] = deque()
        self.queues = overrides(modulator, "dequeue")
        self.current: Any = None  # of the batch that it works on, an iterator: what it has not begun with
        modulator.services = services
        # An attribute of its own, and the list's method: an event that passes costs no call of Python code here.
        modulator.emit = self.emitted.append  # type: ignore[method-assign, assignment]
        self.enqueue_one = modulator.enqueue

    def enqueue(self, events: Sequence[Any]) -> None:
        """Have the modulator see each event. `BrokenAt` where it raises: those behind that one have not been seen."""
        enqueue = self.modulator.enqueue
        self.current = remaining = iter(events)
        try:
            for event in remaining:
                enqueue(event)
        except BaseException as error:
            raise BrokenAt(len(events) - length_hint(remaining) - 1, error) from None
        finally:
            self.current = None
            self.keep_emitted()

    def left(self) -> int:
        """How many events of the batch that it works on it has not begun with."""
        current = self.current
        return length_hint(current) if current is not None else 0

    def period(self) -> None:
        """Run the modulator's period: its timer is due."""
        try:
            self.modulator.period()
        finally:
            self.keep_emitted()

    def flush(self) -> None:
        """Have the modulator emit what it holds back."""
        try:
            self.modulator.flush()
        finally:
            self.keep_emitted()

    def dequeue(self, count: int) -> list[Any]:
        """The transport can take so many events: what to send. Fewer, when no more wait or the modulator drops some."""
        taken: list[Any] = []
        while self.waiting and len(taken) < count:
            event = self.modulator.dequeue(self.waiting.popleft())
            self.keep_emitted()
            if event is not None:
                taken.append(event)
        return taken

    def take(self) -> list[Any]:
        """Take what the modulator has emitted since the last time, if it keeps no queue."""
        taken = self.emitted[:]
        self.emitted.clear()
        return taken

    def keep_emitted(self) -> None:
        """Have what was emitted wait, if the modulator keeps a queue."""
        if self.queues:
            self.waiting.extend(self.emitted)
            self.emitted.clear()
