"""One producer of this process: its stream, and the sink that its events go to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.compilation import mypyc_attr
from echannel_ray.core.lags import ends_of, stream_name
from echannel_ray.core.messages import Membership, OpenedLog, UnregisterProducer
from echannel_ray.core.packing import Packing
from echannel_ray.core.segments import MIN_COPIED_BYTES
from echannel_ray.core.streams import NEVER
from echannel_ray.core.windows import Blocker
from echannel_ray.endpoint.deadlines import GivenTimeout, deadline_of
from echannel_ray.formats.events import encode
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.producers.outlet import Encoded
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.producers.room import Room
from echannel_ray.producers.sink import Sink

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.endpoint.record_codec import RecordEncoder
    from echannel_ray.endpoint.segment_store import SegmentStore


@mypyc_attr(allow_interpreted_subclasses=True)
class Origin:
    """What publishes by a producer of its own what a log holds: it follows who consumes, and counts otherwise."""

    log: OpenedLog | None = None  # that the producer stands for in its channel's books; None where it is in no books

    def foresee(self, membership: Membership) -> None:
        """This membership is about to be made ready for; without the lock."""

    def follow(self, membership: Membership) -> None:
        """The consumers have changed; under the lock. It calls `apply` of the producer's sink."""
        raise NotImplementedError

    def totals(self, published: dict[str, Any]) -> dict[str, Any]:
        """What of its counters only grows, of those of the producer itself."""
        raise NotImplementedError

    def counters(self, published: dict[str, Any]) -> dict[str, Any]:
        """All that it has counted."""
        return self.totals(published)

    def ends(self) -> dict[str, int]:
        """How far its log goes, where it stands for that."""
        return {}


class Publisher:
    """One producer on one channel; any number of threads may use it."""

    def __init__(
        self,
        endpoint: ProcessEndpoint,
        channel: str,
        incarnation: int,
        overflow: str,
        window_bytes: int,
        packing: Packing,
        derived: str = "",
        records: RecordEncoder | None = None,
        sink: Callable[[Publisher], Sink] = ConsumerSink,
    ) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.incarnation = incarnation
        self.derived = derived  # it publishes straight into this derived channel
        self.records = records  # of a typed channel
        self.encode: Callable[[Any], Encoded] = encode if records is None else records.encode
        self.origin: Origin | None = None
        self._refusal: errors.EChannelError | None = None
        with endpoint.lock:
            self.stream = endpoint.core.open_stream(channel, overflow, window_bytes, packing)
        self.name = stream_name(endpoint.id, self.stream.number)
        self.sink = sink(self)
        self.room = Room(self)
        self.loans: SegmentStore | None = None  # once it has loaned an array
        # The sink's own, not called by ours: another call for each event would be a third of what one costs.
        self.publish = self.sink.publish
        self.deliver = self.sink.deliver

    def beside(self, derived: str) -> Publisher:
        """Another on the same channel, which publishes straight into this derived one."""
        stream = self.stream
        return Publisher(
            self.endpoint, self.channel, self.incarnation, stream.overflow, stream.window_bytes, Packing(), derived,
            self.records,
        )  # fmt: skip

    def enter(self) -> None:
        """Be one of the producers of this process, which are told of consumers that come and go."""
        with self.endpoint.lock:
            self.endpoint.publishers[self.stream.number] = self

    # ---- publishing ----

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of the events, in order; False when the overflow policy dropped one for a consumer. Records that
        are one behind the other in memory travel in blocks.
        """
        complete = True
        blocks = self.records.blocks(events, self.sink.block_bytes) if self.records is not None else None
        if blocks is not None:
            is_shared = self.loans is not None and self.sink.segment_destinations() is not None
            loaned = self.loans.placed(events) if self.loans is not None and is_shared else None
            at = 0
            for kind, data, count in blocks:
                block = data if loaned is None else loaned.part(at, len(data))
                at += len(data)
                complete &= self.sink.publish_block(kind, block, count)
            return complete
        publish = self.publish
        rows = getattr(events, "to_pylist", None)
        for event in rows() if rows is not None else events:
            complete &= publish(event)
        return complete

    def publish_encoded(
        self, event: Any, timeout: GivenTimeout, encoded: Encoded | None = None, deliver: bool = False
    ) -> Any:
        """Publish, by the long way: as soon as there is room."""
        deadline = deadline_of(timeout)
        encoded = self._ready(event, encoded)
        while True:
            outcome, size = self.sink.attempt(event, encoded, deliver)
            if outcome is not None:
                return outcome
            self.room.wait(size, deadline, timeout)

    def _ready(self, event: Any, encoded: Encoded | None = None) -> Encoded | None:
        """What somebody gets of the event as bytes, if anybody does."""
        if encoded is None:
            if self.sink.needs_bytes(event):
                encoded = self.sink.encode(event)
            elif self.records is not None:
                self.records.ready(event)
        return encoded if encoded is None or encoded[2] < MIN_COPIED_BYTES else self.sink.placed(encoded)

    async def apublish(self, event: Any, timeout: GivenTimeout = None) -> bool:
        """As `publish`, without holding up the event loop. An event is not published by a call that was cancelled."""
        deadline = deadline_of(timeout)
        encoded = self._ready(event)
        while True:
            outcome, size = self.sink.attempt(event, encoded, False)
            if outcome is not None:
                return bool(outcome)
            await self.room.wait_async(size, deadline, timeout)

    def deliver_encoded(self, event: Any, timeout: GivenTimeout, encoded: Encoded | None = None) -> PendingDelivery:
        """Deliver, by the long way. In a coroutine the delivery waits for room, and the event loop goes on."""
        if not is_in_coroutine():
            return self.publish_encoded(event, timeout, encoded, deliver=True)  # type: ignore[no-any-return]
        encoded = self._ready(event, encoded)
        delivery, size = self.sink.attempt(event, encoded, True)
        return delivery or self._deliver_later(event, encoded, size, timeout)

    def _deliver_later(self, event: Any, encoded: Encoded | None, size: int, timeout: GivenTimeout) -> PendingDelivery:
        deadline = deadline_of(timeout)
        with self.endpoint.lock:
            waiting = self.endpoint.new_delivery()
            waiting.begin_late()

        async def admit(size: int) -> None:
            try:
                while True:
                    await self.room.wait_async(size, deadline, timeout)
                    delivery, size = self.sink.attempt(event, encoded, True)
                    if delivery is not None:
                        delivery.pass_on_to(waiting)
                        return
            except BaseException as error:
                waiting.fail(error)
                if not isinstance(error, Exception):
                    raise

        waiting.task = asyncio.get_running_loop().create_task(admit(size))
        return waiting

    def loan(self, shape: Any, dtype: Any) -> Any:
        """An array to be written and published, in a segment if one can be had that those who would get it now see."""
        import numpy as np

        with self.endpoint.lock:
            self.check_accepting()
        if self.loans is None:
            self.loans = self.endpoint.exchange.store
            self.sink.expect_loans()
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"an array of {dtype} refers to objects of this process: publish it as it is")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        destinations = self.sink.segment_destinations()
        return self.loans.loan(shape, dtype, destinations, self.stream.refuse_segment)

    def give_up(self, event: Any) -> None:
        """An event is about to be published: if it was loaned, nobody writes it any more."""
        if self.loans is not None:
            self.loans.give_up(event, self.stream.refuse_segment)

    def drain(self, timeout: GivenTimeout = None) -> None:
        """Wait until all published so far has been received by every consumer's process (by groups: handled; where a
        log is published to: until it is logged).
        """
        self.sink.drain(timeout)

    # ---- whether it publishes ----

    def overloaded(self, blocker: Blocker) -> errors.Overloaded:
        """What a policy raises where somebody has no room."""
        return errors.Overloaded(
            f"the window of {blocker} is full on channel {self.channel!r}: publish less, make its "
            'handler faster, or open the producer with overflow="block", "drop_newest" or "drop_oldest"',
            channel=self.channel,
            consumer=str(blocker),
        )

    def refuse(self, error: errors.EChannelError) -> None:
        """Take no event any more, for which `publish` raises this; what was published can still be drained."""
        with self.endpoint.lock:
            self._refusal = error
            self.sink.disarm()
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

    def cut_off(self) -> None:
        """The endpoint can't send any more: the next call takes the long way, and finds out why; under the lock."""
        self.sink.disarm()
        self.stream.limit_bytes = NEVER

    def forget(self) -> None:
        """In the child of a fork: see `ProcessEndpoint.forget`."""
        self.sink.lock = self.endpoint.lock
        self.cut_off()

    def retire(self) -> UnregisterProducer:
        """Close the stream, in its order; what the manager has to be told of it."""
        endpoint = self.endpoint
        with endpoint.lock:
            self.sink.disarm()
            self.sink.absorb()
            endpoint.flush_all()
            totals = self.counters()
            endpoint.metrics_reporter.look_at_producer(self)
            endpoint.metrics_reporter.forget(self)
            endpoint.core.close_stream(self.stream)
            self.sink.leave()
            endpoint.publishers.pop(self.stream.number, None)
            endpoint.flush_all()
            endpoint.room.notify_all()
        endpoint.outgoing.write()
        self.sink.close()
        return UnregisterProducer(self.channel, self.stream.number, totals)

    # ---- who consumes ----

    @property
    def is_registered(self) -> bool:
        """Whether it is in the channel's books, which its manager keeps."""
        return self.origin is None or self.origin.log is not None

    @property
    def log(self) -> OpenedLog | None:
        """The log that it publishes the events of, where that is kept here."""
        return None if self.origin is None else self.origin.log

    def foresee(self, membership: Membership) -> None:
        """This membership is about to be made ready for; without the lock."""
        if self.origin is not None:
            self.origin.foresee(membership)

    def apply(self, membership: Membership) -> None:
        """The consumers of the channel have changed; under the lock. Modulators were made ready before."""
        if self.origin is not None:
            self.origin.follow(membership)
        else:
            self.sink.apply(membership)

    # ---- what it tells ----

    def _published(self) -> dict[str, Any]:
        return {**self.sink.counters(), "blocked_milliseconds": self.room.blocked_milliseconds}

    def totals(self) -> dict[str, Any]:
        """What of its counters only grows, at little cost; under the lock."""
        return self._published() if self.origin is None else self.origin.totals(self._published())

    def counters(self) -> dict[str, Any]:
        """What this producer has done so far; under the lock."""
        return self._published() if self.origin is None else self.origin.counters(self._published())

    def gauges(self) -> dict[str, Any]:
        """What is so now; under the lock, behind `counters`."""
        return {**self.sink.gauges(), "blocked_producers": int(self.room.waiting > 0)}

    def ends(self) -> dict[str, int]:
        """How far what consumers get goes, see `lags`; under the lock, behind `counters`."""
        ends: dict[str, int] = {} if self.origin is None else {**self.origin.ends()}
        for outlet in self.sink.outlets():
            ends.update(ends_of(self.endpoint.id, outlet.stream))
        return ends


def is_in_coroutine() -> bool:
    """Whether the caller holds up an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
