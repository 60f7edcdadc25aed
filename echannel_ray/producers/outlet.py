"""Where events of one stream go out: to the consumers of a channel, or of one that is derived from it."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core.frames import CHUNK_BYTES
from echannel_ray.core.kinds import BUFFERS, IN_SEGMENT, NOTICE, PICKLED
from echannel_ray.core.lags import lag_of_groups
from echannel_ray.core.large_events import Large
from echannel_ray.core.messages import Consumer
from echannel_ray.core.segments import Placed
from echannel_ray.core.streams import SenderStream
from echannel_ray.core.windows import Blocker, blockers
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.producers.local_source import LocalSource, hand_over, hand_over_block
from echannel_ray.producers.pending_deliveries import PendingDelivery

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

MAX_EVENT_BYTES = (2 << 30) + (1 << 20)  # 2 GiB, and what serialising adds
# Above this an event takes the long way.
SMALL_BYTES = 16 << 10

Encoded = tuple[int, Any, int]


class Outlet:
    """One stream of this process, and its consumers here and elsewhere. All under the endpoint's lock."""

    def __init__(
        self, endpoint: ProcessEndpoint, stream: SenderStream, producer: str, encode: Callable[[Any], Encoded]
    ) -> None:
        self.endpoint = endpoint
        self.core = endpoint.core
        self.stream = stream
        self.name = producer  # as consumers are told it
        self.encode = encode
        self.local: tuple[LocalSource, ...] = ()  # for each consumer of this process
        self.held: deque[tuple[int, Callable[[], object]]] = deque()  # what goes out behind a large event that leaves
        self.backlog_bytes = 0  # that wait for a modulator: its consumers' window counts them

    @property
    def has_consumers(self) -> bool:
        """Whether anybody gets what goes out here."""
        return bool(self.local or self.stream.recipients)

    def blockers(self, size: int) -> list[Blocker]:
        """Who of its consumers holds up an event of this size."""
        local_is_full = False
        for each in self.local:
            if each.is_full and not each.inbox.driver.is_current_thread():
                local_is_full = True
        return blockers(self.stream, size, local_is_full, self.backlog_bytes, self.endpoint.is_in_handler_of)

    # ---- small events, many at a time ----

    def absorb(self, kind: int, taken: list[Any], size_bytes: int) -> None:
        """Add small events of one kind to the pack that is being gathered; skip them where no process gets any."""
        stream = self.stream
        if stream.closed or stream.deleted:
            return
        if not stream.recipients:
            self.core.skip(stream, len(taken))
            return
        if stream.limit_bytes < 0:
            # Groups, laggards, or consumers of this process that came after this was published.
            size = size_bytes // len(taken)
            for payload in taken:
                self.core.publish_one(stream, kind, payload, size)
            self._see_off_all()
            return
        began = time.monotonic()
        may_wait = self.endpoint.is_absorbing
        has_left = self.core.publish_batch(stream, kind, taken, size_bytes, began, may_wait)
        outgoing = self.endpoint.outgoing
        outgoing.sent(began)
        if not (has_left or may_wait) and stream.route is not None:
            outgoing.wait_for_departure(stream, stream.route)

    def needs_record(self, event: Any) -> bool:
        """Whether a consumer of this process gets something else than the event itself."""
        for each in self.local:
            records = each.inbox.records
            if records is not None and not records.is_same(event):
                return True
        return False

    # ---- blocks of records ----

    def send_block(self, kind: int, block: bytes | memoryview | Placed, count: int, size_bytes: int) -> None:
        """Many records at once, which leave at once. No group and no laggard may be among the consumers."""
        stream = self.stream
        if stream.closed or stream.deleted:
            return
        if stream.recipients:
            began = time.monotonic()
            if isinstance(block, Placed):
                outer, lent = self.lent(kind, block, count)
                first = self.core.publish_block(stream, outer, lent, count, size_bytes, began)
            else:
                first = self.core.publish_block(stream, kind, block, count, size_bytes, began)
            self.endpoint.outgoing.sent(began)
        else:
            first = self.core.skip(stream, count)
        if self.local:
            hand_over_block(self, kind, block[0] if isinstance(block, Placed) else block, count, first)
        stream.refresh_limit()

    # ---- any event ----

    def in_turn(self, size_bytes: int, go: Callable[[], object]) -> None:
        """Do this now, or when the large event that is leaving has left: what follows one must not overtake it.

        A publisher waits for that. What modulators emit is held here, and counts as their backlog.
        """
        if self.held or self.stream.chunks:
            self.held.append((size_bytes, go))
            self.backlog_bytes += size_bytes
            self.endpoint.held_up[self.stream.number] = self
        else:
            go()

    def release(self) -> None:
        """A large event has left."""
        while self.held and not self.stream.chunks:
            size, go = self.held.popleft()
            self.backlog_bytes -= size
            go()
        if not self.held:
            self.endpoint.held_up.pop(self.stream.number, None)

    def send(self, event: Any, encoded: Encoded | None, delivery: PendingDelivery | None) -> bool:
        """One event to everybody; False where a policy dropped it for one. It leaves at once with a `delivery`."""
        stream = self.stream
        endpoint = self.endpoint
        dropped = False
        special = False
        if encoded is not None and stream.recipients:
            kind, payload, size = self._payload(*encoded)
            special = bool(stream.groups or stream.laggards)
            sequence, dropped = self.core.publish_one(stream, kind, payload, size)
        else:
            sequence = self.core.skip(stream)
        accepted = hand_over(self, event, encoded, sequence, delivery) if self.local else 0
        if delivery is not None:
            self._expect(delivery, sequence, accepted)
            return True
        for route in stream.routes() if special or stream.laggards else (stream.route,):
            if route is not None and route.gather:
                endpoint.outgoing.see_off(stream, route)
        return not dropped and accepted == len(self.local)

    def drop(self, count: int, reason: str) -> None:
        """Events that nobody gets, since a policy dropped them: a gap for everybody."""
        self.in_turn(0, partial(self._drop, count, reason))

    def _drop(self, count: int, reason: str) -> None:
        first = self.core.drop_for_all(self.stream, count, reason)
        for each in self.local:
            each.offer_gap(first, first + count - 1)
        self._see_off_all()

    def _payload(self, kind: int, payload: Any, size: int) -> tuple[int, Any, int]:
        if size > MAX_EVENT_BYTES:
            raise errors.NotSerialisable(
                f"an event of {size:,} bytes: the limit is {MAX_EVENT_BYTES:,}; publish it in parts, or put it "
                "where both sides can read it and publish where that is",
                size=size,
            )
        if isinstance(payload, Placed):
            kind, payload = self.lent(kind, payload)
        if kind & IN_SEGMENT:
            pass
        elif size - OVERHEAD_BYTES > CHUNK_BYTES:
            payload = Large(self.stream, *_as_segments(kind, payload))
            kind = payload.kind
        elif kind == BUFFERS:
            payload = joined(payload)
        return kind, payload, size

    def lends(self, placed: Placed) -> bool:
        """Whether all consumers in other processes see what lies there."""
        destinations = self.stream.segment_destinations(self.endpoint.node)
        return destinations is not None and placed.is_seen_by(destinations)

    def lent(self, kind: int, placed: Placed, count: int = 1) -> tuple[int, Any]:
        """What lies in a segment as it travels: where it is, or its bytes if somebody can't see it there."""
        if not self.lends(placed):
            return kind, placed if kind == BUFFERS else bytes(placed[0])
        self.stream.in_segments += count
        return kind | IN_SEGMENT, placed.lent()

    def _expect(self, delivery: PendingDelivery, sequence: int, accepted: int) -> None:
        endpoint = self.endpoint
        began = time.monotonic()
        reached = self.core.deliver(delivery.awaited, self.stream, sequence, began)
        grouped = [endpoint.inboxes.get(r.subscription) for r in reached if r.endpoint == endpoint.id]
        own = [*(each.inbox for each in self.local), *(inbox for inbox in grouped if inbox is not None)]
        delivery.expect(accepted, own)
        endpoint.outgoing.sent(began)

    def notify(self, error: errors.EChannelError, encoded: bytes) -> None:
        """Tell the consumers something that is no event, in its place."""
        self.in_turn(len(encoded), partial(self._notify, error, encoded))

    def _notify(self, error: errors.EChannelError, encoded: bytes) -> None:
        if self.stream.recipients:
            self.core.publish_one(self.stream, NOTICE, encoded, len(encoded) + OVERHEAD_BYTES)
        for each in self.local:
            each.inbox.tell(error)
        self._see_off_all()

    def _see_off_all(self) -> None:
        for route in self.stream.routes():
            if route.gather:
                self.endpoint.outgoing.see_off(self.stream, route)

    # ---- consumers ----

    def apply(
        self,
        version: tuple[int, int],
        consumers: Iterable[Consumer],
        deleted: bool,
        cutover_points: Mapping[tuple[int, int], tuple[int, int]],
    ) -> None:
        """The consumers have changed."""
        mine = self.endpoint.id
        inboxes = self.endpoint.inboxes
        remote = []
        local = []
        for consumer in consumers:
            if consumer.endpoint != mine or consumer.group is not None:
                remote.append(consumer)
            elif consumer.subscription in inboxes:
                local.append(LocalSource(self.name, inboxes[consumer.subscription], consumer.handler_version))
        self.local = tuple(local)
        self.stream.has_local_consumers = bool(local)
        self.core.members_changed(self.stream, version, remote, deleted, cutover_points)

    def counters(self) -> dict[str, Any]:
        """What has gone out here so far."""
        stream = self.stream
        if stream.gather is not None:
            stream.gather.end_run()
        if stream.mixture is not None:
            stream.mixture.count(stream)
        # Each had an overhead in its mark, but for those in blocks, which have one together.
        overheads = stream.next_sequence - 1 - stream.skipped - stream.records_in_blocks + stream.blocks
        return {
            "events_published": stream.next_sequence - 1,
            "events_dropped": stream.dropped,
            "dropped": dict(stream.drops),
            "packs_sent": stream.packs,
            "bytes_between_nodes": stream.bytes_between_nodes,
            "bytes_published": stream.published_bytes - OVERHEAD_BYTES * overheads,
            "events_in_segments": stream.in_segments,
            "not_in_segments": dict(stream.not_in_segments),
        }

    def gauges(self) -> dict[str, int]:
        """What is so now."""
        return {"consumer_lag_events": lag_of_groups(self.stream)}


def joined(payload: Any) -> bytes:
    """A payload in one piece."""
    return payload if isinstance(payload, bytes) else b"".join(payload)


def _as_segments(kind: int, payload: Any) -> tuple[int, list[Any]]:
    if kind == BUFFERS and not isinstance(payload, bytes):
        return kind, payload
    if type(payload) is bytes:
        return kind, [payload]
    # A long string: in chunks it travels as its pickle.
    return PICKLED, [pickle.dumps(payload, 5)]
