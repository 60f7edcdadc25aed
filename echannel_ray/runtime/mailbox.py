"""What has arrived for one subscription, and what becomes of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.packs import Undecodable
from echannel_ray.protocol.receiving import Delivered
from echannel_ray.runtime.crew import Waiter

if TYPE_CHECKING:
    from echannel_ray.runtime.deliveries import Delivery
    from echannel_ray.runtime.endpoint import Endpoint

logger = logging.getLogger(__name__)

# How many events of this process's own producers may wait for a subscription. (Those of others are bounded in bytes.)
WINDOW_EVENTS = 8192


@dataclass(frozen=True)
class Message:
    """An event with what is known about it."""

    event: Any
    producer: str
    sequence: int
    published_at: float
    redelivered: bool = False
    position: Any = None


@dataclass(frozen=True)
class Gap:
    """Events `first` to `last` of a producer were dropped for this consumer, by the producer's overflow policy."""

    producer: str
    first: int
    last: int


class LocalEvent(NamedTuple):
    """An event from a producer of this process: the object itself."""

    event: Any
    producer: str
    sequence: int
    published_at: float
    delivery: Delivery | None


class LocalGap(NamedTuple):
    """Events from a producer of this process that were dropped here."""

    gap: Gap


Item = Delivered | LocalEvent | LocalGap


def producer_name(endpoint: int, stream: int) -> str:
    """A producer, as messages and gaps name it."""
    return f"{endpoint:016x}.{stream}"


class Counters:
    """What `Subscription.stats()` tells."""

    __slots__ = ("dropped", "failed", "handled", "received")

    def __init__(self) -> None:
        self.received = self.handled = self.failed = self.dropped = 0


class Mailbox:
    """One per subscription: its queue, and the state of its handler."""

    is_pulled = False  # its user asks for events, and learns of its end then

    def __init__(self, endpoint: Endpoint, number: int, channel: str, group: str | None, pair: str) -> None:
        self.endpoint = endpoint
        self.number = number
        self.channel = channel
        self.group = group
        self.pair = pair
        self.incarnation = 0  # of the channel
        self.queue: deque[Item] = deque()
        self.local_pending = 0  # events of this process's producers in the queue: their window is in events
        self.counters = Counters()
        self.closed = False
        self.deleted = False
        self.on_error: Callable[[Any], Any] | None = None
        self.window_events = WINDOW_EVENTS
        self.local_low_water = WINDOW_EVENTS // 2  # publishers that wait for room are woken here, not at each event
        self._idle_waiters: list[Waiter] = []
        self._at_rest: list[Callable[[], Any]] = []

    def offer(self, item: Item) -> None:
        """Something has arrived; called under the endpoint's lock, in order."""
        self.queue.append(item)
        if isinstance(item, Delivered):
            self.counters.received += len(item.events)
        elif isinstance(item, LocalEvent):
            self.counters.received += 1
            self.local_pending += 1
        self.notify()

    def notify(self) -> None:
        """There is something in the queue."""
        raise NotImplementedError

    def is_current_thread(self) -> bool:
        """Whether the calling thread is in this subscription's handler."""
        return False

    @property
    def is_at_rest(self) -> bool:
        """Whether no event is being handled."""
        return True

    def at_rest(self, action: Callable[[], Any]) -> None:
        """Do this when the event that is being handled, if one is, has been; for a closed mailbox."""
        self._at_rest.append(action)
        if self.is_at_rest:
            self._came_to_rest()

    def _came_to_rest(self) -> None:
        while self._at_rest:
            try:
                action = self._at_rest.pop()
            except IndexError:
                return  # another thread was faster
            action()

    def drop_oldest(self, producer: str) -> None:
        """Put a gap in the place of a local producer's oldest event; under the endpoint's lock."""
        for i, item in enumerate(self.queue):
            if isinstance(item, LocalEvent) and item.producer == producer:
                before = self.queue[i - 1] if i else None
                gap = Gap(producer, item.sequence, item.sequence)
                if (
                    isinstance(before, LocalGap)
                    and before.gap.producer == producer
                    and before.gap.last == item.sequence - 1
                ):
                    gap = Gap(producer, before.gap.first, item.sequence)
                    del self.queue[i]
                    i -= 1
                self.queue[i] = LocalGap(gap)
                self.local_pending -= 1
                self.counters.received -= 1
                if item.delivery is not None:
                    item.delivery.local_result(None, counts=False)
                return

    @property
    def pending(self) -> int:
        """Events that have arrived and are not handled."""
        if self.closed:
            return 0
        return self.counters.received - self.counters.handled - self.counters.failed

    def totals(self) -> dict[str, int]:
        """What a channel's statistics keep of it when it is closed."""
        return {"events_delivered": self.counters.handled, "events_failed": self.counters.failed}

    def close(self) -> None:
        """Take and handle nothing any more; whoever delivered what is in the queue is told."""
        self.closed = True
        while self.queue:
            try:
                item = self.queue.popleft()
            except IndexError:
                break  # the handler's thread took it between the two
            self.discard(item)
        self.endpoint.room_made()
        self._became_idle()

    def discard(self, item: Item) -> None:
        """Nobody handles this any more: what is taken after `close` has begun has a hole before it."""
        if isinstance(item, LocalEvent):
            self.local_pending -= 1
            if item.delivery is not None:
                item.delivery.local_result(None, counts=False)
        elif isinstance(item, Delivered) and item.delivery:
            self.endpoint.send_result(item.reception, item.delivery, b"\0")

    def when_idle(self) -> Waiter:
        """A waiter that is set when all that has arrived is handled."""
        waiter = Waiter()
        with self.endpoint.lock:
            if self.closed or self.pending <= 0:
                waiter.set()
            else:
                self._idle_waiters.append(waiter)
        return waiter

    def _became_idle(self) -> None:
        if self._idle_waiters and (self.closed or self.pending <= 0):
            with self.endpoint.lock:
                waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                waiter.set()

    # ---- outcomes ----

    def report(self, error: Any) -> None:
        """Hand something other than an event to `on_error`, or log it."""
        if self.on_error is None:
            logger.warning("channel %r: %s", self.channel, error)
            return
        try:
            self.on_error(error)
        except Exception:  # the user's function: its trouble is not to end the thread
            logger.exception("on_error of a subscription of channel %r failed", self.channel)

    def failed(self, error: BaseException) -> None:
        """A handler raised, or an event could not be read."""
        self.counters.failed += 1
        logger.warning("a handler of channel %r failed: %r", self.channel, error, exc_info=error)
        if self.on_error is not None:
            self.report(error)

    def finish(self, item: Delivered, failure: BaseException | None) -> None:
        """All events of a run are handled (or failed): report the mark, and a delivery's result."""
        outcome = describe(failure) if failure is not None else b""
        self.endpoint.run_handled(item.reception, item.mark, item.delivery, outcome)

    def finish_local(self, item: LocalEvent, failure: BaseException | None) -> None:
        """An event of this process is handled."""
        self.local_pending -= 1
        if item.delivery is not None:
            item.delivery.local_result(describe(failure).decode() if failure else None, counts=True)
        self.endpoint.local_handled(self)

    def gap_of(self, item: Delivered) -> Gap:
        """What a gap in the queue stands for."""
        stream = item.reception.stream
        gap = Gap(producer_name(stream.endpoint, stream.number), item.first, item.gap_last)
        self.counters.dropped += gap.last - gap.first + 1
        return gap


def describe(error: BaseException) -> bytes:
    """A failure as it travels to whoever delivered."""
    text = f"{type(error).__name__}: {error}"
    return text.encode("utf-8", "replace")[:4096]


def unreadable(event: Undecodable) -> Exception:
    """What to report for an event that could not be read here."""
    if isinstance(event.error, ImportError | AttributeError):
        advice = "make its class importable in this process (install the module, or put it into Ray's runtime_env)"
        return NotSerialisable(f"an event could not be read here: {event.error}; {advice}", reason=str(event.error))
    return event.error
