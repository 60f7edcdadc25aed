"""Events for consumers in the producer's own process: they get the event itself, through their inboxes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echannel_ray.core.arrivals import AS_GIVEN, Arrival, Reports, Source
from echannel_ray.core.kinds import Block, token_of
from echannel_ray.core.windows import DROP_THIS, LOCAL, holds_up, on_full
from echannel_ray.endpoint.crew import Job
from echannel_ray.formats.events import decode

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.producers.outlet import Outlet
    from echannel_ray.producers.pending_deliveries import PendingDelivery

NOTHING: Any = object()  # where there is no object, only its bytes


@dataclass(slots=True, eq=False)
class LocalSource:
    """What one producer publishes for one inbox of its process. The inbox's window counts events here, not bytes.

    Its methods are called under the endpoint's lock, but for those of `Source`.
    """

    producer: str
    inbox: Inbox
    version: int  # of the handler that gets what comes now

    @property
    def is_full(self) -> bool:
        """Whether the inbox has no room for events of this process."""
        inbox = self.inbox
        if inbox.local_pending < inbox.window_events:
            return False
        inbox.settle()
        return inbox.local_pending >= inbox.window_events

    def offer(self, events: Any, sequence: int, delivery: int, kind: int) -> None:
        """Put these into the inbox: objects, or records of a kind that have to be read first."""
        inbox = self.inbox
        with inbox.queue_lock:
            inbox.local_pending += len(events)
        inbox.offer(Arrival(self, sequence, events, 0, 0, False, delivery, 0, time.time(), self.version, kind))

    def offer_gap(self, first: int, last: int) -> None:
        """Tell the inbox that these events were dropped."""
        self.inbox.offer(self._gap(first, last))

    def _gap(self, first: int, last: int) -> Arrival[LocalSource]:
        return Arrival(self, first, (), 0, 0, False, 0, last)

    # ---- dropping ----

    def drop_oldest(self) -> bool:
        """Put a gap in the place of this producer's oldest event, if one waits."""
        inbox = self.inbox
        queue = inbox.queue
        before = -1  # where the gap is that was left by those dropped before it
        with inbox.queue_lock:
            for i, item in enumerate(queue):
                if isinstance(item, Arrival) and item.source.producer == self.producer:
                    if not item.gap_last:
                        break
                    before = i
            else:
                return False
            if not self._widen(before, item.first):
                queue[i] = self._gap(item.first, item.first)
            else:
                del queue[i]
            inbox.local_pending -= 1
        inbox.counters.arrived -= 1
        if item.delivery:
            # Not here: that takes the endpoint's lock.
            inbox.endpoint.crew.submit(Job(self._tell, item.delivery, None, False))
        return True

    def drop_newest(self, sequence: int) -> None:
        """Have a gap in the place of this producer's new event."""
        queue = self.inbox.queue
        with self.inbox.queue_lock:
            for i in range(len(queue) - 1, -1, -1):
                item = queue[i]
                if self._widen(i, sequence):
                    return
                if isinstance(item, Arrival) and not item.gap_last and item.source.producer == self.producer:
                    break
        self.offer_gap(sequence, sequence)

    def _widen(self, i: int, sequence: int) -> bool:
        """Have the gap that is there, if it is one and ends just before, stand for this event too."""
        item = self.inbox.queue[i] if i >= 0 else None
        if not isinstance(item, Arrival) or not item.gap_last or item.source.producer != self.producer:
            return False
        if item.gap_last != sequence - 1:
            return False
        self.inbox.queue[i] = self._gap(item.first, sequence)
        return True

    # ---- as a source ----

    def position(self, run: Arrival[Source], count: int) -> None:
        """No position: nothing of it can be read again."""

    def close_run(self, run: Arrival[Source], outcome: bytes, reports: Reports) -> None:
        """Make room for as many as were handled, and tell whoever delivered them."""
        inbox = self.inbox
        with inbox.queue_lock:
            inbox.local_pending -= len(run.events)
        if run.delivery:
            self._tell(run.delivery, outcome.decode() if outcome else None, True)
        inbox.endpoint.local_handled(inbox)

    def release(self, run: Arrival[Source], handled: int, reports: Reports) -> None:
        """Tell whoever delivered it that it does not count here."""
        with self.inbox.queue_lock:
            self.inbox.local_pending -= len(run.events)
        if run.delivery:
            self._tell(run.delivery, None, False)

    def _tell(self, number: int, failure: str | None, counts: bool) -> None:
        delivery = self.inbox.endpoint.deliveries.get(number)
        if delivery is not None:  # else it was given up
            delivery.local_result(failure, counts)


def hand_over(
    outlet: Outlet, event: Any, encoded: tuple[int, Any, int] | None, sequence: int, delivery: PendingDelivery | None
) -> int:
    """Hand the event itself to consumers of this process, or its record to those who want it in another form; how many
    took it.
    """
    accepted = 0
    number = delivery.number if delivery is not None else 0
    for source in outlet.local:
        inbox = source.inbox
        is_full = inbox.local_pending >= inbox.window_events and source.is_full
        if is_full and not holds_up(outlet.stream.overflow) and not _drop(outlet, source, sequence):
            continue
        records = inbox.records
        kind = AS_GIVEN
        given = event
        if records is not None and (event is NOTHING or not records.is_same(event)):
            encoded = encoded or outlet.encode(event)
            if token_of(encoded[0]):
                kind, given = encoded[0], encoded[1]
        if given is NOTHING:
            assert encoded is not None
            given = event = decode(encoded[0], encoded[1])
        if kind == AS_GIVEN and records is not None:
            given = records.convert(given)  # what a modulator emitted
        # As `offer` does, without the call.
        with inbox.queue_lock:
            inbox.local_pending += 1
        inbox.offer(Arrival(source, sequence, [given], 0, 0, False, number, 0, time.time(), source.version, kind))
        accepted += 1
    return accepted


def hand_over_block(outlet: Outlet, kind: int, block: bytes | memoryview, count: int, first: int) -> None:
    """Hand many records to consumers of this process; no policy drops them."""
    for source in outlet.local:
        source.offer(Block(block, count), first, 0, kind)


def _drop(outlet: Outlet, source: LocalSource, sequence: int) -> bool:
    """Make room by dropping the oldest event of ours in the queue (True), or drop the new one (False)."""
    if on_full(outlet.stream, LOCAL) == DROP_THIS:
        outlet.stream.drop_by_policy()
        source.drop_newest(sequence)
        return False
    # Where the queue is full of the events of others, there is nothing of ours to drop.
    if source.drop_oldest():
        outlet.stream.drop_by_policy()
    return True
