"""What one producer does with an event: the short way for most, the long one for all else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.formats.events import BUFFERS, OVERHEAD_BYTES, PLAIN, encode
from echannel_ray.protocol import frames
from echannel_ray.protocol.gathering import Gather
from echannel_ray.protocol.messages import Membership
from echannel_ray.protocol.sending import BLOCK, DROP_NEWEST, DROP_OLDEST, RAISE, Recipient
from echannel_ray.runtime.deliveries import Delivery
from echannel_ray.runtime.mailbox import Gap, LocalEvent, LocalGap, Mailbox, producer_name
from echannel_ray.runtime.outgoing import Large

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint

# Above this an event takes the long way, where packs are bounded by bytes; below, the degree bounds them.
_SMALL_BYTES = 1024
_ASK_AGAIN_SECONDS = 0.3


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
        self._interval_seconds = interval_seconds
        self._lock = endpoint.lock
        with self._lock:
            self.stream = endpoint.sender.open_stream(channel, overflow, window_bytes, max_degree)
            endpoint.publishers[self.stream.number] = self
        self.name = producer_name(endpoint.id, self.stream.number)

    # ---- publishing ----

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """Queue the event for every consumer; True when each will get it, False when the overflow policy dropped it for one.

        Waits (up to `timeout` seconds, else `TimeoutError`) while a consumer's window is full and the policy is "block".
        """
        stream = self.stream
        if type(event) is bytes:
            kind = PLAIN
            payload: Any = event
            size = len(event) + OVERHEAD_BYTES
        elif stream.limit_bytes < 0:
            return self._publish(event, timeout)
        else:
            kind, payload, size = encode(event)
        with self._lock:
            published = stream.published_bytes + size
            if published <= stream.limit_bytes and size <= _SMALL_BYTES:
                gather = stream.gather
                if gather.stream is not stream or gather.kind != kind:  # type: ignore[union-attr]
                    self._turn(gather, kind)  # type: ignore[arg-type]
                stream.published_bytes = published
                events = gather.events  # type: ignore[union-attr]
                events.append(payload)
                if len(events) < stream.max_degree:
                    return True
                self.endpoint.outgoing.flush(stream.route.flow)  # type: ignore[union-attr]
                short = True
            else:
                short = False
        if not short:
            return self._publish(event, timeout, (kind, payload, size))
        self.endpoint.outgoing.write()
        return True

    def _turn(self, gather: Gather, kind: int) -> None:
        gather.turn(self.stream, kind)
        self._see_to_departure(gather)

    def _see_to_departure(self, gather: Gather) -> None:
        if not gather.due_at:
            gather.due_at = time.monotonic() + self._interval_seconds
            if not self.endpoint.crew.ticking:
                self.endpoint.crew.wake_ticker()

    def _publish(
        self,
        event: Any,
        timeout: float | None,
        encoded: tuple[int, Any, int] | None = None,
        deliver: bool = False,
    ) -> Any:
        """The long way: anything that the short one can't do."""
        stream = self.stream
        endpoint = self.endpoint
        deadline = None if timeout is None else time.monotonic() + timeout
        if encoded is None and stream.recipients:
            encoded = encode(event)
        while True:
            with self._lock:
                self.check_open()
                if encoded is None and stream.recipients:
                    encoded = encode(event)
                size = encoded[2] if encoded else OVERHEAD_BYTES
                blockers = self._blockers(size)
                if not blockers:
                    outcome = self._send(event, encoded, deliver)
                    break
                if stream.overflow == RAISE:
                    raise errors.Overloaded(
                        f"the window of {blockers[0]} is full on channel {self.channel!r}: publish less, make its handler "
                        'faster, or open the producer with overflow="block", "drop_newest" or "drop_oldest"',
                        channel=self.channel,
                        consumer=str(blockers[0]),
                    )
            self._wait_for_room(size, deadline, timeout)
        endpoint.outgoing.write()
        return outcome

    def _send(self, event: Any, encoded: tuple[int, Any, int] | None, deliver: bool) -> Any:
        stream = self.stream
        endpoint = self.endpoint
        sender = endpoint.sender
        dropped = False
        if encoded is not None and stream.recipients:
            kind, payload, size = encoded
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
        accepted = self._send_local(event, sequence, delivery)
        if delivery is not None:
            reached = [r for r in stream.recipients.values() if _was_sent(r, sequence)]
            delivery.expect([(r.endpoint, r.subscription) for r in reached], accepted, time.monotonic())
            flows = {(r.route or stream.route).flow for r in reached}  # type: ignore[union-attr]
            for flow in flows:
                endpoint.outgoing.flush(flow, delivery.number)
            return delivery
        if special or stream.laggards:
            endpoint.flush_all()
        elif stream.gather is not None:
            self._see_to_departure(stream.gather)
            gathered = stream.gather
            if len(gathered.events) >= stream.max_degree or gathered.gathered_bytes >= frames.MAX_PACK_BYTES:
                endpoint.outgoing.flush(stream.route.flow)  # type: ignore[union-attr]
        return not dropped and accepted == len(self.local)

    def _send_local(self, event: Any, sequence: int, delivery: Delivery | None) -> int:
        """Hand the event itself to consumers of this process; how many took it."""
        accepted = 0
        for mailbox in self.local:
            if mailbox.local_pending >= mailbox.window_events and self.stream.overflow in (DROP_NEWEST, DROP_OLDEST):
                if not self._drop_local(mailbox, sequence):
                    continue
            mailbox.offer(LocalEvent(event, self.name, sequence, time.time(), delivery))
            accepted += 1
        return accepted

    def _drop_local(self, mailbox: Mailbox, sequence: int) -> bool:
        """Make room by dropping the oldest event of ours in the queue (True), or drop the new one (False)."""
        self.stream.dropped += 1
        if self.stream.overflow == DROP_NEWEST:
            last = mailbox.queue[-1] if mailbox.queue else None
            if type(last) is LocalGap and last.gap.producer == self.name and last.gap.last == sequence - 1:
                mailbox.queue[-1] = LocalGap(Gap(self.name, last.gap.first, sequence))
            else:
                mailbox.offer(LocalGap(Gap(self.name, sequence, sequence)))
            return False
        mailbox.drop_oldest(self.name)
        return True

    # ---- room ----

    def _blockers(self, size: int) -> list[Any]:
        """Who has no room for an event of this size; empty where the policy drops."""
        stream = self.stream
        blockers: list[Any] = ["a large event that is leaving"] if stream.chunks else []
        if stream.overflow in (BLOCK, RAISE):
            if stream.route is not None and not stream.fits(size):
                blockers += [_Consumer(r) for r in stream.full_recipients(size)]
            if stream.groups:
                blockers += [f"group {name!r}" for name in self.endpoint.sender.full_groups(stream, size)]
            for mailbox in self.local:
                # A handler may publish into its own channel: it can't wait for itself.
                if mailbox.local_pending >= mailbox.window_events and not mailbox.is_current_thread():
                    blockers.append("a consumer in this process")
        return blockers

    def _wait_for_room(self, size: int, deadline: float | None, timeout: float | None) -> None:
        endpoint = self.endpoint
        with self._lock:
            endpoint.blocked_publishers += 1
            endpoint.flush_all()
            self._ask_for_credit()
        try:
            endpoint.outgoing.write()
            endpoint.crew.step_aside()
            asked_at = time.monotonic()
            if not endpoint.crew.ticking:
                endpoint.crew.wake_ticker()
            with self._lock:
                while self._blockers(size) and not (self.stream.closed or self.stream.deleted or endpoint.broken):
                    now = time.monotonic()
                    if deadline is not None and now >= deadline:
                        raise TimeoutError(
                            f"no room for the event on channel {self.channel!r} within {timeout} s: "
                            f"{', '.join(map(str, self._blockers(size)))}"
                        )
                    if now - asked_at >= _ASK_AGAIN_SECONDS:
                        return  # and ask again
                    left = _ASK_AGAIN_SECONDS if deadline is None else min(_ASK_AGAIN_SECONDS, deadline - now)
                    endpoint.room.wait(left)
        finally:
            with self._lock:
                endpoint.blocked_publishers -= 1

    def _ask_for_credit(self) -> None:
        """Have those who are behind report as soon as they have handled what was sent."""
        stream = self.stream
        endpoint = self.endpoint
        for recipient in stream.recipients.values():
            mark = recipient.sent[-1].mark if recipient.sent else stream.published_bytes
            if recipient.handled_mark < mark or recipient.sent:
                fixed = frames.CREDIT_WANTED_FIXED.pack(
                    recipient.node, recipient.endpoint, endpoint.node, endpoint.id,
                    stream.number, recipient.subscription, mark,
                )  # fmt: skip
                endpoint.outgoing.put(frames.frame(frames.CREDIT_WANTED, fixed))

    # ---- the other calls ----

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of the events, in order; False when the overflow policy dropped one for a consumer."""
        rows = getattr(events, "to_pylist", None)
        publish = self.publish
        complete = True
        for event in rows() if rows is not None else events:
            complete &= publish(event)
        return complete

    def deliver(self, event: Any) -> Delivery:
        """Publish the event at once; the result comes when every consumer's handler has returned."""
        delivery: Delivery = self._publish(event, None, deliver=True)
        return delivery

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all published so far has been received by every consumer's process (handled, by members of groups)."""
        self.endpoint.check_usable()
        deadline = None if timeout is None else time.monotonic() + timeout
        self.endpoint.crew.step_aside()
        with self._lock:
            self.endpoint.flush_all()
            marks = {flow: flow.last_sent for flow in self.stream.flows}
            grouped = {
                key: recipient.sent[-1].mark
                for key, recipient in self.stream.recipients.items()
                if recipient.sent and recipient.consumer.group is not None
            }
            self.endpoint.blocked_publishers += 1
        try:
            while not self._drained(marks, grouped):
                self._urge(deadline, timeout)
        finally:
            with self._lock:
                self.endpoint.blocked_publishers -= 1

    def _drained(self, marks: dict[Any, int], grouped: dict[tuple[int, int], int]) -> bool:
        stream = self.stream
        with self._lock:
            if self.endpoint.broken is not None:
                raise self.endpoint.broken
            if stream.chunks or any(r.backlog for r in stream.laggards):
                return False
            for key, mark in grouped.items():
                recipient = stream.recipients.get(key)
                if recipient is not None and any(u.mark <= mark for u in recipient.sent):
                    return False
            if any(stream.undelivered.values()):
                return False
            return all(flow.lowest_acked >= mark for flow, mark in marks.items())

    def _urge(self, deadline: float | None, timeout: float | None) -> None:
        endpoint = self.endpoint
        with self._lock:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"not all of channel {self.channel!r} was acknowledged within {timeout} s")
            endpoint.flush_all()
            for flow in self.stream.flows:
                for node in flow.nodes_to_probe(now, at_once=True):
                    endpoint.outgoing.put(frames.probe(endpoint.id, flow.number, flow.last_sent, node))
            if self.stream.groups or self.stream.laggards:
                self._ask_for_credit()
        endpoint.outgoing.write()
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()
        with self._lock:
            left = _ASK_AGAIN_SECONDS if deadline is None else min(_ASK_AGAIN_SECONDS, deadline - time.monotonic())
            endpoint.room.wait(max(0.0, left))

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """As `publish`, without holding up the event loop."""
        stream = self.stream
        if stream.limit_bytes >= 0 and stream.fits(_SMALL_BYTES):
            return self.publish(event, timeout)
        with self._lock:
            blocked = bool(self._blockers(_SMALL_BYTES)) or stream.chunks
        if not blocked or stream.overflow != BLOCK:
            return self.publish(event, timeout)
        return await asyncio.get_running_loop().run_in_executor(None, self.publish, event, timeout)

    async def adrain(self, timeout: float | None = None) -> None:
        """As `drain`, without holding up the event loop."""
        await asyncio.get_running_loop().run_in_executor(None, self.drain, timeout)

    def check_open(self) -> None:
        """Raise where nothing can be published any more."""
        if self.stream.closed:
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
            self.local = tuple(local)
            self.stream.has_local_consumers = bool(local)
            # Another incarnation: deleted, and made again before we heard of it.
            deleted = membership.deleted or membership.incarnation != self.incarnation
            if deleted:
                remote, self.local = [], ()
                self.stream.has_local_consumers = False
            endpoint.sender.membership_changed(self.stream, version, remote, deleted)

    def counters(self) -> dict[str, int]:
        """What this producer has done so far; under the lock."""
        stream = self.stream
        if stream.gather is not None:
            stream.gather.settle()
        return {
            "events_published": stream.next_sequence - 1,
            "events_dropped": stream.dropped,
            "bytes_published": max(0, stream.published_bytes - OVERHEAD_BYTES * (stream.next_sequence - 1)),
        }


class _Consumer:
    """A recipient, as errors name it."""

    def __init__(self, recipient: Recipient) -> None:
        self._recipient = recipient

    def __str__(self) -> str:
        return f"consumer {self._recipient.endpoint:016x}.{self._recipient.subscription}"


def _was_sent(recipient: Recipient, sequence: int) -> bool:
    if recipient.route is None:
        return True
    return bool(recipient.sent) and recipient.sent[-1].sequence == sequence


def _as_segments(kind: int, payload: Any) -> tuple[int, list[Any]]:
    if kind == BUFFERS:
        return kind, payload
    if type(payload) is bytes:
        return kind, [payload]
    import pickle  # a long string or number: in chunks it travels as its pickle

    return 1, [pickle.dumps(payload, 5)]
