"""Who has the events of an inbox handled, and when: what functions, coroutines and those who ask have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import override

from echannel_ray.compilation import mypyc_attr
from echannel_ray.consumers.bare_methods import bare

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox

Receive = Callable[[Any], Iterable[Any] | None]  # of a demodulator


@mypyc_attr(allow_interpreted_subclasses=True)
class Driver:
    """Takes one item after another from the queue of an inbox, and has it handled; one per inbox."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.is_pulled = False  # its user asks for events, and learns of its end then

    def add_version(self, version: int, receive: Receive | None) -> None:
        """Events of this version of the handler, once they come, go through this method of its demodulator."""

    def notify(self) -> None:
        """Begin, if at rest: there is something in the queue. Under the endpoint's lock."""
        raise NotImplementedError

    def close(self) -> None:
        """The inbox is closed and its queue empty: nothing more is handled but the event that is being handled."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no event is being handled."""
        return True

    def is_busy(self) -> bool:
        """Whether it will look at the inbox, and at what refills it, before it stops."""
        return False

    def is_current_thread(self) -> bool:
        """Whether the calling thread is in the subscription's handler."""
        return False

    @property
    def handled(self) -> int:
        """How many events have been handled, the run that is being handled as far as it has come."""
        return self.inbox.counters.handled


HandlerT = TypeVar("HandlerT", bound=Callable[[Any], Any])


@mypyc_attr(allow_interpreted_subclasses=True)
class HandlerDriver(Driver, Generic[HandlerT]):
    """Has a handler called: something runs it from the first event that comes until the queue is found empty."""

    def __init__(self, handler: HandlerT, inbox: Inbox) -> None:
        super().__init__(inbox)
        self._handler: HandlerT = bare(handler)  # type: ignore[assignment]  # of the same kind
        self._handlers = {0: self._handler}  # by versions, behind their demodulators
        self._mutex = threading.Lock()  # held to begin, and to find the queue empty and end
        self._running = False

    @property
    @override
    def is_at_rest(self) -> bool:
        return not self._running

    @override
    def is_busy(self) -> bool:
        with self._mutex:
            return self._running
