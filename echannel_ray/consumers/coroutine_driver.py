"""Events for a coroutine function: it is awaited on an event loop."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from typing_extensions import override

from echannel_ray.consumers.driver import HandlerDriver, Receive
from echannel_ray.consumers.inbox import UNSAMPLED, Inbox, Item, PeriodDue
from echannel_ray.consumers.trouble import unreadable
from echannel_ray.core.arrivals import Arrival, Source
from echannel_ray.endpoint.offload import call_in_loop, in_thread
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable

_Handler = Callable[[Any], Coroutine[Any, Any, Any]]


class CoroutineDriver(HandlerDriver[_Handler]):
    """Awaits a coroutine function for one event at a time, on the loop that subscribed."""

    def __init__(self, handler: _Handler, loop: asyncio.AbstractEventLoop, inbox: Inbox) -> None:
        super().__init__(handler, inbox)
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._abandoned = False
        # Of a run that was put back, since Ctrl-C came in the middle of it: what the handler gets for it, for how many
        # events each of that stands, and what it had.
        self._begun: tuple[Sequence[Any], int, int] | None = None

    @override
    def add_version(self, version: int, receive: Receive | None) -> None:
        handler = self._handler if receive is None else _behind(receive, self._handler)
        tracer = self.inbox.tracer
        self._handlers[version] = handler if tracer is None else tracer.coroutine(self.inbox, handler)

    @property
    @override
    def is_at_rest(self) -> bool:
        return self._abandoned or not self._running

    @override
    def is_current_thread(self) -> bool:
        try:
            return self._task is not None and asyncio.current_task() is self._task
        except RuntimeError:
            return False  # in this thread there is no loop

    @override
    def notify(self) -> None:
        with self._mutex:
            if self._running:
                return
            self._running = True
        if not call_in_loop(self._loop, self._start):
            self._abandon()  # its subscription ends with the loop: nobody can handle anything there any more

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
        if self.inbox.closed:
            self.inbox.came_to_rest()
        else:
            self.inbox.endpoint.abandon(self.inbox)

    async def _run(self) -> None:
        inbox = self.inbox
        while True:
            while (item := inbox.pop()) is not None:
                try:
                    if inbox.closed:
                        inbox.discard(item)
                    else:
                        await self._handle(item)
                except asyncio.CancelledError:
                    inbox.discard(item)
                    raise
                except Exception as error:
                    inbox.rescue(item, error)
            with self._mutex:
                if not inbox.queue and not inbox.handovers:
                    self._running = False
                    break
            if not inbox.queue:
                inbox.refill()
        inbox.emptied()

    async def _handle(self, item: Item) -> None:
        inbox = self.inbox
        if isinstance(item, Arrival):
            if item.gap_last:
                inbox.report(inbox.close_gap(item))
            else:
                await self._handle_run(item)
        elif isinstance(item, PeriodDue):
            try:
                for each in inbox.demodulators[item.version].period() or ():
                    await self._handler(each)
            except Exception as error:
                inbox.tell_failure(error)
        else:
            inbox.report_told(item.error)

    async def _handle_run(self, run: Arrival[Source]) -> None:
        inbox = self.inbox
        handler = self._handlers[run.version]
        begun, self._begun = self._begun, None
        given, weight, start = begun or (*await self._read(run), 0)
        count = len(given)
        failure = None
        first_at = 0.0
        for i in range(start, count):
            if inbox.closed:
                inbox.release(run, i * weight)
                return
            failure = await self._handle_one(handler, given[i], weight)
            if not i and count > 1:
                first_at = time.time()
            if isinstance(failure, KeyboardInterrupt) and i + 1 < count:
                self._begun = given, weight, i + 1  # the next task goes on from here
                inbox.put_back(run)
                raise failure
        if count > UNSAMPLED or run.first & UNSAMPLED == 1:
            inbox.sample(run.published_at, first_at)
        inbox.close_run(run, failure)
        if isinstance(failure, KeyboardInterrupt):
            raise failure

    async def _read(self, run: Arrival[Source]) -> tuple[Sequence[Any], int]:
        """What the handler gets; where that takes asking for a format, the loop goes on meanwhile."""
        records = self.inbox.records
        if run.kind <= 0xFF or records is None or records.knows(run.kind):
            return self.inbox.read(run)
        return await in_thread(lambda: self.inbox.read(run))

    async def _handle_one(self, handler: _Handler, event: Any, weight: int) -> BaseException | None:
        requests = _cancel_requests(self._task)
        try:
            if type(event) is Undecodable:
                raise unreadable(event)
            if type(event) is Notice:
                self.inbox.report_told(self.inbox.told(event))
                return None
            await handler(event)
            self.inbox.counters.handled += weight
        except asyncio.CancelledError as error:
            if _cancel_requests(self._task) != requests:
                raise
            self.inbox.failed(error, weight)  # of something that the handler awaited
            return error
        except GeneratorExit:
            raise  # nobody will run this task any more
        except BaseException as error:  # the user's: reported, and the next event has its turn
            self.inbox.failed(error, weight)
            return error
        return None


def _behind(receive: Receive, handler: _Handler) -> _Handler:
    async def handle(event: Any) -> None:
        for each in receive(event) or ():
            await handler(each)

    return handle


def _cancel_requests(task: asyncio.Task[None] | None) -> object:
    """How often it was asked to end. Python 3.10 does not tell: there the answer is another each time."""
    if sys.version_info >= (3, 11):
        return task.cancelling() if task is not None else 0
    else:
        return object()
