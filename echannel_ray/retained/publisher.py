"""A producer on a retained channel: what it publishes goes to the log of its node, whose readers get it from there.

Rules:

* Events are gathered while something is under way to the log, and leave together when that is answered, or when they
  are enough: so the load itself decides how many go together, and one by itself leaves at once.
* What is not known to be logged is kept, and sent again to the log's next keeper; the log leaves out what it has.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec

from echannel_ray import errors
from echannel_ray.formats.events import BUFFERS, OVERHEAD_BYTES
from echannel_ray.logs.entries import NewEntry
from echannel_ray.protocol.kinds import BLOCK, token_of, wire_kind
from echannel_ray.protocol.messages import LogAddress, Membership, OpenLog
from echannel_ray.protocol.streams import DROP_NEWEST, DROP_OLDEST, RAISE
from echannel_ray.retained import calls
from echannel_ray.runtime.calls import Call, Nobody
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.deliveries import Delivery, Failure
from echannel_ray.runtime.offload import in_thread
from echannel_ray.runtime.outlet import joined
from echannel_ray.runtime.publisher import Publisher
from echannel_ray.runtime.waiting import deadline_of

logger = logging.getLogger(__name__)

_FULL_BYTES: Final = 128 << 10
_FULL_EVENTS: Final = 1024
_MOST_UNDER_WAY: Final = 8
_ASK_AGAIN_SECONDS: Final = 1.0
_encode: Final = msgspec.msgpack.Encoder().encode


class _Sent:
    """What is not known to be logged."""

    __slots__ = ("after", "delivery", "entries", "is_under_way", "last", "size_bytes", "slices")

    def __init__(self, after: int, last: int, entries: list[NewEntry], size_bytes: int) -> None:
        self.after = after
        self.last = last
        self.entries = entries
        self.size_bytes = size_bytes
        self.delivery: Delivery | None = None
        self.slices: list[bytes] = []
        self.is_under_way = False


class RetainedPublisher(Publisher):
    """One producer on a retained channel; any number of threads may use it."""

    hosts_modulators = False  # they work where the log is

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._address: LogAddress | None = None
        self._is_looking = False  # for the log, which has moved
        # What is gathered: of one kind at a time.
        self._kind = -1
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._entries: list[NewEntry] = []  # those of other kinds before it
        self._entries_bytes = 0
        self._entries_events = 0
        self._sequence = 0  # of the last event
        self._first = 1  # of the gathered ones
        self._sent: deque[_Sent] = deque()
        self._sent_bytes = 0
        self._last_sent = 0
        self._logged = 0
        self._under_way = 0
        self._failure = ""
        self._packs = 0
        self.published_events = 0

    def begin(self, membership: Membership) -> None:
        """It was registered: find the log of this node."""
        with self._lock:
            self.apply(membership)
        answer = self.endpoint.requests.ask(OpenLog(self.channel, self.incarnation))
        assert isinstance(answer, LogAddress)
        with self._lock:
            self._address = answer

    # ---- publishing ----

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """See `Publisher`. Every consumer will get it once it is in the log."""
        return self._add(self.encode(event), deadline_of(timeout), timeout) is not None

    def _add(
        self, encoded: tuple[int, Any, int], deadline: float | None, timeout: float | None, delivers: bool = False
    ) -> Any:
        kind, payload, size = encoded
        if kind == BUFFERS:
            payload = joined(payload)
        with self._lock:
            self.check_open()
            if not self._has_room(size, deadline, timeout):
                self._drop(1)
                return None
            if size > _FULL_BYTES:
                self._leave()  # it goes by itself, in slices if need be
            if kind != self._kind:
                self._close_entry()
                self._kind = kind
            self._gathered.append(payload)
            self._gathered_bytes += size
            self._sequence += 1
            self.published_events += 1
            self.stream.published_bytes += size
            if not self._under_way or delivers or self._is_full():
                self._leave()
            delivery = self._delivered() if delivers else True
        self._dispatch()
        return delivery

    def _is_full(self) -> bool:
        size = self._gathered_bytes + self._entries_bytes
        return size >= _FULL_BYTES or len(self._gathered) + self._entries_events >= _FULL_EVENTS

    def _delivered(self) -> Delivery:
        """A delivery of the event that has just been added."""
        delivery = self.endpoint.new_delivery()
        delivery.expect((), 1, time.monotonic())
        self._sent[-1].delivery = delivery
        return delivery

    def _has_room(self, size: int, deadline: float | None, timeout: float | None) -> bool:
        """Whether there is, after waiting for it if that is the policy; under the lock."""
        window = self.outlet.stream.window_bytes
        while self._unlogged_bytes + size > window and self._unlogged_bytes:
            if self.stream.overflow == RAISE:
                raise self.overloaded(f"the log of channel {self.channel!r} at this node")
            if self.stream.overflow in (DROP_NEWEST, DROP_OLDEST):
                return False
            self._wait(deadline, timeout, "was there no room: the log of this node takes no more")
            self.check_open()
        return True

    @property
    def _unlogged_bytes(self) -> int:
        return self._sent_bytes + self._gathered_bytes + self._entries_bytes

    def _wait(self, deadline: float | None, timeout: float | None, what: str) -> None:
        """Until something was logged, for a while; under the lock."""
        left = _ASK_AGAIN_SECONDS if deadline is None else min(_ASK_AGAIN_SECONDS, deadline - time.monotonic())
        if left <= 0:
            why = f" ({self._failure})" if self._failure else ""
            raise TimeoutError(f"for {timeout} s {what}{why}")
        self.endpoint.blocked_publishers += 1
        try:
            self.endpoint.room.wait(left)
        finally:
            self.endpoint.blocked_publishers -= 1
        self.endpoint.check_usable()

    def _drop(self, count: int) -> None:
        self._close_entry()
        self._sequence += count
        self._first = self._sequence + 1
        self.stream.dropped += count

    def _close_entry(self) -> None:
        """What was gathered becomes an entry."""
        if not self._gathered:
            self._first = self._sequence + 1
            return
        data = _encode(self._gathered)
        self._add_entry(len(self._gathered), self._kind, data, self._gathered_bytes)
        self._gathered, self._gathered_bytes = [], 0

    def _add_entry(self, count: int, kind: int, data: bytes, size: int) -> None:
        entry = NewEntry(count, wire_kind(kind), token_of(kind), data, self.name, self._first, time.time())
        self._entries.append(entry)
        self._entries_bytes += size
        self._entries_events += count
        self._first += count

    def _leave(self) -> None:
        """Send all that was gathered; under the lock."""
        self._close_entry()
        if not self._entries:
            return
        sent = _Sent(self._last_sent, self._first - 1, self._entries, self._entries_bytes)
        if len(sent.entries) == 1 and len(sent.entries[0].data) > calls.MAX_ENTRY_BYTES:
            data = sent.entries[0].data
            sent.slices = [data[at : at + calls.MAX_CALL_BYTES] for at in range(0, len(data), calls.MAX_CALL_BYTES)]
            sent.entries = [sent.entries[0]._replace(data=b"")]
        self._packs += 1
        self._last_sent = sent.last
        self._sent.append(sent)
        self._sent_bytes += sent.size_bytes
        self._entries, self._entries_bytes, self._entries_events = [], 0, 0

    # ---- the calls ----

    def _dispatch(self) -> None:
        """Send what waits, as far as it may be under way; without the lock."""
        while True:
            with self._lock:
                address = self._address
                sent = next((each for each in self._sent if not each.is_under_way), None)
                if sent is None or address is None or self._under_way >= _MOST_UNDER_WAY or self.stream.deleted:
                    break
                sent.is_under_way = True
                self._under_way += 1
            self._call(address, sent)
        if not self.endpoint.crew.leads:
            self.endpoint.outgoing.write()

    def _call(self, address: LogAddress, sent: _Sent) -> None:
        begin = self.endpoint.calls.begin
        where = (address.node, address.endpoint)
        try:
            for number, data in enumerate(sent.slices):
                begin(*where, calls.Slice(self.channel, address.log, self.name, sent.last, number, data), _ignore)
            message = calls.Append(
                self.channel, address.log, self.name, sent.after, sent.last, sent.entries,
                sent.delivery is not None, len(sent.slices),
            )  # fmt: skip
            begin(*where, message, partial(self._answered, address, sent))
        except errors.EChannelError:
            pass  # this process leaves: whoever waits is told by its endpoint

    def _answered(self, address: LogAddress, sent: _Sent, call: Call) -> None:
        try:
            answer: Any = call.result()
        except Nobody:
            answer = None
        except errors.EChannelError as error:
            answer = calls.Unlogged(str(error))
        with self._lock:
            if sent.is_under_way:
                sent.is_under_way = False
                self._under_way -= 1
            if isinstance(answer, calls.Appended):
                delivered = self._logged_up_to(answer.last)
                if not self._under_way or self._is_full():
                    self._leave()
            else:
                delivered = []
                self._failure = answer.reason if isinstance(answer, calls.Unlogged) else "its keeper is away"
                if address == self._address:
                    self._look_for_log()
        for each in delivered:
            self._await(address, each)
        self._dispatch()

    def _logged_up_to(self, last: int) -> list[_Sent]:
        """These are in the log; those of them that somebody waits for."""
        delivered = []
        while self._sent and self._sent[0].last <= last:
            done = self._sent.popleft()
            self._sent_bytes -= done.size_bytes
            self._logged = done.last
            if done.is_under_way:
                done.is_under_way = False
                self._under_way -= 1
            if done.delivery is not None:
                delivered.append(done)
        self._failure = ""
        self.endpoint.room.notify_all()
        return delivered

    def _look_for_log(self) -> None:
        """The log is elsewhere: ask for it, and send all again that is not known to be logged; under the lock."""
        self._address = None
        if not self._is_looking:
            self._is_looking = True
            self.endpoint.crew.submit(Errand(self._find_log))

    def _find_log(self) -> None:
        try:
            address = self.endpoint.requests.ask(OpenLog(self.channel, self.incarnation))
        except (errors.EChannelError, TimeoutError) as error:
            logger.debug("the log of channel %r: %s", self.channel, error)  # deleted, or this process leaves
            with self._lock:
                self._is_looking = False
                self._failure = str(error)
            return
        with self._lock:
            self._is_looking = False
            self._address = address
            self._under_way = 0
            for sent in self._sent:
                sent.is_under_way = False
            if self._sent:
                self._sent[0].after = -1  # it may be another log, which has nothing of ours
        self._dispatch()

    def _await(self, address: LogAddress, sent: _Sent) -> None:
        message = calls.Await(self.channel, address.log, self.name, sent.last)
        delivery = sent.delivery
        assert delivery is not None

        def answered(call: Call) -> None:
            try:
                answer = call.result()
            except (Nobody, errors.EChannelError):
                answer = None
            if isinstance(answer, calls.Outcomes):
                failures = [Failure(*each) for each in answer.failures]
                delivery.answered(answer.handled, failures)
            else:
                reason = "the event is logged, but the log's keeper died before its readers had answered"
                delivery.answered(0, [Failure("the log", reason)])

        try:
            self.endpoint.calls.begin(address.node, address.endpoint, message, answered)
        except errors.EChannelError as error:
            delivery.fail(error)

    # ---- the other calls ----

    def publish_many(self, events: Iterable[Any]) -> bool:
        """See `Publisher`."""
        blocks = self.records.blocks(events) if self.records is not None else None
        if blocks is None:
            publish = self.publish
            complete = True
            rows = getattr(events, "to_pylist", None)
            for event in rows() if rows is not None else events:
                complete &= publish(event)
            return complete
        complete = True
        for kind, data, count in blocks:
            complete &= self._add_block(kind, data, count)
        return complete

    def _add_block(self, kind: int, data: Any, count: int) -> bool:
        assert wire_kind(kind) == BLOCK
        size = len(data) + OVERHEAD_BYTES
        with self._lock:
            self.check_open()
            if not self._has_room(size, None, None):
                self._drop(count)
                return False
            self._close_entry()
            self._sequence += count
            self._add_entry(count, kind, bytes(data), size)
            self.published_events += count
            self.stream.published_bytes += len(data) + OVERHEAD_BYTES * count
            if not self._under_way or self._is_full():
                self._leave()
        self._dispatch()
        return True

    def deliver(self, event: Any, timeout: float | None = None) -> Delivery:
        """See `Publisher`: the result comes when every reader of the log has handled it."""
        delivery = self._add(self.encode(event), deadline_of(timeout), timeout, delivers=True)
        if delivery is None:
            raise errors.Overloaded(
                f"the event was dropped, as the policy says: the log of channel {self.channel!r} has no room",
                channel=self.channel, consumer="the log",
            )  # fmt: skip
        return delivery  # type: ignore[no-any-return]

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all published so far is in the log."""
        deadline = deadline_of(timeout)
        self.endpoint.crew.step_aside()
        with self._lock:
            self.check_open()
            self._leave()
            target = self._last_sent
        self._dispatch()
        with self._lock:
            while self._logged < target:
                self._wait(deadline, timeout, f"not all of channel {self.channel!r} was logged")
                if self.stream.deleted:
                    self.check_open()

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """See `Publisher`."""
        deadline = deadline_of(timeout)
        encoded = self.encode(event)
        if self._unlogged_bytes + encoded[2] <= self.stream.window_bytes:
            return self._add(encoded, deadline, timeout) is not None
        return bool(await in_thread(lambda: self._add(encoded, deadline, timeout) is not None))

    # ---- membership ----

    def apply(self, membership: Membership) -> None:
        """See `Publisher`: who consumes is the log's business."""
        version = (membership.epoch, membership.version)
        if version <= self.stream.version:
            return
        self.stream.version = version
        if membership.deleted or membership.incarnation != self.incarnation:
            self.stream.deleted = True
            self.cut_off()
            self.endpoint.room.notify_all()
            return
        here = [each for each in membership.logs if each.node == self.endpoint.node]
        if self._address is not None and here and self._address not in here:
            self._look_for_log()

    def counters(self) -> dict[str, Any]:
        """See `Publisher`."""
        return {
            "events_published": self.published_events,
            "events_dropped": self.stream.dropped,
            "packs_sent": self._packs,
            "bytes_published": self.stream.published_bytes - OVERHEAD_BYTES * self.published_events,
            "blocked_milliseconds": self.room.blocked_milliseconds,
        }


def _ignore(call: Call) -> None:
    """Of a slice: that it came shows in the answer to what it belongs to."""
