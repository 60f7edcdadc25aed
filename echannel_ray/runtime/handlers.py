"""How events are handled: by a plain function on the endpoint's crew, or by a coroutine function on an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any

from echannel_ray.core.receiving import Delivered
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable
from echannel_ray.runtime.mailbox import (
    Item,
    LocalEvent,
    Mailbox,
    PeriodDue,
    Told,
    is_sample,
    receiver_of,
    unreadable,
)
from echannel_ray.runtime.offload import in_thread

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint


class FunctionMailbox(Mailbox):
    """Runs a plain function, one event at a time, on whichever thread of the crew has time."""

    def __init__(
        self, endpoint: Endpoint, number: int, channel: str, group: str | None, pair: str, handler: Callable[[Any], Any]
    ) -> None:
        super().__init__(endpoint, number, channel, group, pair)
        self._handler = handler
        self._handlers = {0: handler}  # by turns
        self._running = False
        self._mutex = threading.Lock()
        self.runner = 0  # the thread that is in the handler
        self._events: Iterator[Any] | None = None  # of the run that is being handled, those that have their turn yet
        # How many it has (where it has several), for how many events each stands, and the counters when it began: of
        # what was handled, and of what was not.
        self._run: tuple[int, int, int, int] | None = None
        self._cut: list[Any] = []  # those that `close` took away from it

    def begin_turn(self, turn: int, demodulator: Any) -> None:
        """See `Mailbox`."""
        handler = self._handler
        self._handlers[turn] = handler if demodulator is None else receiver_of(demodulator.receive, handler)
        super().begin_turn(turn, demodulator)

    def close(self) -> None:
        """See `Mailbox`. The run that is being handled ends with the event that is."""
        super().close()
        events = self._events
        if events is not None:
            self._cut.extend(events)

    @property
    def handled(self) -> int:
        """See `Mailbox`. A run counts when all of it is handled, which may take long: here, as far as it has come."""
        run, events, handled = self._run, self._events, self.counters.handled
        if run is None or events is None or self._cut:
            return handled
        count, weight, handled_before, others_before = run
        if handled != handled_before:  # the run has just been counted
            return handled
        begun = count - length_hint(events)
        return handled + max(0, (begun - 1) * weight - (self._not_handled() - others_before))

    def notify(self) -> None:
        """See `Mailbox`."""
        with self._mutex:
            if self._running:
                return
            self._running = True
        self.endpoint.crew.submit(self)

    def is_current_thread(self) -> bool:
        """See `Mailbox`."""
        return self.runner == threading.get_ident()

    def run(self) -> None:
        """Handle all that has arrived, and what arrives meanwhile."""
        self.runner = threading.get_ident()
        queue = self.queue
        queue_lock = self._queue_lock
        while True:
            while queue:
                with queue_lock:  # `pop`, without the call
                    if not queue:
                        break
                    item = queue.popleft()
                try:
                    if self.closed:
                        self.discard(item)
                    else:
                        self._handle(item)
                except BaseException as error:
                    self.rescue(item, error)
            with self._mutex:
                if not queue:
                    self.runner = 0
                    self._running = False
                    break
        self._became_idle()
        self._came_to_rest()

    @property
    def is_at_rest(self) -> bool:
        """See `Mailbox`."""
        return not self._running

    def _handle(self, item: Item) -> None:
        if isinstance(item, Delivered):
            if item.gap_last:
                self.report(self.gap_of(item))
                self.finish(item, None)
            else:
                self._handle_run(item)
        elif isinstance(item, LocalEvent):
            self._handle_local(item)
        elif isinstance(item, PeriodDue):
            try:
                receiver_of(lambda _: self.demodulators[item.turn].period(), self._handler)(None)
            except BaseException as error:  # as above
                self.tell_failure(error)
        elif isinstance(item, Told):
            self.report_told(item.error)
        else:
            self.counters.dropped += item.gap.last - item.gap.first + 1
            self.report(item.gap)

    def _handle_local(self, item: LocalEvent) -> None:
        handler = self._handlers[item.turn]
        failure: BaseException | None = None
        given, weight = self.read_local(item)
        for event in given:
            if self.closed and item.records > 1:
                break
            try:
                if item.kind:
                    self._careful(handler, event)
                else:
                    handler(event)
                self.counters.handled += weight
            except (
                BaseException
            ) as error:  # the user's, `sys.exit()` included: reported, and the next event has its turn
                failure = error
                self.failed(error, weight)
        self.finish_local(item, failure)

    def _handle_run(self, item: Delivered) -> None:
        handler = self._handlers[item.turn]
        given, weight = item.events, 1
        if self.records is not None:
            given, weight = self.read(item.kind if item.kind > 0xFF else 0, given)
        if self.endpoint.peculiar_seen:
            handler = partial(self._careful, handler)
        events = self._events = iter(given)
        count = len(given)
        is_sampled = is_sample(item.first, count)
        began = time.time() if is_sampled else 0.0
        if count > 1:
            self._run = (count, weight, self.counters.handled, self._not_handled())
        if self.closed:  # it may have looked for `_events` before they were there
            self._cut.extend(events)
        failures, told = 0, self.counters.told
        last_failure: BaseException | None = None
        while True:
            try:
                # The path of every event: nothing but the handler's call.
                for event in events:
                    handler(event)
            except (
                BaseException
            ) as error:  # the user's, `sys.exit()` included: reported, and the next event has its turn
                failures += 1
                if not length_hint(events):
                    last_failure = error
                self.failed(error, weight)
                continue
            break
        told = self.counters.told - told
        self.counters.handled += (count - failures - told - len(self._cut)) * weight
        self._run = self._events = None
        if self._cut:
            self.let_go(item, (count - len(self._cut)) * weight)
            return
        if is_sampled:
            self.sample(item.published_at, began + (time.time() - began) / count if count > 1 else 0.0)
        # Only the last event of a run can be one that somebody delivers and waits for.
        self.finish(item, last_failure)

    def _careful(self, handler: Callable[[Any], Any], event: Any) -> None:
        if type(event) is Undecodable:
            raise unreadable(event)
        if type(event) is Notice:
            self.report_told(self.told(event))
        else:
            handler(event)

    def _not_handled(self) -> int:
        return self.counters.failed + self.counters.told


class CoroutineMailbox(Mailbox):
    """Awaits a coroutine function, one event at a time, on the loop that subscribed."""

    def __init__(
        self,
        endpoint: Endpoint,
        number: int,
        channel: str,
        group: str | None,
        pair: str,
        handler: Callable[[Any], Coroutine[Any, Any, Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(endpoint, number, channel, group, pair)
        self._handler = handler
        self._loop = loop
        self._running = False
        self._mutex = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._abandoned = False

    def notify(self) -> None:
        """See `Mailbox`."""
        with self._mutex:
            if self._running:
                return
            self._running = True
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:
            # The loop is closed, and its subscription with it: nobody can handle anything there any more.
            self._abandon()

    def is_current_thread(self) -> bool:
        """See `Mailbox`."""
        try:
            return self._task is not None and asyncio.current_task() is self._task
        except RuntimeError:
            return False  # in this thread there is no loop

    @property
    def is_at_rest(self) -> bool:
        """See `Mailbox`."""
        return self._abandoned or not self._running

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._abandon()  # as `asyncio.run` does at its end
        elif task.exception() is not None:
            self._start()  # Ctrl-C has come in a handler, and the loop goes on all the same

    def _abandon(self) -> None:
        self._abandoned = True
        if self.closed:
            self._came_to_rest()
        else:
            self.endpoint.abandon(self)

    async def _run(self) -> None:
        queue = self.queue
        while True:
            while (item := self.pop()) is not None:
                try:
                    if self.closed:
                        self.discard(item)
                    else:
                        await self._handle(item)
                except asyncio.CancelledError:
                    self.discard(item)
                    raise
                except Exception as error:
                    self.rescue(item, error)
            with self._mutex:
                if not queue:
                    self._running = False
                    break
        self._became_idle()
        self._came_to_rest()

    async def _handle(self, item: Item) -> None:
        if isinstance(item, Delivered):
            if item.gap_last:
                self.report(self.gap_of(item))
                self.finish(item, None)
                return
            failure = None
            first_at = 0.0
            given, weight = item.events, 1
            if self.records is not None:
                given, weight = await self._read(item.kind if item.kind > 0xFF else 0, given)
            for i, event in enumerate(given):
                if self.closed:
                    self.let_go(item, i * weight)
                    return
                failure = await self._handle_one(event, item.turn, weight)
                if not i and len(given) > 1:
                    first_at = time.time()
                if isinstance(failure, KeyboardInterrupt) and i + 1 < len(given):
                    # The next task goes on from here.
                    self.queue.appendleft(item._replace(first=item.first + i + 1, events=item.events[i + 1 :]))
                    raise failure
            if is_sample(item.first, len(given)):
                self.sample(item.published_at, first_at)
            self.finish(item, failure)
            if isinstance(failure, KeyboardInterrupt):
                raise failure
        elif isinstance(item, LocalEvent):
            given, weight = self.read_local(item)
            for event in given:
                if self.closed and item.records > 1:
                    break
                failure = await self._handle_one(event, item.turn, weight)
            self.finish_local(item, failure)
            if isinstance(failure, KeyboardInterrupt):
                raise failure
        elif isinstance(item, PeriodDue):
            try:
                for each in self.demodulators[item.turn].period() or ():
                    await self._handler(each)
            except Exception as error:
                self.tell_failure(error)
        elif isinstance(item, Told):
            self.report_told(item.error)
        else:
            self.counters.dropped += item.gap.last - item.gap.first + 1
            self.report(item.gap)

    async def _read(self, kind: int, events: Any) -> tuple[list[Any], int]:
        """As `read`; where that has to ask for a format, the loop goes on meanwhile."""
        if not kind or self.records is None or self.records.knows(kind):
            return self.read(kind, events)
        return await in_thread(lambda: self.read(kind, events))

    async def _handle_one(self, event: Any, turn: int, weight: int = 1) -> BaseException | None:
        requests = _cancel_requests(self._task)
        try:
            if type(event) is Undecodable:
                raise unreadable(event)
            if type(event) is Notice:
                self.report_told(self.told(event))
                return None
            if turn in self.demodulators:
                for each in self.demodulators[turn].receive(event) or ():
                    await self._handler(each)
            else:
                await self._handler(event)
            self.counters.handled += weight
        except asyncio.CancelledError as error:
            if _cancel_requests(self._task) != requests:
                raise
            self.failed(error, weight)  # of something that the handler awaited
            return error
        except GeneratorExit:
            raise  # nobody will run this task any more
        except BaseException as error:  # the user's: reported, and the next event has its turn
            self.failed(error, weight)
            return error
        return None


def _cancel_requests(task: asyncio.Task[None] | None) -> object:
    """How often it was asked to end. Python 3.10 does not tell: there the answer is another each time."""
    if sys.version_info >= (3, 11):
        return task.cancelling() if task is not None else 0
    else:
        return object()
