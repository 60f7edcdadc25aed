"""What has arrived for one subscription, and the books of what became of it.

An inbox has a queue, counters, and whoever waits until all is handled. Its driver decides where and when the next item
is handled: on a thread of the crew, on an event loop, or when somebody asks. Its supply is what fills it. Each run of
events in it has a source, which is told what became of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from echannel_ray.compilation import mypyc_attr
from echannel_ray.consumers.bare_methods import bare
from echannel_ray.consumers.driver import Driver
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.consumers.trouble import PECULIAR, describe, error_of, undecodable
from echannel_ray.core.arrivals import AS_GIVEN, Arrival, Source
from echannel_ray.core.latencies import Latencies
from echannel_ray.core.messages import LogAddress
from echannel_ray.core.streams import RETENTION
from echannel_ray.endpoint.crew import Waiter
from echannel_ray.endpoint.timers import Timer
from echannel_ray.errors import EChannelError, EventsMissing, NotSerialisable
from echannel_ray.formats.events import Notice

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.endpoint.record_codec import RecordReader
    from echannel_ray.producers.handover import Handover

logger = logging.getLogger(__name__)

# How many events of this process's own producers may wait for a subscription. (Those of others are bounded in bytes.)
WINDOW_EVENTS: Final = 8192
# So many events go without a sample for each that has one: in this process they cost little more than a sample does,
# and with each small pack a look at the clock would show too. The bits of a number that is sampled.
UNSAMPLED: Final = 15


class PeriodDue(NamedTuple):
    """The timer of a demodulator is due."""

    version: int


class Trouble(NamedTuple):
    """An error in the place of events: what a modulator failed with, say, or that events of a log are gone."""

    error: EChannelError


Item = Arrival[Source] | PeriodDue | Trouble


class Tracer(Protocol):
    """Has spans around what handlers do, where tracing is on."""

    def function(self, inbox: Inbox, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that handles each event inside a span."""

    def coroutine(self, inbox: Inbox, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A coroutine function that does."""

    def receiving(self, inbox: Inbox, message: Message) -> AbstractContextManager[Message]:
        """A span in which a message is handed out: the message that says so."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Supply:
    """What fills an inbox. This one: the streams of producers, whose events come by themselves."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.reads_logs = False  # of a retained channel, which have to be told how far they were handled

    def logs_are(self, logs: Sequence[LogAddress]) -> None:
        """Take in where the channel's logs are now; under the endpoint's lock."""

    def arrived(self) -> dict[str, int]:
        """What comes next of each stream or log; under the endpoint's lock."""
        return self._inbox.endpoint.core.receiver.arrived(self._inbox.number, self._inbox.version)

    def stop(self) -> None:
        """Have nothing more come."""

    def leave(self, timeout: float | None = None) -> None:
        """Tell who keeps the logs that nobody reads here any more, and what was handled; the inbox is at rest."""


class Counters:
    """The counters that `Subscription.stats()` tells."""

    __slots__ = ("arrived", "dropped", "failed", "fetched_between_nodes_bytes", "handled", "told")

    def __init__(self) -> None:
        self.arrived = self.handled = self.failed = self.dropped = 0
        self.fetched_between_nodes_bytes = 0  # from logs; of all else the senders know
        self.told = 0  # of what has arrived: errors of modulators, in the places of events

    @property
    def received(self) -> int:
        """How many events have arrived."""
        return self.arrived - self.told


class Inbox:
    """The queue of one subscription, and what is known about it.

    It has many attributes since it is where all of a subscription meets: what the books of the channel's manager say of
    it, what has arrived, what became of that, and who waits for it.
    """

    def __init__(
        self,
        endpoint: ProcessEndpoint,
        number: int,
        channel: str,
        group: str | None,
        fingerprint: str,
        drive: Callable[[Inbox], Driver],
        tracer: Tracer | None = None,
    ) -> None:
        self.endpoint = endpoint
        # What managers and producers know of it.
        self.number = number
        self.channel = channel
        self.incarnation = 0  # of the channel
        self.group = group
        self.fingerprint = fingerprint  # of the handler's two halves; members of a group have equal ones
        self.derived = ""  # what it consumes
        self.version = 0  # of the handler: how often it was replaced. Events of earlier ones may still be on their way
        # How events are handled.
        self.records: RecordReader | None = None  # of a typed channel
        self.demodulators: dict[int, Any] = {}  # by versions
        self._timers: dict[int, Timer] = {}
        self.on_error: Callable[[Any], Any] | None = None
        self.skips_missing = False  # of events that were gone only the number is wanted
        self.tracer = tracer
        self.supply = Supply(self)
        # What has arrived.
        self.queue: deque[Item] = deque()
        # Held to take from the queue, and to change what is in it; to append, the endpoint's is enough. The inner one.
        self.queue_lock = threading.Lock()
        self.is_seated = False  # whether some of its events may be handled by the endpoint's `MixedDriver`
        self.local_pending = 0  # events of this process's producers in the queue: their window is in events
        self.window_events = WINDOW_EVENTS
        self.local_low_water = WINDOW_EVENTS // 2  # publishers that wait for room are woken here, not at each event
        self.handovers: dict[Handover, None] = {}  # in which there may be more of them, or they are counted beforehand
        # What became of it.
        self.counters = Counters()
        self.latencies = Latencies()
        self.missing = 0  # events of logs that were gone before they could be read
        self._began_at = time.time()  # what was published before is replayed: it has waited for nobody
        self.closed = False
        self.deleted = False  # its channel was
        self._idle_waiters: list[Waiter] = []
        self._rest_actions: list[Callable[[], Any]] = []
        self.driver = drive(self)
        self._notify = self.driver.notify

    # ---- versions of the handler ----

    def add_version(self, version: int, demodulator: Any) -> None:
        """Events of this version, once they come, go through this demodulator (None is none)."""
        if demodulator is not None:
            self.demodulators[version] = demodulator
            period = getattr(demodulator, "period_seconds", None)
            if period is not None:
                self._timers[version] = self.endpoint.timers.add(period, lambda: self._period_due(version))
        self.driver.add_version(version, None if demodulator is None else bare(demodulator.receive))

    def use_version(self, version: int) -> None:
        """Go over to a version of the handler."""
        self.version = version
        for earlier in [earlier for earlier in self._timers if earlier < version]:
            self.endpoint.timers.remove(self._timers.pop(earlier))

    def drop_version(self, version: int) -> None:
        """Forget a version of the handler: it could not be installed."""
        self.demodulators.pop(version, None)
        if version in self._timers:
            self.endpoint.timers.remove(self._timers.pop(version))

    def _period_due(self, version: int) -> None:
        with self.endpoint.lock:
            if not self.closed:
                self._put(PeriodDue(version))

    # ---- what comes; under the endpoint's lock, in order ----

    def offer(self, run: Arrival[Source]) -> None:
        """Put events that have arrived, or a gap in their place, into the queue."""
        if self.is_seated:
            self.leave_seats()
        # Counted before it can be taken: who handles it must not find that less has arrived than is handled.
        self.counters.arrived += len(run.events)
        self.queue.append(run)
        self._notify()

    def tell(self, error: EChannelError) -> None:
        """Put an error into the queue, in its place among the events."""
        self._put(Trouble(error))

    def leave_seats(self) -> None:
        """Have all its events come in runs, behind those that came by a mixture; under the endpoint's lock."""
        self.is_seated = False
        self.endpoint.core.receiver.stand_up_all(self.number)
        mixed = self.endpoint.mixed
        if mixed.is_busy:
            mixed.give_way(self)
        mixed.count(self)

    def _put(self, item: Item) -> None:
        if self.is_seated:
            self.leave_seats()
        self.queue.append(item)
        self._notify()

    def take_in(self) -> bool:
        """Have in the queue what producers of this process have published. Whether there was more of it."""
        return sum(handover.absorb() for handover in [*self.handovers]) > 0

    def settle(self) -> None:
        """Have counted of this process's events only what is there."""
        for handover in [*self.handovers]:
            handover.room = 0
            handover.absorb()

    # ---- what drivers take ----

    def refill(self) -> None:
        """Take in what producers of this process have published the short way, and have them take the other one where
        that was nothing; the queue is empty. Without the endpoint's lock.
        """
        with self.endpoint.lock:
            if not self.take_in():
                self.settle()

    def pop(self) -> Item | None:
        """Take the next item of the queue, if there is one."""
        with self.queue_lock:
            return self.queue.popleft() if self.queue else None

    def put_back(self, item: Item) -> None:
        """Put an item back, to come next again."""
        with self.queue_lock:
            self.queue.appendleft(item)

    def read(self, run: Arrival[Source]) -> tuple[Any, int]:
        """What the handler gets for the events of a run, and how many events each of it stands for.

        What can't be read is `Undecodable` there.
        """
        kind, events, records = run.kind, run.events, self.records
        if kind == AS_GIVEN or (kind <= 0xFF and (records is None or records.takes_any)):
            return events, 1
        count = len(events)
        try:
            if records is None:
                raise NotSerialisable("a record came on a channel that is open without a type")
            if kind > 0xFF:
                given = records.read(kind, events)
            else:
                given = [records.convert(event) for event in events]
                if records.makes_batches and any(type(event) not in PECULIAR for event in given):
                    raise NotSerialisable("what is no record can't be part of a batch: subscribe without `batches`")
        except Exception as error:  # its format can't be had, say
            self.endpoint.peculiar_seen = True
            return undecodable(error, count), 1
        if not PECULIAR.isdisjoint(map(type, given)):
            self.endpoint.peculiar_seen = True
        return given, count if kind > 0xFF and records.makes_batches else 1

    def close_run(self, run: Arrival[Source], failure: BaseException | None) -> None:
        """Report that all events of a run are handled, or failed: the failure is that of the last one."""
        outcome = b"" if failure is None else describe(failure).encode()
        run.source.close_run(run, outcome, self.endpoint)

    def close_gap(self, run: Arrival[Source]) -> Gap:
        """The gap that a run without events stands for; it is counted, and done with."""
        gap = Gap(run.source.producer, run.first, run.gap_last)
        self.counters.dropped += gap.last - gap.first + 1
        self.close_run(run, None)
        return gap

    def release(self, run: Arrival[Source], handled: int = 0) -> None:
        """Report that nobody will handle a run but for its first events: whoever delivered it need not wait."""
        run.source.release(run, handled, self.endpoint)

    def discard(self, item: Item) -> None:
        """Drop an item that nobody handles: what is taken after `close` has begun has a hole before it."""
        if isinstance(item, Arrival):
            self.release(item)

    def rescue(self, item: Item, error: BaseException) -> None:
        """Handling it broke off in code that is not the user's: its producer must not wait for it for good."""
        self._log("an event was not handled to its end", error)
        if isinstance(item, Arrival):
            try:
                self.close_run(item, error)
            except BaseException as again:
                self._log("nor was its producer told", again)

    def sample(self, published_at: float, first_at: float = 0.0) -> None:
        """An event was handled just now, and (at that time) the first one that came with it: how long did they take?

        All events of a pack have one time, that of the oldest.
        """
        if published_at >= self._began_at:
            self.latencies.add(time.time() - published_at)
            if first_at:
                self.latencies.add(first_at - published_at)

    # ---- what users are told ----

    def is_wanted(self, error: EChannelError) -> bool:
        """Whether to tell the user of an error that came in the place of events; what is missing is counted."""
        if not isinstance(error, EventsMissing):
            return True
        if not self.supply.reads_logs:  # who reads logs has counted it
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
        """Count and report a failure: a handler raised, or an event could not be read."""
        self.counters.failed += count
        self.tell_failure(error)

    def tell_failure(self, error: BaseException) -> None:
        """Log a failure that is counted, and hand it to `on_error`."""
        self._log("a handler failed", error)
        if self.on_error is not None:
            self.report(error)

    def _log(self, what: str, error: BaseException) -> None:
        try:
            logger.warning("channel %r: %s: %s", self.channel, what, describe(error), exc_info=error)
        except BaseException:  # of a log that is the user's own
            pass

    # ---- what statistics are told ----

    @property
    def pending(self) -> int:
        """How many events have arrived and are not handled."""
        if self.closed:
            return 0
        return self.counters.received - self.driver.handled - self.counters.failed

    def totals(self) -> dict[str, Any]:
        """The counters that a channel's statistics keep of a subscription that is closed; under the endpoint's lock."""
        self.endpoint.mixed.count(self)
        totals = {
            "events_delivered": self.driver.handled,
            "events_failed": self.counters.failed,
            "latency": self.latencies.counts(),
        }
        if self.counters.fetched_between_nodes_bytes:
            totals["bytes_between_nodes"] = self.counters.fetched_between_nodes_bytes
        if self.missing:  # the other drops are counted by the producers
            totals |= {"events_dropped": self.missing, "dropped": {RETENTION: self.missing}}
        return self._of_channel(**totals)

    def gauges(self) -> dict[str, Any]:
        """What a channel's statistics say of it only while it is open; under the endpoint's lock.

        Of a group's members it does not say how far they lag: producers and logs know that of the group.
        """
        pending = max(0, self.pending)
        if self.group is not None:
            return self._of_channel(queue_depth=pending)
        return self._of_channel(queue_depth=pending, consumer_lag_events=pending, arrived=self.supply.arrived())

    def _of_channel(self, **counters: Any) -> dict[str, Any]:
        return {"derived": {self.derived: counters}} if self.derived else counters

    # ---- the end, and who waits ----

    def close(self) -> None:
        """Take and handle nothing any more; whoever delivered what is in the queue is told."""
        self.closed = True
        for timer in self._timers.values():
            self.endpoint.timers.remove(timer)
        while (item := self.pop()) is not None:
            self.discard(item)
        self.endpoint.room_made()
        self.became_idle()
        self.driver.close()

    def when_idle(self) -> Waiter:
        """A waiter that is set when all that has arrived is handled."""
        waiter = Waiter()
        with self.endpoint.lock:
            self.take_in()
            if self.is_seated:
                self.leave_seats()
            self._idle_waiters.append(waiter)
        # Only now: what was handled before that saw nobody wait.
        self.became_idle()
        return waiter

    @property
    def may_be_seated(self) -> bool:
        """Whether nothing waits in it, and nobody for it."""
        waits = self.queue or self.handovers or self._idle_waiters
        return not (waits or self.closed or self.tracer is not None)

    def became_idle(self) -> None:
        """Wake who waits for an idle inbox, if what was handled was the last."""
        if self._idle_waiters and (self.closed or self.pending <= 0):
            with self.endpoint.lock:
                waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                waiter.set()

    def at_rest(self, action: Callable[[], Any]) -> None:
        """Do this when the event that is being handled, if one is, has been; for a closed inbox."""
        self._rest_actions.append(action)
        if self.driver.is_at_rest:
            self.came_to_rest()

    def emptied(self) -> None:
        """Note that the driver has handled all that there was, and stops."""
        if self._idle_waiters:
            self.became_idle()
        if self._rest_actions:
            self.came_to_rest()

    def came_to_rest(self) -> None:
        """Do what waits for the driver to have stopped."""
        while self._rest_actions:
            try:
                action = self._rest_actions.pop()
            except IndexError:
                return  # another thread was faster
            action()
