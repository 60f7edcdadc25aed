"""The consumers of a channel as a producer's sink: the short way for most events, the long one for all else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray.core.kinds import PICKLED, PLAIN, RECORD, wire_kind
from echannel_ray.core.messages import Membership
from echannel_ray.core.windows import Blocker, holds_up, refuses
from echannel_ray.derived.branch import Chunk
from echannel_ray.derived.branches import Branches
from echannel_ray.derived.grants import Grants, Info
from echannel_ray.endpoint.crew import TICK_SECONDS
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.modulation.admission import Admission
from echannel_ray.producers.bulk import publish_block
from echannel_ray.producers.drain import Drain
from echannel_ray.producers.outlet import SMALL_BYTES, Encoded, Outlet
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.producers.sink import Sink

if TYPE_CHECKING:
    from echannel_ray.derived.inline_host import InlineHost
    from echannel_ray.producers.publisher import Publisher

_LEAST_ARMED_BYTES = 1024 + OVERHEAD_BYTES
_FREQUENT_TICKS = 3
# Where nobody but modulators gets what is published, no pack bounds what they get at once.
_MOST_TO_MODULATORS = 1023
_MANY_IN_A_TICK = 8


class ConsumerSink(Sink):
    """To consumers, those of this process too, and to modulators. Who publishes often is *armed* (see `_arm`): then
    `publish` only appends to a list, which is absorbed at the next tick.
    """

    def __init__(
        self,
        publisher: Publisher,
        admission: Admission | None = None,
        services: Mapping[Any, Any] | None = None,
        delegate: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(publisher)
        self.hosts_modulators = True  # which are made ready before a membership takes effect
        self.admission = admission or Admission()
        self.outlet: Outlet = Outlet(self.endpoint, self.stream, publisher.name, self.encode)
        self.branches: Branches = Branches(self)
        self.has_branches = False  # what `branches` would say, without the call: each event asks
        info = Info(publisher.name, publisher.channel, self.endpoint.namespace, self.endpoint.node)
        self.grants = Grants(services, delegate, info)
        self._sizes = {} if self.records is None else self.records.sizes  # of the events of some kinds
        self._gathered_at_tick = -_FREQUENT_TICKS
        self._gathered_in_tick = 0
        self._absorbed = 0  # since the last tick
        self._plain: list[bytes] = []  # published the short way, and not yet absorbed
        # Those of other kinds, a list for each: who appends late, when we are armed for another, must not mix them.
        self._lists: dict[int, list[bytes]] = {PICKLED: []}
        self._encoded = (PICKLED, self._lists[PICKLED])  # that of the kind that we were armed for last
        self._plain_room = self._encoded_room = 0  # how many events may be in these two lists; at most one is not 0
        self._armed_bytes = 0  # how large each of them may be
        self._direct: InlineHost | None = None  # which gets objects at once, without a lock of ours

    # ---- publishing ----

    @override
    def publish(self, event: Any, timeout: float | None = None) -> bool:
        # An append is atomic: where we are armed, it needs no lock.
        if type(event) is bytes:
            pending = self._plain
            if len(pending) < self._plain_room and len(event) <= self._armed_bytes:
                pending.append(event)
                return True
            return self._gather(event, timeout, PLAIN, event, len(event) + OVERHEAD_BYTES)
        if self.stream.limit_bytes < 0 and not self._encoded_room:
            direct = self._direct
            if direct is not None and (self.records is None or self.records.takes(event)) and direct.publish(event):
                return True
            return self.publisher.publish_encoded(event, timeout)  # type: ignore[no-any-return]
        kind, payload, size = self.encode(event)
        armed_kind, pending = self._encoded
        if kind == armed_kind and len(pending) < self._encoded_room and size <= self._armed_bytes:
            pending.append(payload)
            return True
        return self._gather(event, timeout, kind, payload, size)

    def _gather(self, event: Any, timeout: float | None, kind: int, payload: Any, size: int) -> bool:
        """Add the event to the pack that is being gathered; the usual way of a producer that is not armed."""
        stream = self.stream
        endpoint = self.endpoint
        has_left = taken = False
        if kind == PLAIN and self.records is not None:
            self.records.ready(event)  # which raises: bytes are no record
        with self.lock:
            if self._plain or any(self._lists.values()):
                self.absorb()
            published = stream.published_bytes + size
            if self.has_branches and size <= SMALL_BYTES:
                taken = self._append_again(kind, payload, size)
            if taken or published > stream.limit_bytes or size > SMALL_BYTES or self.has_branches:
                gather = None
            else:
                gather = stream.append(kind, payload, size)
                has_left = endpoint.outgoing.see_off(stream, stream.route)  # type: ignore[arg-type]
                self._arm(kind, size)
        if taken:
            endpoint.outgoing.write()
            self.branches.advance()
            return True
        if gather is None:
            return self.publisher.publish_encoded(event, timeout, (kind, payload, size))  # type: ignore[no-any-return]
        if has_left:
            endpoint.outgoing.write()
        return True

    # ---- the short way ----

    def _append_again(self, kind: int, payload: Any, size: int) -> bool:
        """What was appended is on its way to modulators: arm again, and begin with this event. Whether it was taken."""
        self.publisher.check_accepting()
        if self.is_halted or type(payload) is not bytes or not self.branches.may_arm(kind):
            return False
        self._arm(kind, size)
        if kind == PLAIN and self._plain_room:
            self._plain.append(payload)
        elif kind == self._encoded[0] and self._encoded_room:
            self._encoded[1].append(payload)
        else:
            return False
        return True

    def _arm(self, kind: int, size: int) -> None:
        """Let `publish` append so many events of this kind, and of about this size, without asking: to a full pack, if
        the window has room for that.

        Only for a producer that publishes in every few ticks: to look after thousands that seldom do would cost more.
        """
        crew = self.endpoint.crew
        ticks = crew.ticks - self._gathered_at_tick
        is_frequent = ticks < _FREQUENT_TICKS
        self._gathered_at_tick = crew.ticks
        self._gathered_in_tick = 1 if ticks else self._gathered_in_tick + 1
        # What an armed producer appends waits for a tick.
        if is_frequent and crew.ticking and self.stream.packing.interval_seconds >= TICK_SECONDS:
            # With too large a size, what is left of a window would be used in ever smaller steps.
            armed_bytes = self._sizes.get(kind) or max(_LEAST_ARMED_BYTES, 1 << (size - 1).bit_length())
            # For who goes only to modulators no link's load says whether to gather.
            unasked = self.stream.policy.unasked
            if self.has_branches and not self.stream.recipients:
                is_busy = self._gathered_in_tick >= _MANY_IN_A_TICK and self.stream.packing.degree != 1
                unasked = _MOST_TO_MODULATORS if is_busy else 0
            room = self._room_for(armed_bytes, unasked)
            self.disarm()
            if room > 0:
                self._armed_bytes = armed_bytes - OVERHEAD_BYTES if kind == PLAIN else armed_bytes
                self._plain_room = room if kind == PLAIN else 0
                if kind == PICKLED or wire_kind(kind) == RECORD:
                    self._encoded = kind, self._lists.setdefault(kind, [])
                    self._encoded_room = room
                self.endpoint.armed[self] = None

    def _arm_directly(self) -> None:
        """Let `publish` hand objects to the one inline modulator that gets them, as many as there is room for."""
        host = self.branches.only_inline()
        if host is not None and not self.outlet.has_consumers and not self._plain:
            # One of the two at a time, so that what was published first is seen first.
            self._plain_room = self._encoded_room = 0
            host.direct_room = self._room_for(_LEAST_ARMED_BYTES, _MOST_TO_MODULATORS)
            self._direct = host

    def _room_for(self, each_bytes: int, most: int) -> int:
        """How many events of this size everybody has room for, up to so many."""
        stream = self.stream
        limit = stream.limit_bytes - stream.published_bytes
        if self.has_branches:
            limit = self.branches.room_bytes()
            if stream.recipients:
                limit = min(limit, stream.limit_bytes - stream.published_bytes)
        return min(most, limit // each_bytes)

    def has_little(self) -> bool:
        """Whether so little came since the last tick that each event should be looked at, and leave at once."""
        absorbed, self._absorbed = self._absorbed, 0
        return not self.stream.policy.unasked if self.stream.recipients else absorbed < _MANY_IN_A_TICK

    @override
    def disarm(self) -> bool:
        if self._direct is not None:
            self._direct.direct_room = 0
            self._direct = None
        was_armed = bool(self._plain_room or self._encoded_room)
        self._plain_room = self._encoded_room = 0
        return was_armed

    @override
    def absorb(self) -> bool:
        if self._direct is not None:
            seen = self._direct.seen_directly()
            self.endpoint.core.skip(self.stream, seen)
        if self.is_halted:
            return False  # a thread that found it armed was late: that is published after the cut
        # Several lists, since a thread that was about to append may go on after another has armed us for another kind.
        # What is of a kind that it is not armed for came first.
        lists = [(PLAIN, self._plain), *self._lists.items()]
        absorbed_before = self._absorbed
        armed = PLAIN if self._plain_room else self._encoded[0]
        for kind, pending in sorted(lists, key=lambda each: each[0] == armed) if len(lists) > 2 else lists:
            count = len(pending)
            if count:
                # Another thread may append between these two, behind what is taken.
                taken = pending[:count]
                del pending[:count]
                each_bytes = self._sizes.get(kind)
                size = each_bytes * count if each_bytes else sum(map(len, taken)) + OVERHEAD_BYTES * count
                if self.has_branches:
                    self.branches.feed(Chunk(kind, taken, None, size))
                self.outlet.absorb(kind, taken, size)
                self._absorbed += count
        return self._absorbed > absorbed_before

    # ---- the long way ----

    @override
    def needs_bytes(self, event: Any) -> bool:
        # Also where only a consumer of this process does: what can't be encoded raises before anybody has it.
        return bool(self.stream.recipients) or self.branches.need_bytes or self.outlet.needs_record(event)

    @override
    def attempt(self, event: Any, encoded: Encoded | None, deliver: bool) -> tuple[Any, int]:
        with self.lock:
            self.publisher.check_accepting()
            self.absorb()
            if encoded is None and self.needs_bytes(event):
                encoded = self.encode(event)
            size = encoded[2] if encoded else OVERHEAD_BYTES
            blockers = self.blockers(size)
            if self.is_halted:
                return None, size
            if blockers and refuses(self.stream.overflow):
                raise self.publisher.overloaded(blockers[0])
            outcome = None if blockers else self._send(event, encoded, deliver)
        self.endpoint.outgoing.write()
        if self.has_branches:
            self.branches.advance()
        return outcome, size

    def _send(self, event: Any, encoded: Encoded | None, deliver: bool) -> Any:
        delivery = self.endpoint.new_delivery() if deliver else None
        # Until all who have to answer are known.
        guard = delivery.hold() if delivery is not None else None
        complete = True
        if self.has_branches:
            complete = self.branches.offer(event, encoded, delivery)
        complete &= self.outlet.send(event, encoded, delivery)
        if guard is not None:
            guard.complete()
            return delivery
        if self.has_branches:
            if encoded is None:
                self._arm_directly()
            elif self.branches.may_arm(encoded[0]):
                self._arm(encoded[0], encoded[2])
        return complete

    @override
    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        stream = self.stream
        if stream.limit_bytes < 0:
            return self.publisher.deliver_encoded(event, timeout)
        encoded = kind, payload, size = self.encode(event)
        endpoint = self.endpoint
        with self.lock:
            self.absorb()
            takes_long_way = stream.published_bytes + size > stream.limit_bytes or size > SMALL_BYTES
            if not takes_long_way and not self.has_branches:
                stream.append(kind, payload, size)
                delivery = endpoint.new_delivery()
                began = time.monotonic()
                endpoint.core.deliver_appended(delivery.awaited, stream, began)
                endpoint.outgoing.sent(began)
            else:
                delivery = None
        if delivery is None:
            return self.publisher.deliver_encoded(event, timeout, encoded)
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()
        endpoint.outgoing.write()
        return delivery

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """Nothing is published meanwhile: whoever wants to, waits. Without the endpoint's lock."""
        with self.lock:
            self.disarm()
            self.absorb()
            self.is_halted = True
        try:
            self.branches.advance()
            yield
        finally:
            with self.lock:
                self.is_halted = False
                self.endpoint.room.notify_all()

    @override
    def publish_block(self, kind: int, data: Any, count: int) -> bool:
        return publish_block(self, kind, data, count)

    @override
    def outlets(self) -> Iterator[Outlet]:
        yield self.outlet
        for branch in self.branches:
            yield branch.outlet

    @override
    def blockers(self, size: int) -> list[Blocker]:
        blockers = self.outlet.blockers(size)
        if not self.has_branches:
            return blockers
        for branch in self.branches:
            if branch.host is None or not branch.is_wanted:
                continue
            if not branch.host.queues:
                blockers += branch.outlet.blockers(size + branch.outlet.backlog_bytes)
            elif branch.outlet.backlog_bytes > self.stream.window_bytes and holds_up(self.stream.overflow):
                blockers.append(Blocker(f"modulator {branch.derived.shipment.name}, which does not keep up"))
        return blockers

    @override
    def drain(self, timeout: float | None) -> None:
        Drain(self, timeout).run()

    @override
    def apply(self, membership: Membership) -> None:
        if membership.recency > self.stream.version:
            self.absorb()
            self.disarm()
            # Another incarnation: deleted, and made again before we heard of it.
            deleted = membership.deleted or membership.incarnation != self.publisher.incarnation
            self.branches.apply(membership, deleted)

    @override
    def counters(self) -> dict[str, Any]:
        self.absorb()
        counters = self.outlet.counters()
        return {**counters, "derived": self.branches.counters()} if self.branches else counters

    @override
    def gauges(self) -> dict[str, Any]:
        gauges = self.outlet.gauges()
        return {**gauges, "derived": self.branches.gauges()} if self.branches else gauges

    @override
    def leave(self) -> None:
        self.branches.leave()
        self.endpoint.armed.pop(self, None)

    @override
    def close(self) -> None:
        self.branches.close()
