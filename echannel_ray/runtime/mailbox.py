"""What has arrived for one subscription, and what becomes of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from echannel_ray.core.kinds import Block
from echannel_ray.core.latencies import Latencies
from echannel_ray.core.messages import LogAddress
from echannel_ray.core.receiving import Delivered
from echannel_ray.core.streams import RETENTION
from echannel_ray.errors import EChannelError, EventsMissing, NotSerialisable
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable
from echannel_ray.runtime.crew import Errand, Waiter
from echannel_ray.runtime.timers import Timer
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.runtime.deliveries import PendingDelivery
    from echannel_ray.runtime.endpoint import Endpoint
    from echannel_ray.runtime.typed import RecordReader

logger = logging.getLogger(__name__)

# How many events of this process's own producers may wait for a subscription. (Those of others are bounded in bytes.)
WINDOW_EVENTS = 8192
_LONGEST_DESCRIPTION_BYTES = 4096
PECULIAR = frozenset({Undecodable, Notice})  # what may stand in the place of an event
# So many events go without a sample for each that has one: in this process they cost little more than a sample does,
# and with each small pack a look at the clock would show too.
_UNSAMPLED = 15


@dataclass(frozen=True)
class Message:
    """An event with what is known about it."""

    event: Any
    producer: str
    sequence: int
    published_at: float
    redelivered: bool = False
    position: Any = None
    trace: Mapping[str, str] | None = None  # where tracing is on: headers for OpenTelemetry's `propagate.extract`


@dataclass(frozen=True)
class Gap:
    """Events `first` to `last` of a producer were dropped for this consumer, by the producer's overflow policy."""

    producer: str
    first: int
    last: int


class LocalEvent(NamedTuple):
    """An event from a producer of this process: the object itself. With a `kind`, a record that has to be read first,
    or a block of `records` of them.
    """

    event: Any
    producer: str
    sequence: int
    published_at: float
    delivery: PendingDelivery | None
    turn: int = 0
    kind: int = 0
    records: int = 1


class LocalGap(NamedTuple):
    """Events from a producer of this process that were dropped here."""

    gap: Gap


class PeriodDue(NamedTuple):
    """The timer of a demodulator is due."""

    turn: int


class Told(NamedTuple):
    """An error of a producer's modulator, in the place of what that would have emitted."""

    error: EChannelError


class Source(Protocol):
    """Who fetches the events of a subscription from the logs of a retained channel."""

    def logs_are(self, logs: Sequence[LogAddress]) -> None:
        """Where the channel's logs are now; under the endpoint's lock."""

    def handled(self, item: Delivered, outcome: bytes, count: int | None = None) -> None:
        """An item is done with: handled, failed (what the outcome says) or, a zero, discarded but for so many."""

    def arrived(self) -> dict[str, int]:
        """Of each log what comes next."""

    def position(self, item: Delivered, count: int) -> Any:
        """Where to go on behind the first so many events of an item."""

    def producer(self, item: Delivered) -> str:
        """Who published it."""

    def stop(self) -> None:
        """Fetch nothing more."""

    def leave(self, timeout: float | None = None) -> None:
        """Tell the logs' keepers that nobody reads here any more, and what was handled; the mailbox is at rest."""


Item = Delivered | LocalEvent | LocalGap | PeriodDue | Told


def is_sample(first: int, count: int) -> bool:
    """Whether to look how long these events took, which came together."""
    return count > _UNSAMPLED or first & _UNSAMPLED == 1


def producer_name(endpoint: int, stream: int) -> str:
    """A producer, as messages and gaps name it."""
    return f"{endpoint:016x}.{stream}"


class Counters:
    """What `Subscription.stats()` tells."""

    __slots__ = ("arrived", "dropped", "failed", "fetched_between_nodes_bytes", "handled", "told")

    def __init__(self) -> None:
        self.arrived = self.handled = self.failed = self.dropped = 0
        self.fetched_between_nodes_bytes = 0  # from logs; of all else the senders know
        self.told = 0  # of what has arrived: errors of modulators, in the places of events

    @property
    def received(self) -> int:
        """Events that have arrived."""
        return self.arrived - self.told


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
        # Held to take from the queue, and to change what is in it; to append, the endpoint's is enough. The inner one.
        self._queue_lock = threading.Lock()
        self.local_pending = 0  # events of this process's producers in the queue: their window is in events
        self.counters = Counters()
        self.latencies = Latencies()
        self._began_at = time.time()  # what was published before is replayed: it has waited for nobody
        self.closed = False
        self.deleted = False
        self.on_error: Callable[[Any], Any] | None = None
        # By turns: how often the pair was replaced. Events of earlier turns may be on their way after a `reset`.
        self.demodulators: dict[int, Any] = {}
        self.turn = 0
        self.records: RecordReader | None = None  # of a typed channel
        self.derived = ""  # what it consumes
        self.source: Source | None = None  # of a retained channel: who reads its logs
        self.missing = 0  # events of logs that were gone before it could read them
        self.skips_missing = False  # of such only the number is wanted
        self._timers: dict[int, Timer] = {}
        self.window_events = WINDOW_EVENTS
        self.local_low_water = WINDOW_EVENTS // 2  # publishers that wait for room are woken here, not at each event
        self._idle_waiters: list[Waiter] = []
        self._at_rest: list[Callable[[], Any]] = []

    def begin_turn(self, turn: int, demodulator: Any) -> None:
        """Events of this turn, once they come, go through this demodulator (None is none)."""
        if demodulator is not None:
            self.demodulators[turn] = demodulator
            period = getattr(demodulator, "period_seconds", None)
            if period is not None:
                self._timers[turn] = self.endpoint.timers.add(period, lambda: self._period_due(turn))

    def turned(self, turn: int) -> None:
        """From now on this turn counts."""
        self.turn = turn
        for earlier in [earlier for earlier in self._timers if earlier < turn]:
            self.endpoint.timers.remove(self._timers.pop(earlier))

    def turn_failed(self, turn: int) -> None:
        """A pair could not be installed."""
        self.demodulators.pop(turn, None)
        if turn in self._timers:
            self.endpoint.timers.remove(self._timers.pop(turn))

    def _period_due(self, turn: int) -> None:
        with self.endpoint.lock:
            if not self.closed:
                self.offer(PeriodDue(turn))

    def tell(self, error: EChannelError) -> None:
        """An error of a producer in this process, in its place; under the endpoint's lock."""
        self.offer(Told(error))

    def offer(self, item: Item) -> None:
        """Something has arrived; called under the endpoint's lock, in order."""
        # Counted before it can be taken: who handles it must not find that less has arrived than is handled.
        if isinstance(item, Delivered):
            self.counters.arrived += len(item.events)
        elif isinstance(item, LocalEvent):
            self.counters.arrived += item.records
            with self._queue_lock:
                self.local_pending += item.records
        self.queue.append(item)
        self.notify()

    def pop(self) -> Item | None:
        """Take what is next, if there is something."""
        with self._queue_lock:
            return self.queue.popleft() if self.queue else None

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

    def drop_oldest(self, producer: str) -> bool:
        """Put a gap in the place of a local producer's oldest event, if one waits; under the endpoint's lock."""
        queue = self.queue
        before = -1  # where the gap is that was left by those dropped before it
        with self._queue_lock:
            for i, item in enumerate(queue):
                if isinstance(item, LocalEvent):
                    if item.producer == producer:
                        break
                elif isinstance(item, LocalGap) and item.gap.producer == producer:
                    before = i
            else:
                return False
            if not self._widen(before, producer, item.sequence):
                queue[i] = LocalGap(Gap(producer, item.sequence, item.sequence))
            else:
                del queue[i]
            self.local_pending -= 1
        self.counters.arrived -= 1
        if item.delivery is not None:
            # Not here: that takes the endpoint's lock.
            self.endpoint.crew.submit(Errand(item.delivery.local_result, None, False))
        return True

    def drop_newest(self, producer: str, sequence: int) -> None:
        """Have a gap in the place of a local producer's new event; under the endpoint's lock."""
        with self._queue_lock:
            for i in range(len(self.queue) - 1, -1, -1):
                item = self.queue[i]
                if isinstance(item, LocalEvent) and item.producer == producer:
                    break
                if self._widen(i, producer, sequence):
                    return
        self.offer(LocalGap(Gap(producer, sequence, sequence)))

    def _widen(self, i: int, producer: str, sequence: int) -> bool:
        """Have the gap that is there, if it is one and ends just before, stand for this event too."""
        item = self.queue[i] if i >= 0 else None
        if not isinstance(item, LocalGap) or item.gap.producer != producer or item.gap.last != sequence - 1:
            return False
        self.queue[i] = LocalGap(Gap(producer, item.gap.first, sequence))
        return True

    @property
    def handled(self) -> int:
        """How many events have been handled."""
        return self.counters.handled

    @property
    def pending(self) -> int:
        """Events that have arrived and are not handled."""
        if self.closed:
            return 0
        return self.counters.received - self.handled - self.counters.failed

    def totals(self) -> dict[str, Any]:
        """What a channel's statistics keep of it when it is closed."""
        totals = {
            "events_delivered": self.handled,
            "events_failed": self.counters.failed,
            "latency": self.latencies.counts(),
        }
        if self.counters.fetched_between_nodes_bytes:
            totals["bytes_between_nodes"] = self.counters.fetched_between_nodes_bytes
        if self.missing:  # the other drops are counted by the producers
            totals |= {"events_dropped": self.missing, "dropped": {RETENTION: self.missing}}
        return self._of_channel(**totals)

    def gauges(self) -> dict[str, Any]:
        """What a channel's statistics say of it only while it is open; under the endpoint's lock. See `lags`."""
        pending = max(0, self.pending)
        if self.group is not None:
            return self._of_channel(queue_depth=pending)
        if self.source is not None:
            arrived = self.source.arrived()
        else:
            arrived = self.endpoint.core.receiver.arrived(self.number, self.turn)
        return self._of_channel(queue_depth=pending, consumer_lag_events=pending, arrived=arrived)

    def _of_channel(self, **counters: Any) -> dict[str, Any]:
        return {"derived": {self.derived: counters}} if self.derived else counters

    def close(self) -> None:
        """Take and handle nothing any more; whoever delivered what is in the queue is told."""
        self.closed = True
        for timer in self._timers.values():
            self.endpoint.timers.remove(timer)
        while (item := self.pop()) is not None:
            self.discard(item)
        self.endpoint.room_made()
        self._became_idle()

    def discard(self, item: Item) -> None:
        """Nobody handles this any more: what is taken after `close` has begun has a hole before it."""
        if isinstance(item, LocalEvent):
            with self._queue_lock:
                self.local_pending -= item.records
            if item.delivery is not None:
                item.delivery.local_result(None, counts=False)
        elif isinstance(item, Delivered):
            self.let_go(item)

    def let_go(self, item: Delivered, handled: int = 0) -> None:
        """Nobody will handle it but for its first events: whoever delivered it need not wait."""
        if self.source is not None:
            self.source.handled(item, b"\0", handled)
        elif item.delivery:
            self.endpoint.let_go(item.reception, item.delivery)

    def when_idle(self) -> Waiter:
        """A waiter that is set when all that has arrived is handled."""
        waiter = Waiter()
        with self.endpoint.lock:
            self._idle_waiters.append(waiter)
        # Only now: what was handled before that saw nobody wait.
        self._became_idle()
        return waiter

    def _became_idle(self) -> None:
        if self._idle_waiters and (self.closed or self.pending <= 0):
            with self.endpoint.lock:
                waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                waiter.set()

    # ---- records ----

    def read(self, kind: int, events: Any) -> tuple[list[Any], int]:
        """What the handler gets for events of this kind as they came, and how many events each of it stands for.

        What can't be read is `Undecodable` there.
        """
        count = len(events)
        if self.records is None:
            self.endpoint.peculiar_seen = True
            return undecodable(NotSerialisable("a record came on a channel that is open without a type"), count), 1
        try:
            if not kind:
                given = [self.records.convert(event) for event in events]
                if self.records.makes_batches and any(type(event) not in PECULIAR for event in given):
                    raise NotSerialisable("what is no record can't be part of a batch: subscribe without `batches`")
                return given, 1
            given = self.records.read(kind, events)
        except Exception as error:  # its format can't be had, say
            self.endpoint.peculiar_seen = True
            return undecodable(error, count), 1
        if not PECULIAR.isdisjoint(map(type, given)):
            self.endpoint.peculiar_seen = True
        return given, count if self.records.makes_batches else 1

    def read_local(self, item: LocalEvent) -> tuple[list[Any], int]:
        """As `read`, of an event of this process."""
        if item.kind:
            return self.read(item.kind, item.event if isinstance(item.event, Block) else [item.event])
        return [item.event], 1

    # ---- outcomes ----

    def is_wanted(self, error: EChannelError) -> bool:
        """Whether to tell the user of an error that came in the place of events; what is missing is counted."""
        if not isinstance(error, EventsMissing):
            return True
        if self.source is None:  # who reads a log itself has counted it
            self.counters.dropped += error.facts["last"] - error.facts["first"] + 1
        return not self.skips_missing

    def report_told(self, error: EChannelError) -> None:
        """Report an error that came in the place of events, if it is wanted."""
        if self.is_wanted(error):
            self.report(error)

    def report(self, error: Any) -> None:
        """Hand something other than an event to `on_error`, or log it."""
        try:
            if self.on_error is None:
                logger.warning("channel %r: %s", self.channel, error)
            else:
                self.on_error(error)
        except BaseException as trouble:  # the user's function, `sys.exit()` included: that is not to end the thread
            self._log("on_error of a subscription failed", trouble)

    def told(self, notice: Notice) -> EChannelError:
        """What a notice tells. It is no event: nobody has handled it, and nothing waits for that."""
        self.counters.told += 1
        return error_of(notice)

    def failed(self, error: BaseException, count: int = 1) -> None:
        """A handler raised, or an event could not be read."""
        self.counters.failed += count
        self.tell_failure(error)

    def tell_failure(self, error: BaseException) -> None:
        """Log a failure that is counted, and hand it to `on_error`."""
        self._log("a handler failed", error)
        if self.on_error is not None:
            self.report(error)

    def rescue(self, item: Item, error: BaseException) -> None:
        """Handling it broke off in code that is not the user's: its producer must not wait for it for good."""
        self._log("an event was not handled to its end", error)
        if isinstance(item, Delivered):
            try:
                self.finish(item, error)
            except BaseException as again:
                self._log("nor was its producer told", again)

    def _log(self, what: str, error: BaseException) -> None:
        try:
            logger.warning("channel %r: %s: %s", self.channel, what, describe(error), exc_info=error)
        except BaseException:  # of a log that is the user's own
            pass

    def sample(self, published_at: float, first_at: float = 0.0) -> None:
        """An event was handled just now, and (at that time) the first one that came with it: how long did they take?

        All events of a pack have one time, that of the oldest.
        """
        if published_at >= self._began_at:
            self.latencies.add(time.time() - published_at)
            if first_at:
                self.latencies.add(first_at - published_at)

    def finish(self, item: Delivered, failure: BaseException | None) -> None:
        """All events of a run are handled (or failed): report the mark, and a delivery's result."""
        outcome = describe(failure).encode() if failure is not None else b""
        if self.source is not None:
            self.source.handled(item, outcome)
        else:
            self.endpoint.run_handled(item.reception, item.mark, item.delivery, outcome)

    def message_of(self, item: Delivered, index: int, event: Any, weight: int) -> Message:
        """An event of a run (or so many, in one batch), with what is known about it."""
        source = self.source
        if source is not None:
            producer = source.producer(item)
            position = source.position(item, index + weight)
        else:
            stream = item.reception.stream
            producer = producer_name(stream.endpoint, stream.producer)
            position = None
        return Message(event, producer, item.first + index, item.published_at, item.redelivered, position)

    def finish_local(self, item: LocalEvent, failure: BaseException | None) -> None:
        """An event of this process is handled."""
        if item.sequence & _UNSAMPLED == 1:
            self.sample(item.published_at)
        with self._queue_lock:
            self.local_pending -= item.records
        if item.delivery is not None:
            item.delivery.local_result(describe(failure) if failure is not None else None, counts=True)
        self.endpoint.local_handled(self)

    def gap_of(self, item: Delivered) -> Gap:
        """What a gap in the queue stands for."""
        stream = item.reception.stream
        gap = Gap(producer_name(stream.endpoint, stream.producer), item.first, item.gap_last)
        self.counters.dropped += gap.last - gap.first + 1
        return gap


def receiver_of(receive: Callable[[Any], Iterable[Any] | None], handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A handler behind a demodulator."""

    def handle(event: Any) -> None:
        for each in receive(event) or ():
            handler(each)

    return handle


def error_of(notice: Notice) -> EChannelError:
    """What a notice tells."""
    try:
        wire.decode(notice.error)
    except EChannelError as error:
        return error
    except wire.MalformedMessage as error:
        return EChannelError(f"a producer sent a notice that can't be read: {error}")
    return EChannelError("a producer sent a notice without an error")


def undecodable(error: Exception, count: int) -> list[Any]:
    """What stands in the places of events that can't be read."""
    return [Undecodable(error, None)] * count


def describe(error: BaseException) -> str:
    """A failure as it travels to whoever delivered: not too long, and fit for UTF-8."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # of the user's own `__str__`
        text = type(error).__name__
    return text.encode("utf-8", "replace")[:_LONGEST_DESCRIPTION_BYTES].decode("utf-8", "ignore")


def unreadable(event: Undecodable) -> Exception:
    """What to report for an event that could not be read here."""
    if isinstance(event.error, ImportError | AttributeError):
        advice = "make its class importable in this process (install the module, or put it into Ray's runtime_env)"
        reason = describe(event.error)
        return NotSerialisable(f"an event could not be read here: {reason}; {advice}", reason=reason)
    return event.error
