"""The log of its node as a producer's sink, on a retained channel: readers get from there what it publishes.

Rules:

* Events are gathered while something is under way to the log, and leave together when that is answered, or when they
  are enough: so the load itself decides how many go together, and one by itself leaves at once. With a packing degree
  that the channel gives, they leave when they are so many, or when its interval has passed.
* While they are gathered, a producer is *armed*: what it publishes is appended to a list, which is absorbed when they
  leave.
* What is not known to be logged is kept, and sent again to the next log host; the log leaves out what it has.
* A log host that can't log, since its disk is full say, is asked again now and then; meanwhile the window fills up, and
  the overflow policy decides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import Any, Final

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.core.kinds import BUFFERS, PICKLED, PLAIN, RECORD, wire_kind
from echannel_ray.core.messages import LogAddress, Membership, OpenLog
from echannel_ray.core.packing import ADAPTIVE
from echannel_ray.core.windows import DROP_LONGEST_WAITING, LOG, REFUSE, WAIT, Blocker, holds_up, on_full
from echannel_ray.endpoint.calls import Call, Nobody
from echannel_ray.endpoint.crew import EARLY_SECONDS, Job
from echannel_ray.endpoint.deadlines import deadline_of
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.producers.outlet import Encoded, joined
from echannel_ray.producers.pending_deliveries import Failure, PendingDelivery
from echannel_ray.producers.publisher import Publisher
from echannel_ray.producers.sink import Sink
from echannel_ray.retained import log_calls
from echannel_ray.retained.backlog import FULL_BYTES, FULL_EVENTS, Backlog, Sent

logger = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS: Final = 1.0
_LEAST_ARMED_BYTES: Final = 256
_NEVER: Final = float("inf")


class LogSink(Sink):
    """Into a log. Modulators work where that is, not here."""

    def __init__(self, publisher: Publisher) -> None:
        super().__init__(publisher)
        self.channel = publisher.channel
        self._open = OpenLog(publisher.channel, publisher.incarnation)  # what is asked, to learn where the log is
        self._address: LogAddress | None = None
        self._is_looking = False  # for the log, which has moved
        self._backlog = Backlog(publisher.name)
        self._awaited: set[PendingDelivery] = set()  # that are logged, and not handled by all
        self._failure = ""
        self._published_events = 0
        packing = self.stream.packing
        # None: what is under way decides.
        self._policy = None if packing.degree == ADAPTIVE else self.stream.policy
        self._due_at = _NEVER  # when what is gathered leaves by the clock
        self._began_at = 0.0
        self._sizes = {} if self.records is None else self.records.sizes  # of the events of some kinds
        # Published the short way, and not yet absorbed: a list for each kind, since who is late must not mix them.
        self._plain: list[bytes] = []
        self._lists: dict[int, list[bytes]] = {PLAIN: self._plain, PICKLED: []}
        self._encoded = (PICKLED, self._lists[PICKLED])  # that of the kind that we were armed for last
        self._plain_room = self._encoded_room = 0  # how many events may be in these two lists; at most one is not 0
        self._armed_bytes = 0  # how large each of them may be, with what is counted beside it

    def begin(self, membership: Membership) -> None:
        """Its producer was registered: find the log of this node."""
        with self.lock:
            self.apply(membership)
        answer = self.endpoint.requests.ask(self._open)
        assert isinstance(answer, LogAddress)
        with self.lock:
            self._address = answer

    # ---- publishing ----

    @override
    def publish(self, event: Any, timeout: float | None = None) -> bool:
        # An append is atomic: where we are armed, it needs no lock.
        if type(event) is bytes:
            pending = self._plain
            if len(pending) < self._plain_room and len(event) + OVERHEAD_BYTES <= self._armed_bytes:
                pending.append(event)
                return True
        encoded = kind, payload, size = self.encode(event)
        armed_kind, pending = self._encoded
        if kind == armed_kind and len(pending) < self._encoded_room and size <= self._armed_bytes:
            pending.append(payload)
            return True
        outcome, _ = self.attempt(event, encoded, False)
        return bool(outcome if outcome is not None else self.publisher.publish_encoded(event, timeout, encoded))

    @override
    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        encoded = self.encode(event)
        delivery, _ = self.attempt(event, encoded, True)
        return delivery or self.publisher.deliver_encoded(event, timeout, encoded)

    @override
    def attempt(self, event: Any, encoded: Encoded | None, deliver: bool) -> tuple[Any, int]:
        assert encoded is not None
        kind, payload, size = encoded
        with self.lock:
            self._take_pending()
            outcome: Any = self._admit(size, 1)
            if outcome:
                self._backlog.add(kind, payload if kind != BUFFERS else joined(payload), size)
                self._published_events += 1
                self.stream.published_bytes += size
                if deliver:
                    outcome = self._delivered()
                else:
                    self._leave_if_due()
                    self._arm(kind, payload, size)
        if deliver and outcome is False:
            raise errors.Overloaded(
                f"the event was dropped, as the policy says: {self._log_name} has no room",
                channel=self.channel, consumer="the log",
            )  # fmt: skip
        self._dispatch()
        return outcome, size

    @override
    def needs_bytes(self, event: Any) -> bool:
        return True

    @override
    def blockers(self, size: int) -> list[Blocker]:
        return [Blocker(self._log_name)] if holds_up(self.stream.overflow) and not self._fits(size) else []

    def _delivered(self) -> PendingDelivery:
        """A delivery of the event that has just been added."""
        self._leave()
        delivery = self.endpoint.new_delivery()
        here = [each for each in self.endpoint.inboxes.on(self.channel) if each.supply.reads_logs and not each.group]
        delivery.expect(1, here)
        self._backlog.sent[-1].delivery = delivery
        return delivery

    @property
    def _log_name(self) -> str:
        """The log, and what is the matter with it, as errors say it."""
        why = f" ({self._failure})" if self._failure else ""
        return f"the log of channel {self.channel!r} at this node{why}"

    def _fits(self, size: int) -> bool:
        """Whether the window has room for so much. What is larger than all of it goes by itself."""
        waiting = self._backlog.size_bytes
        return not waiting or waiting + size <= self.stream.window_bytes

    def _admit(self, size: int, count: int) -> bool | None:
        """Whether so many events are taken, or (None) have to wait; under the lock."""
        self.publisher.check_accepting()
        if self._fits(size):
            return True
        follows = on_full(self.stream, LOG)
        if follows == WAIT:
            return None
        if follows == REFUSE:
            raise self.publisher.overloaded(Blocker(self._log_name))
        if follows == DROP_LONGEST_WAITING:
            excess = self._backlog.size_bytes + size - self.stream.window_bytes
            if excess <= self._backlog.droppable_bytes:  # else it would be dropped too, and others in vain
                self.stream.drop_by_policy(self._backlog.drop_oldest(excess))
                self.endpoint.room.notify_all()
                return True
        self._backlog.skip(count)
        self.stream.drop_by_policy(count)
        return False

    @override
    def publish_block(self, kind: int, data: Any, count: int) -> bool:
        size = len(data) + OVERHEAD_BYTES
        while True:
            with self.lock:
                self._take_pending()
                outcome = self._admit(size, count)
                if outcome:
                    self._backlog.add_block(kind, bytes(data), count, size)
                    self._published_events += count
                    self.stream.published_bytes += len(data) + OVERHEAD_BYTES * count
                    self._leave_if_due()
            self._dispatch()
            if outcome is not None:
                return outcome
            self.publisher.room.wait(size, None, None)

    @override
    def drain(self, timeout: float | None) -> None:
        deadline = deadline_of(timeout)
        with self.lock:
            self.publisher.check_open()
            self._take_pending()
            self._leave()
            target = self._backlog.last_sent
        self._dispatch()
        self.endpoint.crew.step_aside()
        with self.lock:
            # What is dropped meanwhile is never logged.
            while self._backlog.logged < min(target, self._backlog.last_sent):
                left = _ASK_AGAIN_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not all that was published was logged within {timeout} s: {self._log_name}")
                self.endpoint.room.wait(min(left, _ASK_AGAIN_SECONDS))
                self.publisher.check_open()

    # ---- the short way; under the lock ----

    def _arm(self, kind: int, payload: Any, size: int) -> None:
        """Let `publish` append events of this kind, and of about this size, without asking, until those that are
        gathered are enough, or the window is full. Only while something will have them leave.
        """
        self.disarm()
        if type(payload) is bytes and (kind in (PLAIN, PICKLED) or wire_kind(kind) == RECORD):
            # With too large a size, what is left of a window would be used in ever smaller steps.
            self._armed_bytes = self._sizes.get(kind) or max(_LEAST_ARMED_BYTES, 1 << (size - 1).bit_length())
            room = self._room()
            self._plain_room = room if kind == PLAIN else 0
            if kind != PLAIN:
                self._encoded = kind, self._lists.setdefault(kind, [])
                self._encoded_room = room

    def _arm_again(self) -> None:
        """The lists are empty again."""
        if self._plain_room:
            self._plain_room = self._room()
        elif self._encoded_room:
            self._encoded_room = self._room()
        if not (self._plain_room or self._encoded_room):
            self.endpoint.absorb_later(self)

    def _room(self) -> int:
        backlog = self._backlog
        if self._policy is None:
            most = FULL_EVENTS if backlog.sent else 0
        else:
            most = self._policy.degree if self._due_at < _NEVER else 0
        window_bytes = self.stream.window_bytes - backlog.size_bytes
        room_bytes = min(FULL_BYTES - backlog.gathered_bytes, window_bytes)
        return max(0, min(most - 1 - backlog.gathered, room_bytes // self._armed_bytes))

    @override
    def disarm(self) -> bool:
        was_armed = bool(self._plain_room or self._encoded_room)
        self._plain_room = self._encoded_room = 0
        if was_armed:
            self.endpoint.absorb_later(self)
        return was_armed

    def _take_pending(self) -> None:
        """Gather what was published the short way."""
        # Those of a kind that we are not armed for came first.
        armed = PLAIN if self._plain_room else self._encoded[0]
        for kind, pending in sorted(self._lists.items(), key=lambda each: each[0] == armed):
            count = len(pending)
            if count:
                # Another thread may append between these two, behind what is taken.
                taken = pending[:count]
                del pending[:count]
                each_bytes = self._sizes.get(kind)
                size = each_bytes * count if each_bytes else sum(map(len, taken)) + OVERHEAD_BYTES * count
                self._backlog.add_small(kind, taken, size)
                self._published_events += count
                self.stream.published_bytes += size

    @override
    def absorb(self) -> bool:
        self._take_pending()
        if self._backlog.gathered:
            self._leave_if_due()
        if self._backlog.has_to_send:
            self.endpoint.fed[self] = None  # which sends it without the lock
        if self._due_at < _NEVER:
            self.endpoint.crew.depart_at(self._due_at)
        return self._due_at < _NEVER

    @override
    def is_young(self, now: float) -> bool:
        return now + EARLY_SECONDS < self._due_at < _NEVER

    @override
    def advance(self) -> None:
        self._dispatch()

    # ---- when it leaves; under the lock ----

    def _leave_if_due(self) -> None:
        policy = self._policy
        if policy is None:
            if self._backlog.is_due:
                self._leave()
            return
        now = time.monotonic()
        if self._due_at == _NEVER:
            self._began_at = now
            self._due_at = policy.due_at(now)
            self.endpoint.armed[self] = None
            self.endpoint.crew.depart_at(self._due_at)
            if not self.endpoint.crew.ticking:
                self.endpoint.crew.wake_ticker()
        is_enough = self._backlog.gathered >= policy.degree or self._backlog.is_full
        if is_enough or self._due_at <= now + EARLY_SECONDS:
            self._leave()

    def _leave(self) -> None:
        """Have all that was gathered sent next."""
        events, size_bytes = self._backlog.gathered, self._backlog.gathered_bytes
        self._backlog.leave()
        self._due_at = _NEVER
        if self._policy is not None and events:
            now = time.monotonic()
            self._policy.left(now, events, size_bytes, 0.0, True, now - self._began_at)

    # ---- the calls ----

    def _dispatch(self) -> None:
        """Send what waits, as far as it may be under way; without the lock."""
        begun = False
        while True:
            with self.lock:
                address = self._address
                sent = self._backlog.next_to_send() if address is not None and not self.stream.deleted else None
            if sent is None or address is None:
                break
            self._call(address, sent)
            begun = True
        if begun and not self.endpoint.crew.leads:
            self.endpoint.outgoing.write()

    def _call(self, address: LogAddress, sent: Sent) -> None:
        begin = self.endpoint.calls.begin
        where = (address.node, address.endpoint)
        log = (self.channel, address.log, self.publisher.name)
        with contextlib.suppress(errors.EChannelError):  # this process leaves: whoever waits is told by its endpoint
            for number, data in enumerate(sent.slices):
                # That it came shows in the answer to what it belongs to.
                begin(*where, log_calls.Slice(*log, sent.last, number, data), lambda call: None)
            message = log_calls.Append(
                *log, sent.after, sent.last, sent.entries, sent.delivery is not None, len(sent.slices)
            )
            begin(*where, message, partial(self._answered, address, sent.last))

    def _answered(self, address: LogAddress, last: int, call: Call) -> None:
        try:
            answer: Any = call.result()
        except Nobody:
            answer = None
        except errors.EChannelError as error:
            answer = log_calls.Unlogged(str(error))
        delivered: list[Sent] = []
        with self.lock:
            if self._address not in (address, None) or last <= self._backlog.logged:
                return  # it was sent again, to another log host, or has come with another
            if isinstance(answer, log_calls.Appended):
                delivered = self._backlog.logged_up_to(answer.last)
                self._failure = ""
                self._take_pending()
                if self._backlog.gathered:
                    self._leave_if_due()
                self._arm_again()
                self.endpoint.room.notify_all()
            elif isinstance(answer, log_calls.Unlogged):
                self._failure = answer.reason
                self._look_for_log(_ASK_AGAIN_SECONDS)
            else:
                self._failure = "its keeper is away"
                self._look_for_log()
        for each in delivered:
            self._await(address, each)
        self._dispatch()

    def _look_for_log(self, pause_seconds: float = 0.0) -> None:
        """Ask where it is, and send all again that is not known to be logged; under the lock."""
        self._address = None
        if self._is_looking:
            return
        self._is_looking = True
        endpoint = self.endpoint
        if not pause_seconds:
            endpoint.crew.submit(Job(self._find_log))
            return

        def find() -> None:
            endpoint.timers.remove(timer)
            self._find_log()

        timer = endpoint.timers.add(pause_seconds, find)

    def _find_log(self) -> None:
        try:
            address = self.endpoint.requests.ask(self._open)
        except (errors.EChannelError, TimeoutError) as error:
            with self.lock:
                self._is_looking = False
                self._failure = str(error)
                if not (self.stream.deleted or self.stream.closed or self.endpoint.closed or self.endpoint.broken):
                    logger.warning("%s can't be had, and is asked for again", self._log_name)
                    self._look_for_log(_ASK_AGAIN_SECONDS)
            return
        with self.lock:
            self._is_looking = False
            self._address = address
            self._take_pending()
            self._backlog.send_again()
        self._dispatch()

    # ---- deliveries ----

    def _await(self, address: LogAddress, sent: Sent) -> None:
        message = log_calls.Await(self.channel, address.log, self.publisher.name, sent.last)
        delivery = sent.delivery
        assert delivery is not None
        self._awaited.add(delivery)

        def answered(call: Call) -> None:
            self._awaited.discard(delivery)
            try:
                answer = call.result()
            except (Nobody, errors.EChannelError):
                answer = None
            if isinstance(answer, log_calls.DeliveryOutcomes):
                failures = [Failure(*each) for each in answer.failures]
                delivery.answered(answer.handled, failures)
            else:
                self.endpoint.crew.submit(Job(self._give_up, delivery))

        try:
            self.endpoint.calls.begin(address.node, address.endpoint, message, answered)
        except errors.EChannelError as error:
            delivery.fail(error)

    def _give_up(self, delivery: PendingDelivery) -> None:
        """Who would have told how an event was handled is gone: with its process, or with the channel."""
        try:
            self.endpoint.requests.ask(self._open)
        except errors.EChannelError as error:
            delivery.fail(error)
            return
        reason = "the event is logged, but the log's keeper died before its readers had answered"
        delivery.answered(0, [Failure("the log", reason)])

    def _fail_deliveries(self) -> None:
        """The channel was deleted."""
        error = errors.ChannelDeleted(
            f"channel {self.channel!r} was deleted before all had handled the event", channel=self.channel
        )
        with self.lock:
            waiting = {*self._awaited, *(each.delivery for each in self._backlog.sent if each.delivery is not None)}
        for delivery in waiting:
            delivery.fail(error)

    # ---- membership ----

    @override
    def apply(self, membership: Membership) -> None:
        if membership.recency <= self.stream.version:
            return
        self.stream.version = membership.recency
        if membership.deleted or membership.incarnation != self.publisher.incarnation:
            self._take_pending()
            self.stream.deleted = True
            self.publisher.cut_off()
            self.endpoint.room.notify_all()
            self.endpoint.crew.submit(Job(self._fail_deliveries))
            return
        here = [each for each in membership.logs if each.node == self.endpoint.node]
        if self._address is not None and here and self._address not in here:
            self._look_for_log()

    @override
    def leave(self) -> None:
        self.endpoint.forget_sink(self)
        self.endpoint.fed.pop(self, None)

    @override
    def counters(self) -> dict[str, Any]:
        self._take_pending()
        return {
            "events_published": self._published_events,
            "events_dropped": self.stream.dropped,
            "dropped": dict(self.stream.drops),
            "packs_sent": self._backlog.packs,
            "bytes_published": self.stream.published_bytes - OVERHEAD_BYTES * self._published_events,
        }
