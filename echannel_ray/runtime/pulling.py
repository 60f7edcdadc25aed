"""Pull subscriptions: events wait until somebody asks for them, and are handled when they were handed out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from echannel_ray.core.receiving import Delivered
from echannel_ray.errors import ChannelDeleted, Closed, EChannelError, ModulatorFailed
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable
from echannel_ray.runtime.crew import Waiter
from echannel_ray.runtime.mailbox import (
    Gap,
    LocalEvent,
    Mailbox,
    Message,
    PeriodDue,
    Told,
    is_sample,
    unreadable,
)
from echannel_ray.runtime.waiting import deadline_of


class Ended(Exception):
    """The subscription was closed, and all iteration over it ends."""


class _Raised(Exception):
    """What came is an error that whoever asks for the next event is to get."""

    def __init__(self, error: EChannelError) -> None:
        super().__init__(str(error))
        self.error = error


class PullMailbox(Mailbox):
    """Keeps what has arrived for `get`, `for` and `async for`."""

    is_pulled = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._waiters: deque[Waiter] = deque()
        self._async_waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._taking = threading.Lock()  # held to hand out, never while a function of the user's runs
        self._item: Delivered | None = None  # the run that is being handed out
        self._given: Sequence[Any] = ()  # what there is of it to hand out, each for `_weight` events
        self._weight = 1
        self._next = 0
        self._ready: deque[Message] = deque()  # of one event, after its demodulator, more than the first

    def notify(self) -> None:
        """See `Mailbox`."""
        while self._waiters:
            self._waiters.popleft().set()
        while self._async_waiters:
            loop, future = self._async_waiters.popleft()
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:
                pass  # that loop is closed: nobody waits there any more

    def close(self) -> None:
        """See `Mailbox`."""
        super().close()
        with self._taking:
            unfinished, self._item = self._unfinished(), None
        for item, handled in unfinished:
            self.let_go(item, handled)
        self.notify()

    def _unfinished(self) -> list[tuple[Delivered, int]]:
        """The runs that were begun and not finished, and how many events of each are handled."""
        return [] if self._item is None else [(self._item, self._next * self._weight)]

    def take(self) -> Message | Gap | None:
        """The next message, if one is there."""
        while True:
            with self._taking:
                taken = self._take()
            if not isinstance(taken, BaseException):
                return taken
            if not isinstance(taken, _Raised):
                self.tell_failure(taken)
            elif isinstance(taken.error, ModulatorFailed):
                self.report(taken.error)
            elif self.is_wanted(taken.error):
                raise taken.error  # of this producer nothing more comes: who asks has to know

    def _take(self) -> Message | Gap | BaseException | None:
        """The next message, or why it could not be read."""
        while True:
            if self.closed:
                self._raise_ended()
            if self._ready:
                return self._ready.popleft()
            item = self._item
            if item is None:
                fresh = self.pop()
                if fresh is None:
                    return None
                if self.closed:
                    self.discard(fresh)
                    continue
                if isinstance(fresh, LocalEvent):
                    failure = self._hand_out_local(fresh)
                    if failure is not None:
                        return failure
                    continue
                if isinstance(fresh, PeriodDue):
                    failure = self._period(fresh.turn)
                    if failure is not None:
                        return failure
                    continue
                if isinstance(fresh, Told):
                    return _Raised(fresh.error)
                if isinstance(fresh, Delivered):
                    if fresh.gap_last:
                        gap = self.gap_of(fresh)
                        self.finish(fresh, None)
                        return gap
                    self._item, self._next = fresh, 0
                    self._given, self._weight = fresh.events, 1
                    if self.records is not None:
                        self._given, self._weight = self.read(fresh.kind if fresh.kind > 0xFF else 0, fresh.events)
                    continue
                self.counters.dropped += fresh.gap.last - fresh.gap.first + 1
                return fresh.gap
            failure = self._hand_out(item)
            if failure is not None:
                return failure

    def _hand_out_local(self, item: LocalEvent) -> BaseException | None:
        given, weight = self.read_local(item)
        failure: BaseException | None = None
        for i, event in enumerate(given):
            if failure is not None:
                self.tell_failure(failure)  # of several the last one is returned
                failure = None
            if type(event) is Undecodable:
                failure = unreadable(event)
                self.counters.failed += weight
                continue
            message = Message(event, item.producer, item.sequence + i, item.published_at)
            failure = self._receive(message, item.turn, weight)
        self.finish_local(item, failure)
        self._became_idle()
        return failure

    def _receive(self, message: Message, turn: int, weight: int = 1) -> BaseException | None:
        """Have ready what an event becomes behind its demodulator."""
        demodulator = self.demodulators.get(turn)
        if demodulator is None:
            self._ready.append(message)
            self.counters.handled += weight
            return None
        try:
            self._ready.extend(replace(message, event=each) for each in demodulator.receive(message.event) or ())
        except (Exception, SystemExit) as error:  # the user's
            self.counters.failed += weight
            return error
        self.counters.handled += weight
        return None

    def _period(self, turn: int) -> BaseException | None:
        try:
            events = [*(self.demodulators[turn].period() or ())]
        except Exception as error:  # the user's
            return error
        self._ready.extend(Message(event, "", 0, time.time()) for event in events)
        return None

    def _hand_out(self, item: Delivered) -> BaseException | None:
        index = self._next
        event = self._given[index]
        self._next += 1
        failure: BaseException | None
        told: _Raised | None = None
        if type(event) is Undecodable:
            failure = unreadable(event)
            self.counters.failed += self._weight
        elif type(event) is Notice:
            failure, told = None, _Raised(self.told(event))
        else:
            failure = self._receive(self.message_of(item, index, event, self._weight), item.turn, self._weight)
        is_last = self._next == len(self._given)
        if (not index or is_last) and is_sample(item.first, len(self._given)):
            self.sample(item.published_at)
        if is_last:
            self._item = None
            self._handed_out(item, failure)
        return told or failure

    def _handed_out(self, item: Delivered, failure: BaseException | None) -> None:
        """All of a run was handed out."""
        self.finish(item, failure)
        self._became_idle()

    def _is_ready(self) -> bool:
        """Whether `take` would not return None."""
        with self._taking:
            return bool(self._item is not None or self.queue or self.closed or self._ready)

    def _raise_ended(self) -> None:
        if self.deleted:
            raise ChannelDeleted(
                f"channel {self.channel!r} was deleted: create it again to go on, and subscribe again",
                channel=self.channel,
            )
        if self.endpoint.broken is not None:
            raise self.endpoint.broken
        raise Ended

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
                came = self._is_ready() or self.endpoint.crew.wait(waiter, deadline)
            finally:
                with contextlib.suppress(ValueError):  # it has just been set
                    self._waiters.remove(waiter)
            if not came:
                message = self.take()
                if message is not None:
                    return message
                raise TimeoutError(f"no event of channel {self.channel!r} within {timeout_seconds:.3g} s")

    async def aget(self) -> Message | Gap:
        """Wait for the next message without holding up the loop."""
        while True:
            message = self.take()
            if message is not None:
                return message
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self._async_waiters.append((loop, future))
            try:
                if not self._is_ready():
                    await future
            finally:
                with contextlib.suppress(ValueError):
                    self._async_waiters.remove((loop, future))


class _Handed:
    """A run of which something was handed out."""

    def __init__(self, item: Delivered) -> None:
        self.item = item
        self.open: deque[int] = deque()  # the places of its events that were handed out and are not handled
        self.failure: BaseException | None = None
        self.is_whole = False


class SettledMailbox(PullMailbox):
    """Events are not handled when they are handed out, but when `settle` says so: by a client that may die first."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handed: deque[_Handed] = deque()

    def settle(self, events: int) -> None:
        """So many more of those that were handed out are handled, oldest first."""
        with self._taking:
            while events > 0 and not self.closed and self._handed and self._handed[0].open:
                self._handed[0].open.popleft()
                self.counters.handled += 1
                events -= 1
                self._finish_handled()

    def _hand_out(self, item: Delivered) -> BaseException | None:
        if not self._handed or self._handed[-1].item is not item:
            self._handed.append(_Handed(item))
        handed, place, handled = self._handed[-1], self._next, self.counters.handled
        failure = super()._hand_out(item)
        if self.counters.handled > handled:
            self.counters.handled = handled
            handed.open.append(place)
        self._finish_handled()
        return failure

    def _handed_out(self, item: Delivered, failure: BaseException | None) -> None:
        handed = self._handed[-1]
        handed.failure, handed.is_whole = failure, True

    def _finish_handled(self) -> None:
        while self._handed and self._handed[0].is_whole and not self._handed[0].open:
            handed = self._handed.popleft()
            self.finish(handed.item, handed.failure)
            self._became_idle()

    def _unfinished(self) -> list[tuple[Delivered, int]]:
        unfinished = [(each.item, each.open[0] if each.open else self._next) for each in self._handed]
        self._handed.clear()
        if self._item is not None and all(item is not self._item for item, _ in unfinished):
            unfinished.append((self._item, 0))
        return unfinished


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def closed_error(channel: str) -> Closed:
    """What `get` raises after the subscription was closed."""
    return Closed(f"this subscription of channel {channel!r} is closed: subscribe again", what="subscription")
