"""What one producer does with an event: the short way for most, the long one for all else."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.formats.events import BUFFERS, OVERHEAD_BYTES, PICKLED, PLAIN, encode
from echannel_ray.protocol import frames
from echannel_ray.protocol.gathering import Gather
from echannel_ray.protocol.messages import Membership, UnregisterProducer
from echannel_ray.protocol.streams import NEVER, RAISE, Recipient
from echannel_ray.runtime.deliveries import Delivery
from echannel_ray.runtime.draining import Drain
from echannel_ray.runtime.local import hand_over
from echannel_ray.runtime.mailbox import Mailbox, producer_name
from echannel_ray.runtime.offload import in_thread
from echannel_ray.runtime.outgoing import Large
from echannel_ray.runtime.room import Room
from echannel_ray.runtime.waiting import deadline_of

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint

MAX_EVENT_BYTES = (2 << 30) + (1 << 20)  # 2 GiB, and what serialising adds
# Above this an event takes the long way, where packs are bounded by bytes; below, the degree bounds them.
_SMALL_BYTES = 1024
_LARGEST_SMALL_BYTES = _SMALL_BYTES + OVERHEAD_BYTES
_FREQUENT_TICKS = 3


class Publisher:
    """One producer on one channel; any number of threads may use it."""

    def __init__(
        self,
        endpoint: Endpoint,
        channel: str,
        incarnation: int,
        overflow: str,
        window_bytes: int,
        max_degree: int,
        interval_seconds: float,
    ) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.incarnation = incarnation
        self.local: tuple[Mailbox, ...] = ()
        self.interval_seconds = interval_seconds
        self._gathered_at_tick = -_FREQUENT_TICKS
        self._plain: list[bytes] = []  # published the short way, and not yet absorbed
        self._pickled: list[bytes] = []
        self._plain_room = self._pickled_room = 0  # how many events may be in the two lists; at most one is not 0
        self._lock = endpoint.lock
        with self._lock:
            self.stream = endpoint.sender.open_stream(channel, overflow, window_bytes, max_degree)
            endpoint.publishers[self.stream.number] = self
        self.room = Room(self)
        self.name = producer_name(endpoint.id, self.stream.number)

    # ---- publishing ----

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """Queue the event for every consumer.

        True when each will get it, False when the overflow policy dropped it for one. Waits (up to `timeout` seconds,
        else `TimeoutError`) while a consumer's window is full and the policy is "block".
        """
        # A producer that is *armed* (see `_arm`) only appends: an append is atomic, so it needs no lock.
        if type(event) is bytes:
            pending = self._plain
            if len(pending) < self._plain_room and len(event) <= _SMALL_BYTES:
                pending.append(event)
                return True
            return self._gather(event, timeout, PLAIN, event, len(event) + OVERHEAD_BYTES)
        if self.stream.limit_bytes < 0:
            return self._publish(event, timeout)  # type: ignore[no-any-return]
        kind, payload, size = encode(event)
        pending = self._pickled
        if len(pending) < self._pickled_room and kind == PICKLED and size <= _SMALL_BYTES:
            pending.append(payload)
            return True
        return self._gather(event, timeout, kind, payload, size)

    def _gather(self, event: Any, timeout: float | None, kind: int, payload: Any, size: int) -> bool:
        """Add the event to the pack that is being gathered; the usual way of a producer that is not armed."""
        stream = self.stream
        endpoint = self.endpoint
        full = False
        with self._lock:
            if self._plain or self._pickled:
                self.absorb()
            published = stream.published_bytes + size
            if published > stream.limit_bytes or size > _SMALL_BYTES:
                gather = None
            else:
                gather = stream.gather
                if gather.stream is not stream or gather.kind != kind:  # type: ignore[union-attr]
                    self._turn(gather, kind)  # type: ignore[arg-type]
                stream.published_bytes = published
                events = gather.events  # type: ignore[union-attr]
                events.append(payload)
                full = len(events) >= stream.max_degree
                if full:
                    endpoint.outgoing.flush(stream.route.flow)  # type: ignore[union-attr]
                self._arm(kind)
        if gather is None:
            return self._publish(event, timeout, (kind, payload, size))  # type: ignore[no-any-return]
        if full:
            endpoint.outgoing.write()
        return True

    def _turn(self, gather: Gather, kind: int) -> None:
        gather.turn(self.stream, kind)
        self._see_to_departure(gather)

    def _see_to_departure(self, gather: Gather) -> None:
        if not gather.due_at:
            gather.due_at = time.monotonic() + self.interval_seconds
            if not self.endpoint.crew.ticking:
                self.endpoint.crew.wake_ticker()

    # ---- the short way ----

    def _arm(self, kind: int) -> None:
        """Let `publish` append so many events of this kind without asking: to a full pack, if the window has room for
        that.

        Only for a producer that publishes in every few ticks: to look after thousands that seldom do would cost more.
        """
        stream = self.stream
        crew = self.endpoint.crew
        is_frequent = crew.ticks - self._gathered_at_tick < _FREQUENT_TICKS
        self._gathered_at_tick = crew.ticks
        room = min(stream.max_degree - 1, (stream.limit_bytes - stream.published_bytes) // _LARGEST_SMALL_BYTES)
        if is_frequent and room > 0 and crew.ticking:
            self._plain_room = room if kind == PLAIN else 0
            self._pickled_room = room if kind == PICKLED else 0
            self.endpoint.armed[self] = None

    def disarm(self) -> bool:
        """The next event takes the long way; those that were appended are absorbed later. Under the lock.

        Whether it was armed.
        """
        was_armed = bool(self._plain_room or self._pickled_room)
        self._plain_room = self._pickled_room = 0
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
        # Two lists, since a thread that was about to append may go on after another has armed us for the other kind.
        # What is of the kind that it is not armed for came first.
        lists = [(PICKLED, self._pickled), (PLAIN, self._plain)]
        for kind, pending in lists if self._plain_room else reversed(lists):
            count = len(pending)
            if count:
                # Another thread may append between these two, behind what is taken.
                taken = pending[:count]
                del pending[:count]
                self._absorb(kind, taken)
                there_was = True
        return there_was

    def _absorb(self, kind: int, taken: list[bytes]) -> None:
        stream = self.stream
        if stream.limit_bytes < 0:
            self._absorb_singly(kind, taken)
            return
        gather = stream.gather
        assert gather is not None
        if len(gather.events) + len(taken) > stream.max_degree:
            self.endpoint.outgoing.flush(stream.route.flow)  # type: ignore[union-attr]
        if gather.stream is not stream or gather.kind != kind:
            self._turn(gather, kind)
        stream.published_bytes += sum(map(len, taken)) + OVERHEAD_BYTES * len(taken)
        if gather.events:
            gather.events += taken
        else:
            gather.events = taken
        if len(gather.events) >= stream.max_degree:
            self.endpoint.outgoing.flush(stream.route.flow)  # type: ignore[union-attr]

    def _absorb_singly(self, kind: int, taken: list[bytes]) -> None:
        """The stream has changed since. Consumers of this process that are new do not get what was published before."""
        sender = self.endpoint.sender
        for payload in taken if not (self.stream.closed or self.stream.deleted) else ():
            if self.stream.recipients:
                sender.send_to_all(self.stream, kind, payload, len(payload) + OVERHEAD_BYTES)
            else:
                sender.skip(self.stream)

    # ---- the long way ----

    def _publish(
        self,
        event: Any,
        timeout: float | None,
        encoded: tuple[int, Any, int] | None = None,
        deliver: bool = False,
    ) -> Any:
        """The long way: anything that the short one can't do."""
        deadline = deadline_of(timeout)
        if encoded is None and self.stream.recipients:
            encoded = encode(event)
        while True:
            outcome, size = self._attempt(event, encoded, deliver)
            if outcome is not None:
                return outcome
            self.room.wait(size, deadline, timeout)

    def _attempt(self, event: Any, encoded: tuple[int, Any, int] | None, deliver: bool) -> tuple[Any, int]:
        """Publish if there is room: the outcome, or None and the size for which there is none."""
        stream = self.stream
        with self._lock:
            self.check_open()
            self.absorb()
            if encoded is None and stream.recipients:
                encoded = encode(event)
            size = encoded[2] if encoded else OVERHEAD_BYTES
            blockers = self.room.blockers(size)
            if blockers and stream.overflow == RAISE:
                raise errors.Overloaded(
                    f"the window of {blockers[0]} is full on channel {self.channel!r}: publish less, make its "
                    'handler faster, or open the producer with overflow="block", "drop_newest" or "drop_oldest"',
                    channel=self.channel,
                    consumer=str(blockers[0]),
                )
            outcome = None if blockers else self._send(event, encoded, deliver)
        self.endpoint.outgoing.write()
        return outcome, size

    def _send(self, event: Any, encoded: tuple[int, Any, int] | None, deliver: bool) -> Any:
        stream = self.stream
        endpoint = self.endpoint
        sender = endpoint.sender
        dropped = False
        if encoded is not None and stream.recipients:
            kind, payload, size = encoded
            if size > MAX_EVENT_BYTES:
                raise errors.NotSerialisable(
                    f"an event of {size:,} bytes: the limit is {MAX_EVENT_BYTES:,}; publish it in parts, or put it "
                    "where both sides can read it and publish where that is",
                    size=size,
                )
            if size - OVERHEAD_BYTES > frames.CHUNK_BYTES:
                payload = Large(stream, *_as_segments(kind, payload))
                kind = payload.kind
            elif kind == BUFFERS:
                payload = b"".join(payload)
            special = bool(stream.groups or stream.laggards)
            sequence, dropped = sender.send_to_all(stream, kind, payload, size)
        else:
            special = False
            sequence = sender.skip(stream)
        delivery = endpoint.new_delivery() if deliver else None
        accepted = hand_over(self, event, sequence, delivery)
        if delivery is not None:
            reached = [r for r in stream.recipients.values() if _was_sent(r, sequence)]
            remote = [(r.endpoint, r.subscription) for r in reached]
            grouped = [endpoint.mailboxes.get(s) for e, s in remote if e == endpoint.id]
            own = [*self.local, *(mailbox for mailbox in grouped if mailbox is not None)]
            delivery.expect(remote, accepted, time.monotonic(), own)
            flows = {(r.route or stream.route).flow for r in reached}  # type: ignore[union-attr]
            for flow in flows:
                endpoint.outgoing.flush(flow, delivery.number)
            return delivery
        for route in stream.routes() if special or stream.laggards else (stream.route,):
            if route is not None and route.gather:
                self._see_to_departure(route.gather)
                is_full = len(route.gather.events) >= stream.max_degree
                if is_full or route.gather.gathered_bytes >= frames.MAX_PACK_BYTES:
                    endpoint.outgoing.flush(route.flow)
        return not dropped and accepted == len(self.local)

    # ---- the other calls ----

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of the events, in order; False when the overflow policy dropped one for a consumer."""
        rows = getattr(events, "to_pylist", None)
        publish = self.publish
        complete = True
        for event in rows() if rows is not None else events:
            complete &= publish(event)
        return complete

    def deliver(self, event: Any, timeout: float | None = None) -> Delivery:
        """Publish the event at once; the result comes when every consumer's handler has returned.

        Where there is no room for it, this waits as `publish` does (up to `timeout` seconds). In a coroutine the
        delivery waits instead: the event loop goes on.
        """
        stream = self.stream
        encoded = None
        if stream.limit_bytes >= 0:
            encoded = kind, payload, size = encode(event)
            delivery = self._deliver_gathered(kind, payload, size) if size <= _SMALL_BYTES else None
            if delivery is not None:
                self.endpoint.outgoing.write()
                return delivery
        if _is_in_coroutine():
            delivery, size = self._attempt(event, encoded, deliver=True)
            return delivery or self._deliver_later(event, encoded, size, timeout)
        return self._publish(event, timeout, encoded, deliver=True)  # type: ignore[no-any-return]

    def _deliver_later(
        self, event: Any, encoded: tuple[int, Any, int] | None, size: int, timeout: float | None
    ) -> Delivery:
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

    def _deliver_gathered(self, kind: int, payload: Any, size: int) -> Delivery | None:
        """The usual way, as `_gather` is for `publish`; None where the long one must be taken."""
        stream = self.stream
        endpoint = self.endpoint
        with self._lock:
            self.absorb()
            published = stream.published_bytes + size
            if published > stream.limit_bytes:
                return None
            gather = stream.gather
            route = stream.route
            if gather.stream is not stream or gather.kind != kind:  # type: ignore[union-attr]
                gather.turn(stream, kind)  # type: ignore[union-attr]
            stream.published_bytes = published
            gather.events.append(payload)  # type: ignore[union-attr]
            delivery = endpoint.new_delivery()
            delivery.expect([(r.endpoint, r.subscription) for r in route.recipients], 0, time.monotonic())  # type: ignore[union-attr]
            endpoint.outgoing.flush(route.flow, delivery.number)  # type: ignore[union-attr]
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
            endpoint.sender.close_stream(self.stream)
            endpoint.publishers.pop(self.stream.number, None)
            endpoint.armed.pop(self, None)
            endpoint.flush_all()
            endpoint.room.notify_all()
        endpoint.outgoing.write()
        return UnregisterProducer(self.channel, self.stream.number, totals)

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """As `publish`, without holding up the event loop. An event is not published by a call that was cancelled."""
        deadline = deadline_of(timeout)
        encoded = encode(event) if self.stream.recipients else None
        while True:
            outcome, size = self._attempt(event, encoded, deliver=False)
            if outcome is not None:
                return bool(outcome)
            await self.room.wait_async(size, deadline, timeout)

    async def adrain(self, timeout: float | None = None) -> None:
        """As `drain`, without holding up the event loop."""
        await in_thread(partial(self.drain, timeout))

    def check_open(self) -> None:
        """Raise where nothing can be published any more."""
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
        """The consumers of the channel have changed; under the lock."""
        endpoint = self.endpoint
        mine = endpoint.id
        remote = [c for c in membership.consumers if c.endpoint != mine or c.group is not None]
        local = [
            endpoint.mailboxes[c.subscription]
            for c in membership.consumers
            if c.endpoint == mine and c.group is None and c.subscription in endpoint.mailboxes
        ]
        version = (membership.epoch, membership.version)
        if version > self.stream.version:
            self.absorb()
            self.disarm()
            self.local = tuple(local)
            self.stream.has_local_consumers = bool(local)
            # Another incarnation: deleted, and made again before we heard of it.
            deleted = membership.deleted or membership.incarnation != self.incarnation
            if deleted:
                remote, self.local = [], ()
                self.stream.has_local_consumers = False
            endpoint.sender.membership_changed(self.stream, version, remote, deleted)

    @property
    def is_blocked(self) -> bool:
        """Whether a `publish` waits for room now."""
        return self.room.waiting > 0

    def counters(self) -> dict[str, int]:
        """What this producer has done so far; under the lock."""
        stream = self.stream
        self.absorb()
        if stream.gather is not None:
            stream.gather.settle()
        return {
            "events_published": stream.next_sequence - 1,
            "events_dropped": stream.dropped,
            "packs_sent": stream.packs,
            "bytes_between_nodes": stream.bytes_between_nodes,
            "blocked_milliseconds": self.room.blocked_milliseconds,
            "bytes_published": stream.published_bytes - OVERHEAD_BYTES * (stream.next_sequence - 1 - stream.skipped),
        }


def _was_sent(recipient: Recipient, sequence: int) -> bool:
    if recipient.route is None:
        return True
    return bool(recipient.sent) and recipient.sent[-1].sequence == sequence


def _is_in_coroutine() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _as_segments(kind: int, payload: Any) -> tuple[int, list[Any]]:
    if kind == BUFFERS:
        return kind, payload
    if type(payload) is bytes:
        return kind, [payload]
    # A long string: in chunks it travels as its pickle.
    return PICKLED, [pickle.dumps(payload, 5)]
