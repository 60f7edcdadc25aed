"""Events of many subscriptions that came in one mixed pack: their functions are called one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final

from echannel_ray.consumers.function_driver import FunctionDriver

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.core.mixed_receipts import MixedArrival
    from echannel_ray.core.mixtures import Column
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

# A function that takes more ticks than this holds up no other subscription: what is behind it goes on without it.
_PATIENCE_TICKS: Final = 2
# Of 256 events of a stream one has its latency noted: a look at the clock for each would show.
_SAMPLED: Final = 255


class _PackInHand:
    """One mixed pack that a thread is at."""

    __slots__ = ("arrival", "calls", "count", "events", "failed", "taken_over", "thread")

    def __init__(self, arrival: MixedArrival) -> None:
        self.arrival = arrival
        self.count = len(arrival.events)  # of those that are its own still
        self.events: Iterator[Any] = iter(arrival.events)
        self.calls: Iterator[tuple[Callable[[Any], Any], Any]] = zip(arrival.targets(), self.events)  # noqa: B905
        self.thread = threading.get_ident()
        self.failed: list[Inbox] = []  # one for each event that failed
        # That of the last event, where what was behind that was handed over: it counts as arrived already.
        self.taken_over: FunctionDriver | None = None

    @property
    def begun(self) -> int:
        """How many events have been begun with."""
        return min(self.count, len(self.arrival.events) - length_hint(self.events))


class MixedDriver:
    """Handles mixed packs, in the order in which they came; one per endpoint, beside the drivers of its inboxes.

    While an event waits here, nothing of the same subscription is handled elsewhere: what comes for it another way has
    all that waits here handed over to the inboxes first (`give_way`). So has a function that takes long.
    """

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self.is_busy = False  # from the first that is put until nothing is left, or all was handed over
        self._endpoint = endpoint
        self._queue: deque[MixedArrival] = deque()
        self._turn: _PackInHand | None = None
        self._seen: tuple[_PackInHand | None, int] = (None, 0)
        self._patience = 0
        # How many events of each subscription were handled here, that its inbox has not counted yet.
        self._handled: Column | None = None

    # ---- what comes; under the endpoint's lock ----

    def target_of(self, subscription: int, version: int, kind: int) -> Callable[[Any], Any] | None:
        """What is called for each event of a subscription, if it is a function and nothing else is under way for it."""
        inbox = self._endpoint.inboxes.get(subscription)
        if inbox is None or not isinstance(inbox.driver, FunctionDriver):
            return None
        target = inbox.driver.function_for(version, kind)
        if target is not None:
            inbox.is_seated = True
        return target

    def put(self, arrival: MixedArrival) -> None:
        """Have these events handled."""
        self._queue.append(arrival)
        if not self.is_busy:
            self.is_busy = True
            self._endpoint.crew.submit(self)

    def give_way(self, inbox: Inbox) -> None:
        """Something comes for an inbox another way: what waits here for it has to be ahead of it there."""
        turn, number = self._turn, inbox.number
        waits = turn is not None and turn.arrival.concerns(number, max(0, turn.begun - 1), turn.count)
        if waits or any(arrival.concerns(number, 0, len(arrival.events)) for arrival in self._queue):
            self.hand_over()

    def hand_over(self) -> None:
        """Give all that waits to the inboxes. The event that is being handled is handled to its end, and its inbox goes
        on with the rest when it has been.
        """
        turn, self._turn = self._turn, None
        rest = [(arrival, 0) for arrival in self._queue]
        self._queue.clear()
        self.is_busy = False
        if turn is not None:
            turn.count -= len([*turn.calls])  # the thread that is at it finds nothing more
            rest.insert(0, (turn.arrival, turn.count))
            inbox = self._inbox(turn.arrival, turn.count - 1) if turn.count else None
            if inbox is not None and isinstance(inbox.driver, FunctionDriver):
                inbox.driver.is_taken_by(turn.thread)
                inbox.counters.arrived += 1
                turn.taken_over = inbox.driver
        for arrival, first in rest:
            for place in range(first, len(arrival.events)):
                inbox = self._inbox(arrival, place)
                if inbox is not None:
                    inbox.offer(arrival.run(place))

    def _inbox(self, arrival: MixedArrival, place: int) -> Inbox | None:
        return self._endpoint.inboxes.get(arrival.subscription(place))

    # ---- what others ask ----

    def is_handling(self, inbox: Inbox, thread: int) -> bool:
        """Whether a thread is in the function of this inbox, for an event of ours."""
        turn = self._turn
        if turn is None or turn.thread != thread:
            return False
        begun = turn.begun
        return begun > 0 and turn.arrival.subscription(begun - 1) == inbox.number

    def step_aside(self) -> None:
        """The calling thread is about to wait: if it is in a function of ours, the others must not wait with it."""
        turn = self._turn
        if turn is not None and turn.thread == threading.get_ident():
            with self._endpoint.lock:
                if self._turn is turn:
                    self.hand_over()

    def supervise(self) -> bool:
        """Look whether a function takes long; at each tick, under the endpoint's lock. Whether something is handled."""
        turn = self._turn
        if turn is None:
            return self.is_busy
        now = turn, turn.begun
        if now != self._seen:
            self._seen, self._patience = now, 0
        else:
            self._patience += 1
            if self._patience >= _PATIENCE_TICKS:
                self.hand_over()
        return True

    def count(self, inbox: Inbox) -> None:
        """Have an inbox count what was handled for it here."""
        if self._handled is not None and inbox.number < len(self._handled):
            more, self._handled[inbox.number] = int(self._handled[inbox.number]), 0
            inbox.counters.arrived += more
            inbox.counters.handled += more

    # ---- handling ----

    def run(self) -> None:
        """Handle all that has come, and what comes meanwhile."""
        endpoint = self._endpoint
        turn: _PackInHand | None = None
        while True:
            with endpoint.lock:
                if turn is not None:
                    self._note(turn)
                # What was left of the pack was handed over, and another thread may be at what came since; or this one
                # was asked for what another has begun with.
                is_ours = self._turn is turn
                if is_ours:
                    turn = self._turn = _PackInHand(self._queue.popleft()) if self._queue else None
                    self.is_busy = turn is not None
            # Not from within the lock: mypyc does not compile a `break` out of a `with`.
            if turn is None or not is_ours:
                break
            self._handle(turn)
        if not endpoint.crew.leads:
            endpoint.outgoing.write()
        if turn is not None and turn.taken_over is not None:
            turn.taken_over.run()  # what came for it meanwhile

    def _handle(self, turn: _PackInHand) -> None:
        calls = turn.calls
        while True:
            try:
                # The path of every event: nothing but the handler's call.
                for handler, event in calls:
                    handler(event)
            except BaseException as error:  # the user's, `sys.exit()` included: reported, and the next has its turn
                self._failed(turn, error)
                continue
            return

    def _failed(self, turn: _PackInHand, error: BaseException) -> None:
        inbox = turn.taken_over.inbox if turn.taken_over else self._inbox(turn.arrival, turn.begun - 1)
        if inbox is not None:
            turn.failed.append(inbox)
            inbox.failed(error)

    def _note(self, turn: _PackInHand) -> None:
        """Report and count what was handled; under the endpoint's lock."""
        arrival, count = turn.arrival, turn.count
        if not count:
            return
        self._handled = arrival.count_into(self._handled, count)
        self._endpoint.core.mixed_handled(arrival, count)
        if turn.taken_over is not None:
            turn.taken_over.inbox.counters.arrived -= 1
            self.count(turn.taken_over.inbox)
        for inbox in turn.failed:
            inbox.counters.handled -= 1
        for place in arrival.sampled(count, _SAMPLED):
            sampled = self._inbox(arrival, place)
            if sampled is not None:
                sampled.sample(arrival.stamp)
