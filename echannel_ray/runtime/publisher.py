"""What one producer does with an event: the short way for most, the long one for all else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core.kinds import PICKLED, PLAIN, RECORD, wire_kind
from echannel_ray.core.lags import ends_of
from echannel_ray.core.messages import KeptLog, Membership, UnregisterProducer
from echannel_ray.core.packing import Packing
from echannel_ray.core.streams import NEVER
from echannel_ray.core.windows import Blocker, refuses
from echannel_ray.formats.events import OVERHEAD_BYTES, encode
from echannel_ray.modulation.admission import Admission
from echannel_ray.runtime.branch import Chunk
from echannel_ray.runtime.branches import Branches
from echannel_ray.runtime.bulk import publish_blocks
from echannel_ray.runtime.crew import TICK_SECONDS
from echannel_ray.runtime.deliveries import PendingDelivery
from echannel_ray.runtime.draining import Drain
from echannel_ray.runtime.granting import Grants, Info
from echannel_ray.runtime.outlet import SMALL_BYTES, Encoded, Outlet
from echannel_ray.runtime.room import Room
from echannel_ray.runtime.waiting import deadline_of

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint
    from echannel_ray.runtime.inline import InlineHost
    from echannel_ray.runtime.typed import RecordEncoder

_LEAST_ARMED_BYTES = 1024 + OVERHEAD_BYTES
_FREQUENT_TICKS = 3
# Where nobody but modulators gets what is published, no pack bounds what they get at once.
_MOST_TO_MODULATORS = 1023
_MANY_IN_A_TICK = 8


class Publisher:
    """One producer on one channel; any number of threads may use it."""

    log: KeptLog | None = None  # that it publishes the events of: only where a log is kept
    hosts_modulators = True
    is_registered = True  # in the channel's books, which its manager keeps

    def __init__(
        self,
        endpoint: Endpoint,
        channel: str,
        incarnation: int,
        overflow: str,
        window_bytes: int,
        packing: Packing,
        derived: str = "",
        admission: Admission | None = None,
        services: Mapping[Any, Any] | None = None,
        delegate: Callable[[str], Any] | None = None,
        records: RecordEncoder | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.records = records  # of a typed channel
        self.encode: Callable[[Any], Encoded] = encode if records is None else records.encode
        self._sizes = {} if records is None else records.sizes  # of the events of some kinds
        self.channel = channel
        self.incarnation = incarnation
        self.derived = derived  # it publishes straight into this derived channel
        self.admission = admission or Admission()
        self.branches = Branches(self)
        self.has_branches = False  # what `branches` would say, without the call: each event asks
        self.is_halted = False  # while consumers go over to other modulators
        self._refusal: errors.EChannelError | None = None
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
        self._lock = endpoint.lock
        with self._lock:
            self.outlet = Outlet(endpoint, channel, overflow, window_bytes, packing, self.encode)
            self.stream = self.outlet.stream
            endpoint.publishers[self.stream.number] = self
        self.room = Room(self)
        self.name = self.outlet.name
        self.grants = Grants(services, delegate, Info(self.name, channel, endpoint.namespace, endpoint.node))

    # ---- publishing ----

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """Queue the event for every consumer.

        True when each will get it, False when the overflow policy dropped it for one. Waits (up to `timeout` seconds,
        else `TimeoutError`) while a consumer's window is full and the policy is "block".
        """
        # A producer that is *armed* (see `_arm`) only appends: an append is atomic, so it needs no lock.
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
            return self.publish_encoded(event, timeout)  # type: ignore[no-any-return]
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
        with self._lock:
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
            return self.publish_encoded(event, timeout, (kind, payload, size))  # type: ignore[no-any-return]
        if has_left:
            endpoint.outgoing.write()
        return True

    # ---- the short way ----

    def _append_again(self, kind: int, payload: Any, size: int) -> bool:
        """What was appended is on its way to modulators: arm again, and begin with this event. Whether it was taken."""
        self.check_accepting()
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

    def disarm(self) -> bool:
        """The next event takes the long way; those that were appended are absorbed later. Under the lock.

        Whether it was armed.
        """
        if self._direct is not None:
            self._direct.direct_room = 0
            self._direct = None
        was_armed = bool(self._plain_room or self._encoded_room)
        self._plain_room = self._encoded_room = 0
        return was_armed

    def cut_off(self) -> None:
        """The endpoint can't send any more: the next call takes the long way, and finds out why; under the lock."""
        self.disarm()
        self.stream.limit_bytes = NEVER

    def forget(self) -> None:
        """In the child of a fork: see `Endpoint.forget`."""
        self._lock = self.endpoint.lock
        self.cut_off()

    def absorb(self) -> bool:
        """Take what was appended into the pack that is being gathered; under the lock. Whether there was anything."""
        there_was = False
        if self._direct is not None:
            seen = self._direct.seen_directly()
            self.endpoint.core.skip(self.stream, seen)
        if self.is_halted:
            return False  # a thread that found it armed was late: that is published after the cut
        # Several lists, since a thread that was about to append may go on after another has armed us for another kind.
        # What is of a kind that it is not armed for came first.
        lists = [(PLAIN, self._plain), *self._lists.items()]
        armed = PLAIN if self._plain_room else self._encoded[0]
        for kind, pending in sorted(lists, key=lambda each: each[0] == armed) if len(lists) > 2 else lists:
            count = len(pending)
            if count:
                # Another thread may append between these two, behind what is taken.
                taken = pending[:count]
                del pending[:count]
                self._absorb(kind, taken)
                there_was = True
        return there_was

    def _absorb(self, kind: int, taken: list[bytes]) -> None:
        each_bytes = self._sizes.get(kind)
        count = len(taken)
        self._absorbed += count
        size = each_bytes * count if each_bytes else sum(map(len, taken)) + OVERHEAD_BYTES * count
        if self.has_branches:
            self.branches.feed(Chunk(kind, taken, None, size))
        if self.outlet.has_consumers:
            self.outlet.absorb(kind, taken, size)
        else:
            self.endpoint.core.skip(self.stream, len(taken))

    # ---- the long way ----

    def publish_encoded(
        self,
        event: Any,
        timeout: float | None,
        encoded: tuple[int, Any, int] | None = None,
        deliver: bool = False,
    ) -> Any:
        """The long way: anything that the short one can't do."""
        deadline = deadline_of(timeout)
        if encoded is None:
            encoded = self._encode_if_needed(event)
        while True:
            outcome, size = self._attempt(event, encoded, deliver)
            if outcome is not None:
                return outcome
            self.room.wait(size, deadline, timeout)

    def _encode_if_needed(self, event: Any) -> Encoded | None:
        if self._needs_bytes(event):
            return self.encode(event)
        if self.records is not None:
            self.records.ready(event)
        return None

    def _needs_bytes(self, event: Any) -> bool:
        """Also where only a consumer of this process does: what can't be encoded raises before anybody has it."""
        return bool(self.stream.recipients) or self.branches.need_bytes or self.outlet.needs_record(event)

    def _attempt(self, event: Any, encoded: tuple[int, Any, int] | None, deliver: bool) -> tuple[Any, int]:
        """Publish if there is room: the outcome, or None and the size for which there is none."""
        stream = self.stream
        with self._lock:
            self.check_accepting()
            self.absorb()
            if encoded is None and self._needs_bytes(event):
                encoded = self.encode(event)
            size = encoded[2] if encoded else OVERHEAD_BYTES
            blockers = self.room.blockers(size)
            if self.is_halted:
                return None, size
            if blockers and refuses(stream.overflow):
                raise self.overloaded(blockers[0])
            outcome = None if blockers else self._send(event, encoded, deliver)
        self.endpoint.outgoing.write()
        if self.has_branches:
            self.branches.advance()
        return outcome, size

    def overloaded(self, blocker: Blocker) -> errors.Overloaded:
        """What a policy raises where somebody has no room."""
        return errors.Overloaded(
            f"the window of {blocker} is full on channel {self.channel!r}: publish less, make its "
            'handler faster, or open the producer with overflow="block", "drop_newest" or "drop_oldest"',
            channel=self.channel,
            consumer=str(blocker),
        )

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

    # ---- the other calls ----

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of the events, in order; False when the overflow policy dropped one for a consumer.

        On a typed channel the records of a NumPy structured array or `pyarrow.RecordBatch` travel in blocks: none of
        them becomes an object, and packs are as long as is best for them, whatever the packing degree.
        """
        blocks = self.records.blocks(events) if self.records is not None else None
        if blocks is not None:
            return publish_blocks(self, blocks)
        publish = self.publish
        complete = True
        rows = getattr(events, "to_pylist", None)
        for event in rows() if rows is not None else events:
            complete &= publish(event)
        return complete

    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        """Publish the event at once; the result comes when every consumer's handler has returned.

        Where there is no room for it, this waits as `publish` does (up to `timeout` seconds). In a coroutine the
        delivery waits instead: the event loop goes on.
        """
        stream = self.stream
        encoded = None
        if stream.limit_bytes >= 0:
            encoded = kind, payload, size = self.encode(event)
            delivery = self._deliver_gathered(kind, payload, size) if size <= SMALL_BYTES else None
            if delivery is not None:
                self.endpoint.outgoing.write()
                return delivery
        if is_in_coroutine():
            encoded = encoded or self._encode_if_needed(event)
            delivery, size = self._attempt(event, encoded, deliver=True)
            return delivery or self._deliver_later(event, encoded, size, timeout)
        return self.publish_encoded(event, timeout, encoded, deliver=True)  # type: ignore[no-any-return]

    def _deliver_later(
        self, event: Any, encoded: tuple[int, Any, int] | None, size: int, timeout: float | None
    ) -> PendingDelivery:
        deadline = deadline_of(timeout)
        with self._lock:
            waiting = self.endpoint.new_delivery()
            waiting.begin_late()

        async def admit(size: int) -> None:
            try:
                while True:
                    await self.room.wait_async(size, deadline, timeout)
                    delivery, size = self._attempt(event, encoded, deliver=True)
                    if delivery is not None:
                        delivery.pass_on_to(waiting)
                        return
            except BaseException as error:
                waiting.fail(error)
                if not isinstance(error, Exception):
                    raise

        waiting.task = asyncio.get_running_loop().create_task(admit(size))
        return waiting

    def _deliver_gathered(self, kind: int, payload: Any, size: int) -> PendingDelivery | None:
        """The usual way, as `_gather` is for `publish`; None where the long one must be taken."""
        stream = self.stream
        endpoint = self.endpoint
        with self._lock:
            self.absorb()
            published = stream.published_bytes + size
            if published > stream.limit_bytes or self.has_branches:
                return None
            stream.append(kind, payload, size)
            delivery = endpoint.new_delivery()
            began = time.monotonic()
            endpoint.core.deliver_appended(delivery.awaited, stream, began)
            endpoint.outgoing.sent(began)
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()
        return delivery

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all published so far has been received by every consumer's process (by groups: handled)."""
        Drain(self, timeout).run()

    def retire(self) -> UnregisterProducer:
        """Close the stream, in its order; what the manager has to be told of it."""
        endpoint = self.endpoint
        with self._lock:
            self.disarm()
            self.absorb()
            endpoint.flush_all()
            totals = self.counters()
            endpoint.teller.look_at_producer(self)
            endpoint.teller.forget(self)
            endpoint.core.close_stream(self.stream)
            self.branches.leave()
            endpoint.publishers.pop(self.stream.number, None)
            endpoint.armed.pop(self, None)
            endpoint.flush_all()
            endpoint.room.notify_all()
        endpoint.outgoing.write()
        self.branches.close()
        return UnregisterProducer(self.channel, self.stream.number, totals)

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """As `publish`, without holding up the event loop. An event is not published by a call that was cancelled."""
        deadline = deadline_of(timeout)
        encoded = self._encode_if_needed(event)
        while True:
            outcome, size = self._attempt(event, encoded, deliver=False)
            if outcome is not None:
                return bool(outcome)
            await self.room.wait_async(size, deadline, timeout)

    def refuse(self, error: errors.EChannelError) -> None:
        """Take no event any more, for which `publish` raises this; what was published can still be drained."""
        with self._lock:
            self._refusal = error
            self.disarm()
            self.stream.ending = True
            self.stream.refresh_limit()
            self.endpoint.room.notify_all()

    @property
    def refuses(self) -> bool:
        """Whether nothing can be published any more; what was may still be drained."""
        return self._refusal is not None or self.stream.closed

    def check_accepting(self) -> None:
        """Raise where nothing can be published any more."""
        if self._refusal is not None:
            raise self._refusal
        self.check_open()

    def check_open(self) -> None:
        """Raise where nothing can be published, and nothing drained, any more."""
        if self.stream.closed:
            if self.endpoint.closed:
                self.endpoint.check_usable()  # which says that it was the whole process that left
            raise errors.Closed(
                f"this producer of channel {self.channel!r} is closed: make another with channel.producer()",
                what="producer",
            )
        if self.stream.deleted:
            raise errors.ChannelDeleted(
                f"channel {self.channel!r} was deleted: create it again with echannel_ray.channel() to go on",
                channel=self.channel,
            )
        self.endpoint.check_usable()

    # ---- membership ----

    def apply(self, membership: Membership) -> None:
        """The consumers of the channel have changed; under the lock. Modulators were made ready before."""
        version = (membership.epoch, membership.version)
        if version > self.stream.version:
            self.absorb()
            self.disarm()
            # Another incarnation: deleted, and made again before we heard of it.
            deleted = membership.deleted or membership.incarnation != self.incarnation
            self.branches.apply(membership, version, deleted)

    def foresee(self, membership: Membership) -> None:
        """This membership is about to be made ready for; without the lock."""

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """Nothing is published meanwhile: whoever wants to, waits."""
        with self._lock:
            self.disarm()
            self.absorb()
            self.is_halted = True
        try:
            self.branches.advance()
            yield
        finally:
            with self._lock:
                self.is_halted = False
                self.endpoint.room.notify_all()

    def outlets(self) -> Iterator[Outlet]:
        """All that what it publishes may go out by."""
        yield self.outlet
        for branch in self.branches:
            yield branch.outlet

    @property
    def is_blocked(self) -> bool:
        """Whether a `publish` waits for room now."""
        return self.room.waiting > 0

    def totals(self) -> dict[str, Any]:
        """What of its counters only grows, at little cost; under the lock."""
        return self.counters()

    def counters(self) -> dict[str, Any]:
        """What this producer has done so far; under the lock."""
        self.absorb()
        counters: dict[str, Any] = {
            **self.outlet.counters(),
            "blocked_milliseconds": self.room.blocked_milliseconds,
        }
        if self.branches:
            counters["derived"] = self.branches.counters()
        return counters

    def gauges(self) -> dict[str, Any]:
        """What is so now; under the lock, behind `counters`."""
        gauges: dict[str, Any] = {**self.outlet.gauges(), "blocked_producers": int(self.is_blocked)}
        if self.branches:
            gauges["derived"] = self.branches.gauges()
        return gauges

    def ends(self) -> dict[str, int]:
        """How far what consumers get goes, see `lags`; under the lock, behind `counters`."""
        ends: dict[str, int] = {}
        for outlet in self.outlets():
            ends.update(ends_of(self.endpoint.id, outlet.stream))
        return ends


def is_in_coroutine() -> bool:
    """Whether the caller holds up an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
