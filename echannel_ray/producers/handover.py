"""The short way to consumers in the producer's own process: objects are appended to a list, and taken in batches.

An event by itself is put into the inboxes at once, and its driver is woken. Where the drivers have more to do already,
that is too much for each event: what follows can't be handled any sooner. So then the list is *armed*.

Rules:

* A list is armed while all drivers run, and have some events before those of the list. A driver that finds its inbox
  empty takes what is in the lists that are armed for it, and disarms those in which there was nothing, before it stops.
* Who has appended looks whether it is still armed: where it is not, nobody may come, and it puts the events into the
  inboxes itself. So no event waits for a tick.
* As many events as may be appended are counted in the windows beforehand. Who finds a window full has what is not used
  of that given back, and looks again.
* Only for producers that wait or raise where a window is full: what a policy may drop is in the inboxes, one by one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from echannel_ray.core.arrivals import AS_GIVEN, Arrival
from echannel_ray.core.windows import holds_up

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.producers.outlet import Outlet

# A window has room for many batches, and what arming costs, some 5 µs, is little for each event.
_MAX_BATCH_EVENTS: Final = 256
# So many wait in each inbox before the list is armed, and it is armed for no fewer.
_FEW_EVENTS: Final = 8


class Handover:
    """The list of one producer. Appending needs no lock; its methods are called under the endpoint's."""

    __slots__ = ("_counted", "_inboxes", "_outlet", "events", "room")

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self.events: list[Any] = []  # that were appended
        self.room = 0  # how many there may be; 0: it is not armed
        self._counted = 0  # how many of those to come the windows have counted
        self._inboxes: list[Inbox] = []  # whose windows have

    def arm(self) -> bool:
        """Let objects be appended, if all consumers have more to do already. Whether it may be so."""
        outlet = self._outlet
        stream = outlet.stream
        if stream.recipients or stream.chunks or stream.ending or outlet.held or not holds_up(stream.overflow):
            return False
        inboxes = [source.inbox for source in outlet.local]
        room = _MAX_BATCH_EVENTS
        for inbox in inboxes:
            if inbox.records is not None or len(inbox.queue) < _FEW_EVENTS or not inbox.driver.is_busy():
                return False
            room = min(room, (inbox.window_events - inbox.local_pending) // 2)
        if room < _FEW_EVENTS or not inboxes:
            return False
        self._count(inboxes, room - self._counted)
        self._counted, self._inboxes = room, inboxes
        for inbox in inboxes:
            inbox.handovers[self] = None
        self.room = room
        if not all(inbox.driver.is_busy() for inbox in inboxes):
            # It has stopped, and perhaps did not see this list.
            self.room = 0
            self.absorb()
        return self.room > 0

    def absorb(self) -> int:
        """Put what was appended into the inboxes; how many events there were."""
        count = len(self.events)
        if count:
            # Another thread may append between these two, behind what is taken.
            taken = self.events[:count]
            del self.events[:count]
            if self._outlet.stream.closed or self._outlet.stream.deleted:
                self.room = 0
            else:
                self._offer(taken)
        if self.room:
            self.room = self._counted
        elif self._inboxes:
            self._leave()
        return count

    def _offer(self, events: list[Any]) -> None:
        outlet, count = self._outlet, len(events)
        first = outlet.core.skip(outlet.stream, count)
        late = count - self._counted  # appended by threads that had found more room: by each of them one
        if late > 0:
            self._count([source.inbox for source in outlet.local], late)
        self._counted = max(0, -late)
        published_at = time.time()
        for source in outlet.local:
            source.inbox.offer(
                Arrival(source, first, events, 0, 0, False, 0, 0, published_at, source.version, AS_GIVEN)
            )

    def _leave(self) -> None:
        """Nothing more is appended: give back what the windows have counted too much."""
        inboxes, self._inboxes = self._inboxes, []
        self._count(inboxes, -self._counted)
        self._counted = 0
        for inbox in inboxes:
            inbox.handovers.pop(self, None)
        endpoint = self._outlet.endpoint
        if endpoint.blocked_publishers:
            endpoint.room.notify_all()

    @staticmethod
    def _count(inboxes: list[Inbox], events: int) -> None:
        for inbox in inboxes:
            with inbox.queue_lock:
                inbox.local_pending += events
