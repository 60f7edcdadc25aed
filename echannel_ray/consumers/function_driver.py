"""Events for a plain function: it is called on the endpoint's crew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from typing import Any

from typing_extensions import override

from echannel_ray.consumers.driver import HandlerDriver, Receive
from echannel_ray.consumers.inbox import UNSAMPLED, Inbox, PeriodDue
from echannel_ray.consumers.trouble import unreadable
from echannel_ray.core.arrivals import Arrival, Source
from echannel_ray.formats.events import Notice
from echannel_ray.formats.packs import Undecodable


class FunctionDriver(HandlerDriver[Callable[[Any], Any]]):
    """Calls a plain function for one event at a time, on whichever thread of the crew has time."""

    def __init__(self, handler: Callable[[Any], Any], inbox: Inbox) -> None:
        super().__init__(handler, inbox)
        self._handling_thread = 0  # that is in the handler
        self._events: Iterator[Any] | None = None  # of the run that is being handled, those that have their turn yet
        # How many it has (where it has several), for how many events each stands, and the counters when it began: of
        # what was handled, and of what was not.
        self._run: tuple[int, int, int, int] | None = None
        self._cut: list[Any] = []  # those that `close` took away from it

    @override
    def add_version(self, version: int, receive: Receive | None) -> None:
        handler = self._handler if receive is None else _behind(receive, self._handler)
        tracer = self.inbox.tracer
        self._handlers[version] = handler if tracer is None else tracer.function(self.inbox, handler)

    @override
    def close(self) -> None:
        events = self._events
        if events is not None:
            self._cut.extend(events)

    @property
    @override
    def handled(self) -> int:
        # A run counts when all of it is handled, which may take long.
        run, events, handled = self._run, self._events, self.inbox.counters.handled
        if run is None or events is None or self._cut:
            return handled
        count, weight, handled_before, others_before = run
        if handled != handled_before:  # the run has just been counted
            return handled
        begun = count - length_hint(events)
        return handled + max(0, (begun - 1) * weight - (self._not_handled() - others_before))

    def _not_handled(self) -> int:
        return self.inbox.counters.failed + self.inbox.counters.told

    @override
    def is_current_thread(self) -> bool:
        me = threading.get_ident()
        return self._handling_thread == me or self.inbox.endpoint.mixed.is_handling(self.inbox, me)

    def function_for(self, version: int, kind: int) -> Callable[[Any], Any] | None:
        """What may be called for each event of a kind by somebody else, while nothing waits here; under the endpoint's
        lock.
        """
        inbox = self.inbox
        is_free = not self._running and inbox.may_be_seated and not inbox.endpoint.peculiar_seen
        if not is_free or inbox.records is not None or kind > 0xFF:
            return None
        return self._handlers.get(version)

    def is_taken_by(self, thread: int) -> None:
        """A thread is in the handler, and runs this driver when it returns; under the endpoint's lock."""
        self._running = True
        self._handling_thread = thread

    @override
    def notify(self) -> None:
        with self._mutex:
            if self._running:
                return
            self._running = True
        self.inbox.endpoint.crew.submit(self)

    def run(self) -> None:
        """Handle all that has arrived, and what arrives meanwhile."""
        inbox = self.inbox
        queue, queue_lock = inbox.queue, inbox.queue_lock
        self._handling_thread = threading.get_ident()
        while True:
            while queue:
                # `pop`, without the call. (No `break` out of a `with`: mypyc does not compile that.)
                with queue_lock:
                    item = queue.popleft() if queue else None
                if item is None:
                    break
                try:
                    if inbox.closed:
                        inbox.discard(item)
                    elif isinstance(item, Arrival):
                        if item.gap_last:
                            inbox.report(inbox.close_gap(item))
                        else:
                            self._handle_run(item)
                    elif isinstance(item, PeriodDue):
                        self._period(item.version)
                    else:
                        inbox.report_told(item.error)
                except BaseException as error:
                    inbox.rescue(item, error)
            if self._has_ended():
                break
            if not queue:
                inbox.refill()
        inbox.emptied()

    def _has_ended(self) -> bool:
        """Whether nothing is left to be handled: then whoever brings more has this driver run anew."""
        with self._mutex:
            if self.inbox.queue or self.inbox.handovers:
                return False
            self._handling_thread = 0
            self._running = False
            return True

    def _handle_run(self, run: Arrival[Source]) -> None:
        inbox = self.inbox
        counters = inbox.counters
        handler = self._handlers[run.version]
        given, weight = run.events, 1
        if inbox.records is not None or run.kind > 0xFF:
            given, weight = inbox.read(run)
        if inbox.endpoint.peculiar_seen:
            handler = partial(self._careful, handler)
        events = self._events = iter(given)
        count = len(given)
        is_sampled = count > UNSAMPLED or run.first & UNSAMPLED == 1
        began = time.time() if is_sampled else 0.0
        if count > 1:
            self._run = (count, weight, counters.handled, self._not_handled())
        if inbox.closed:  # it may have looked for `_events` before they were there
            self._cut.extend(events)
        failures, told = 0, counters.told
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
                inbox.failed(error, weight)
                continue
            break
        told = counters.told - told
        counters.handled += (count - failures - told - len(self._cut)) * weight
        self._run = self._events = None
        if self._cut:
            inbox.release(run, (count - len(self._cut)) * weight)
            return
        if is_sampled:
            inbox.sample(run.published_at, began + (time.time() - began) / count if count > 1 else 0.0)
        # Only the last event of a run can be one that somebody delivers and waits for.
        if last_failure is None:
            run.source.close_run(run, b"", inbox.endpoint)  # as the inbox does, without the call
        else:
            inbox.close_run(run, last_failure)

    def _careful(self, handler: Callable[[Any], Any], event: Any) -> None:
        if type(event) is Undecodable:
            raise unreadable(event)
        if type(event) is Notice:
            self.inbox.report_told(self.inbox.told(event))
        else:
            handler(event)

    def _period(self, version: int) -> None:
        try:
            for each in self.inbox.demodulators[version].period() or ():
                self._handler(each)
        except BaseException as error:  # as above
            self.inbox.tell_failure(error)


def _behind(receive: Receive, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def handle(event: Any) -> None:
        for each in receive(event) or ():
            handler(each)

    return handle
