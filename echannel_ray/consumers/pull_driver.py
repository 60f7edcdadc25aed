"""Events for whoever asks: they wait until somebody does, and are handled when they were handed out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from echannel_ray.consumers.driver import Driver, Receive
from echannel_ray.consumers.inbox import UNSAMPLED, Inbox, PeriodDue, Trouble
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.consumers.trouble import unreadable
from echannel_ray.core.arrivals import Arrival, Source
from echannel_ray.endpoint.crew import Waiter
from echannel_ray.endpoint.deadlines import deadline_of
from echannel_ray.endpoint.offload import wake
from echannel_ray.errors import ChannelDeleted, Closed, ModulatorFailed
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable


class Ended(Exception):
    """Raised where the subscription was closed: all iteration over it ends."""


class PullDriver(Driver):
    """Hands out what has arrived, to `get`, `for` and `async for`.

    With `ledger`, events are not handled when they are handed out, but when they are acknowledged: by a client that may
    die first. `wake` is called when there is something to take.
    """

    def __init__(self, inbox: Inbox, wake: Callable[[], None] | None = None, ledger: Ledger | None = None) -> None:
        super().__init__(inbox)
        self.is_pulled = True
        self._wake = wake
        self._ledger = ledger
        self._waiters: deque[Waiter] = deque()
        self._async_waiters: deque[asyncio.Future[None]] = deque()
        self._taking = threading.Lock()  # held to hand out, never while a function of the user's runs
        self._run: Arrival[Source] | None = None  # that is being handed out
        self._given: Sequence[Any] = ()  # what there is of it to hand out, each for `_weight` events
        self._weight = 1
        self._next = 0
        self._ready: deque[Message] = deque()  # of one event, after its demodulator, more than the first
        self._receivers: dict[int, Receive] = {}  # the demodulators' methods, by versions

    @override
    def add_version(self, version: int, receive: Receive | None) -> None:
        if receive is not None:
            self._receivers[version] = receive

    @override
    def notify(self) -> None:
        if self._wake is not None:
            self._wake()
        while self._waiters:
            self._waiters.popleft().set()
        while self._async_waiters:
            wake(self._async_waiters.popleft())

    @override
    def close(self) -> None:
        with self._taking:
            run, self._run = self._run, None
            unfinished = [] if run is None else [(run, self._next * self._weight)]
            if self._ledger is not None:
                unfinished = self._ledger.unfinished(run)
        for begun, handled in unfinished:
            self.inbox.release(begun, handled)
        self.notify()

    # ---- taking ----

    def take(self) -> Message | Gap | None:
        """The next message, if one is there."""
        while True:
            with self._taking:
                taken = self._take()
            if isinstance(taken, BaseException):
                self.inbox.tell_failure(taken)
            elif not isinstance(taken, Trouble):
                return taken
            elif isinstance(taken.error, ModulatorFailed):
                self.inbox.report(taken.error)
            elif self.inbox.is_wanted(taken.error):
                raise taken.error  # of this producer nothing more comes: who asks has to know

    def _take(self) -> Message | Gap | Trouble | BaseException | None:
        """The next message, or what came in its place, or why it could not be read."""
        inbox = self.inbox
        while True:
            if self.inbox.closed:
                raise self._end()
            if self._ready:
                return self._ready.popleft()
            trouble: Trouble | BaseException | None = None
            if self._run is not None:
                trouble = self._hand_out(self._run)
            else:
                item = inbox.pop()
                if item is None:
                    return None
                if inbox.closed:
                    inbox.discard(item)
                elif isinstance(item, Trouble):
                    return item
                elif isinstance(item, PeriodDue):
                    trouble = self._period(item.version)
                elif item.gap_last:
                    return inbox.close_gap(item)
                else:
                    self._run, self._next = item, 0
                    self._given, self._weight = item.events, 1
                    if inbox.records is not None or item.kind > 0xFF:
                        self._given, self._weight = inbox.read(item)
            if trouble is not None:
                return trouble

    def _hand_out(self, run: Arrival[Source]) -> Trouble | BaseException | None:
        """Have ready what the next event of a run becomes."""
        inbox, ledger = self.inbox, self._ledger
        index, weight, count = self._next, self._weight, len(self._given)
        event = self._given[index]
        self._next += 1
        is_last = self._next == count
        trouble: Trouble | BaseException | None = None
        if type(event) is Undecodable:
            trouble = unreadable(event)
        elif type(event) is Notice:
            trouble = Trouble(inbox.told(event))
        else:
            source = run.source
            position = source.position(run, index + weight)
            message = Message(event, source.producer, run.first + index, run.published_at, run.redelivered, position)
            if inbox.tracer is None:
                trouble = self._receive(message, run.version)
            else:
                with inbox.tracer.receiving(inbox, message) as traced:
                    trouble = self._receive(traced, run.version)
        failure = trouble if isinstance(trouble, BaseException) else None
        if failure is not None:
            inbox.counters.failed += weight
        elif trouble is None and ledger is None:
            inbox.counters.handled += weight
        if (not index or is_last) and (count > UNSAMPLED or run.first & UNSAMPLED == 1):
            inbox.sample(run.published_at)
        if is_last:
            self._run = None
        if ledger is not None:
            ledger.handed_out(run, index, is_last, trouble is None, failure)
            self._close_runs(ledger)
        elif is_last:
            inbox.close_run(run, failure)
            inbox.became_idle()
        return trouble

    def _receive(self, message: Message, version: int) -> BaseException | None:
        """Have ready what an event becomes behind its demodulator."""
        receive = self._receivers.get(version)
        if receive is None:
            self._ready.append(message)
            return None
        try:
            self._ready.extend(replace(message, event=each) for each in receive(message.event) or ())
        except (Exception, SystemExit) as error:  # the user's
            return error
        return None

    def _period(self, version: int) -> BaseException | None:
        try:
            events = [*(self.inbox.demodulators[version].period() or ())]
        except Exception as error:  # the user's
            return error
        self._ready.extend(Message(event, "", 0, time.time()) for event in events)
        return None

    def acknowledge(self, events: int) -> None:
        """So many more of those that were handed out are handled, oldest first."""
        ledger = self._ledger
        assert ledger is not None
        with self._taking:
            if not self.inbox.closed:
                self.inbox.counters.handled += ledger.acknowledge(events)
                self._close_runs(ledger)

    def _close_runs(self, ledger: Ledger) -> None:
        for run, failure in ledger.handled():
            self.inbox.close_run(run, failure)
            self.inbox.became_idle()

    def _end(self) -> Exception:
        if self.inbox.deleted:
            return ChannelDeleted(
                f"channel {self.inbox.channel!r} was deleted: create it again to go on, and subscribe again",
                channel=self.inbox.channel,
            )
        broken = self.inbox.endpoint.broken
        return Ended() if broken is None else broken

    # ---- waiting ----

    def _is_ready(self) -> bool:
        """Whether `take` would not return None."""
        with self._taking:
            return bool(self._run is not None or self.inbox.queue or self.inbox.closed or self._ready)

    def get(self, timeout_seconds: float | None) -> Message | Gap:
        """Wait for the next message."""
        deadline = deadline_of(timeout_seconds)
        while True:
            message = self.take()
            if message is not None:
                return message
            waiter = Waiter()
            self._waiters.append(waiter)
            try:
                # It may have come between, or another thread has left some of what it took.
                came = self._is_ready() or self.inbox.endpoint.crew.wait(waiter, deadline)
            finally:
                with contextlib.suppress(ValueError):  # it has just been set
                    self._waiters.remove(waiter)
            if not came:
                message = self.take()
                if message is not None:
                    return message
                raise TimeoutError(f"no event of channel {self.inbox.channel!r} within {timeout_seconds:.3g} s")

    async def aget(self) -> Message | Gap:
        """Wait for the next message without holding up the loop."""
        while True:
            message = self.take()
            if message is not None:
                return message
            future = asyncio.get_running_loop().create_future()
            self._async_waiters.append(future)
            try:
                if not self._is_ready():
                    await future
            finally:
                with contextlib.suppress(ValueError):
                    self._async_waiters.remove(future)


class _Page:
    """A run of which something was handed out."""

    def __init__(self, run: Arrival[Source]) -> None:
        self.run = run
        self.next = 0  # behind the last event that was handed out
        self.open: deque[int] = deque()  # the places of its events that were handed out and are not acknowledged
        self.is_whole = False
        self.failure: BaseException | None = None


class Ledger:
    """What was handed out and is not acknowledged yet, oldest first."""

    def __init__(self) -> None:
        self._pages: deque[_Page] = deque()

    def handed_out(
        self, run: Arrival[Source], index: int, is_last: bool, is_event: bool, failure: BaseException | None
    ) -> None:
        """An event of a run was, or trouble in its place, which nobody acknowledges."""
        if not self._pages or self._pages[-1].run is not run:
            self._pages.append(_Page(run))
        page = self._pages[-1]
        page.next = index + 1
        if is_event:
            page.open.append(index)
        page.is_whole, page.failure = is_last, failure

    def acknowledge(self, events: int) -> int:
        """So many are handled, or fewer where there are not so many: how many."""
        acknowledged = 0
        for page in self._pages:
            while page.open and acknowledged < events:
                page.open.popleft()
                acknowledged += 1
            if page.open:
                break
        return acknowledged

    def handled(self) -> Iterator[tuple[Arrival[Source], BaseException | None]]:
        """The runs that were handed out whole and are acknowledged, and what the last event of each failed with."""
        while self._pages and self._pages[0].is_whole and not self._pages[0].open:
            page = self._pages.popleft()
            yield page.run, page.failure

    def unfinished(self, begun: Arrival[Source] | None) -> list[tuple[Arrival[Source], int]]:
        """The other runs, with how many events of each are handled; `begun` is perhaps one of them."""
        unfinished = [(page.run, page.open[0] if page.open else page.next) for page in self._pages]
        self._pages.clear()
        if begun is not None and all(run is not begun for run, _ in unfinished):
            unfinished.append((begun, 0))
        return unfinished


def closed_error(channel: str) -> Closed:
    """What `get` raises after the subscription was closed."""
    return Closed(f"this subscription of channel {channel!r} is closed: subscribe again", what="subscription")
