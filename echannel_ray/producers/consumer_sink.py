"""The consumers of a channel as a producer's sink: the short way for most events, the long one for all else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray.core.gather import MAX_MIXED_BYTES
from echannel_ray.core.kinds import BUFFERS, IN_SEGMENT, PICKLED, PLAIN, RECORD, wire_kind
from echannel_ray.core.messages import Membership
from echannel_ray.core.segments import MIN_COPIED_BYTES, MIN_SEGMENT_BYTES, Placed
from echannel_ray.core.windows import Blocker, holds_up, refuses
from echannel_ray.derived.branch import Chunk
from echannel_ray.derived.branches import Branches
from echannel_ray.derived.grants import Grants, Info
from echannel_ray.endpoint.crew import EARLY_SECONDS, MANY_ARMED, TICK_SECONDS
from echannel_ray.endpoint.record_codec import BLOCK_BYTES, SEGMENT_BLOCK_BYTES
from echannel_ray.formats.buffers import kept
from echannel_ray.formats.events import (
    MAX_INT,
    MIN_INT,
    OVERHEAD_BYTES,
    SIMPLE_WRITERS,
    encode,
    size_of,
)
from echannel_ray.modulation.admission import Admission
from echannel_ray.producers.bulk import publish_block
from echannel_ray.producers.drain import Drain
from echannel_ray.producers.handover import Handover
from echannel_ray.producers.outlet import SMALL_BYTES, Encoded, Outlet
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.producers.sink import Sink

if TYPE_CHECKING:
    from echannel_ray.derived.inline_host import InlineHost
    from echannel_ray.endpoint.deadlines import GivenTimeout
    from echannel_ray.producers.mixed_list import MixedList
    from echannel_ray.producers.publisher import Publisher

_LEAST_ARMED_BYTES = 1024 + OVERHEAD_BYTES
_FREQUENT_TICKS = 3
# Where nobody but modulators gets what is published, no pack bounds what they get at once.
_MOST_TO_MODULATORS = 1023
_MANY_IN_A_TICK = 8
# Of many producers that are armed, those with less than that in a tick share a list.
_MANY_BY_ITSELF = 64
_MAX_MIXED_SIZE = MAX_MIXED_BYTES + OVERHEAD_BYTES
_MOST_UTF_8_BYTES = 4  # of a character
# What has a large array in it is encoded twice where it was taken for simple: so are one in so many, at most.
_UNSIMPLE = 64


class ConsumerSink(Sink):
    """To consumers, those of this process too, and to modulators. Who publishes often is *armed* (see `_arm`): then
    `publish` only appends to a list, which is absorbed at the next tick.
    """

    # What each event touches is together in memory: with thousands of producers in turn that is what an event costs.
    __slots__ = ("_absorbed", "_armed_bytes", "_armed_kind", "_direct", "_encoded", "_encoded_mixed", "_encoded_room",
                 "_former", "_gathered_at_tick", "_gathered_in_tick", "_handover", "_has_wide", "_lane", "_lists",
                 "_mixed", "_mixed_kind", "_plain", "_plain_mixed", "_plain_room", "_sizes", "_takes_turns",
                 "_unsimple", "_writers", "admission", "branches", "grants", "has_branches", "hosts_modulators",
                 "outlet")  # fmt: skip

    def __init__(
        self,
        publisher: Publisher,
        admission: Admission | None = None,
        services: Mapping[Any, Any] | None = None,
        delegate: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(publisher)
        self.hosts_modulators = True  # which are made ready before a membership takes effect
        self.admission: Admission = admission or Admission()
        if self.records is None:
            self.encode = partial(encode, keep=self._placed_or_kept)
        self.outlet: Outlet = Outlet(self.endpoint, self.stream, publisher.name, self.encode)
        self.branches: Branches = Branches(self)
        self.has_branches = False  # what `branches` would say, without the call: each event asks
        info = Info(publisher.name, publisher.channel, self.endpoint.namespace, self.endpoint.node)
        self.grants = Grants(services, delegate, info)
        # Of some classes of events: their kind, what writes them and what each is accounted for; 0: that varies.
        self._writers = SIMPLE_WRITERS if self.records is None else self.records.writers
        self._sizes = {} if self.records is None else self.records.sizes  # of the events of some kinds
        self._gathered_at_tick = -_FREQUENT_TICKS
        self._gathered_in_tick = 0
        self._absorbed = 0  # since the last tick
        self._plain: list[Any] = []  # bytes and scalars, published the short way, and not yet absorbed
        # Those of other kinds, a list for each: who appends late, when we are armed for another, must not mix them.
        self._lists: dict[int, list[bytes]] = {PICKLED: []}
        self._encoded = (PICKLED, self._lists[PICKLED])  # that of the kind that we were armed for last
        self._plain_room = self._encoded_room = 0  # how many events may be in these two lists; at most one is not 0
        self._armed_kind = PLAIN  # for which we were armed last
        self._armed_bytes = 0  # how large each of them may be
        self._has_wide = False  # whether one of the texts was not ASCII
        self._unsimple = 0  # how many more containers are to be encoded in the way that suits all
        self._handover = Handover(self.outlet)  # to consumers of this process
        self._direct: InlineHost | None = None  # which gets objects at once, without a lock of ours
        # The list that all in a mixture share: that of its own, by kinds too, and that of the one that it left last.
        self._mixed: MixedList | None = None
        # With lane and kind, all read at once: another thread may have the stream join another mixture meanwhile.
        self._plain_mixed: tuple[MixedList, bytes, int] | None = None
        self._encoded_mixed: tuple[MixedList, bytes, int] | None = None
        self._former: MixedList | None = None
        self._mixed_kind = PLAIN
        self._lane = b""
        self._takes_turns = False  # whether it is one of many that have little each

    @override
    def modulated(self) -> Branches:
        return self.branches

    # ---- publishing ----

    @override
    def publish(self, event: Any, timeout: GivenTimeout = None) -> bool:
        # An append is atomic: where we are armed, it needs no lock.
        event_class = type(event)
        if self._plain_room:
            if event_class is bytes:
                fits = len(event) <= self._armed_bytes
            elif event_class is str:
                fits = len(event) <= self._armed_bytes if event.isascii() else self._fits_wide(event)
            else:
                fits = (
                    event is None
                    or event_class is float
                    or event_class is bool
                    or (event_class is int and MIN_INT <= event <= MAX_INT)
                )
            pending = self._plain
            if fits and len(pending) < self._plain_room:
                pending.append(event)
                return True
        elif (place := self._plain_mixed) is not None:
            mixed, lane, _ = place
            pending = mixed.pending
            if event_class is bytes and len(pending) < mixed.room and len(event) <= MAX_MIXED_BYTES:
                pending.extend((lane, event))
                return True
        elif self._encoded_room or self._encoded_mixed is not None:
            # All that is untyped becomes pickles: to be armed anew whenever kinds take turns would cost more.
            found = self._writers.get(event_class)
            if found is not None and not self._unsimple:
                kind, write, size = found
                written = write(event)
                if written is not None:
                    size = size or len(written) + OVERHEAD_BYTES
                    place = self._encoded_mixed
                    if place is None:
                        armed_kind, pending = self._encoded
                        if kind == armed_kind and len(pending) < self._encoded_room and size <= self._armed_bytes:
                            pending.append(written)
                            return True
                    else:
                        mixed, lane, armed_kind = place
                        pending = mixed.pending
                        if kind == armed_kind and len(pending) < mixed.room and size <= _MAX_MIXED_SIZE:
                            pending.extend((lane, written))
                            return True
                    return self._gather(event, timeout, kind, written, size)
                self._unsimple = _UNSIMPLE
            elif found is not None:
                self._unsimple -= 1
        handover = self._handover
        if len(handover.events) < handover.room:
            handover.events.append(event)
            if not handover.room:
                with self.lock:
                    handover.absorb()
            return True
        # Bytes need no encoding: modulators of this process are given many at a time.
        if self.stream.limit_bytes < 0 and event_class is not bytes and not self._is_armed:
            direct = self._direct
            if direct is not None and (self.records is None or self.records.takes(event)) and direct.publish(event):
                return True
            return self.publisher.publish_encoded(event, timeout)  # type: ignore[no-any-return]
        kind, payload, size = self.encode(event)
        return self._append(kind, payload, size) or self._gather(event, timeout, kind, payload, size)

    def _gather(self, event: Any, timeout: GivenTimeout, kind: int, payload: Any, size: int) -> bool:
        """Add the event to the pack that is being gathered; the usual way of a producer that is not armed."""
        stream = self.stream
        endpoint = self.endpoint
        has_left = taken = False
        if size >= MIN_COPIED_BYTES:
            kind, payload, size = self.placed((kind, payload, size))
        with self.lock:
            mixed = self._mixed
            if mixed is not None and not self._may_mix(kind, payload, size):
                self.disarm()
                mixed = None
            if mixed is None and (self._plain or any(self._lists.values()) or self._has_late()):
                self.absorb()
            published = stream.own_mark + size
            if self.has_branches and size <= SMALL_BYTES:
                taken = self._append_again(kind, payload, size)
            if mixed is not None:
                has_left = mixed.take(self._lane, payload)
                gather = mixed.mixture.gather
            elif taken or published > stream.limit_bytes or self.has_branches:
                gather = None
            elif size > SMALL_BYTES:
                gather = None
                if isinstance(payload, Placed):
                    kind, payload = self.outlet.lent(kind, payload)
                    if kind & IN_SEGMENT:
                        gather = stream.append_lent(kind, payload, size)
                        has_left = endpoint.outgoing.see_off(stream, stream.route)  # type: ignore[arg-type]
            else:
                gather = stream.append(kind, payload, size)
                has_left = endpoint.outgoing.see_off(stream, stream.route)  # type: ignore[arg-type]
                self._arm(kind, payload, size, has_left)
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
        if self.is_halted or not self.branches.may_arm(kind):
            return False
        self._arm(kind, payload, size)
        return self._append(kind, payload, size)

    def _append(self, kind: int, payload: Any, size: int) -> bool:
        """Append what is encoded already, if there is room for it where we are armed. Whether it was."""
        if kind == PLAIN:
            pending, room, armed_bytes = self._plain, self._plain_room, self._armed_bytes + OVERHEAD_BYTES
            self._has_wide = self._has_wide or (type(payload) is str and not payload.isascii())
        else:
            place = self._encoded_mixed
            if place is not None:
                mixed, lane, armed_kind = place
                pending = mixed.pending
                if kind != armed_kind or len(pending) >= mixed.room or size > _MAX_MIXED_SIZE:
                    return False
                pending.extend((lane, payload))
                return True
            armed_kind, pending = self._encoded
            room, armed_bytes = self._encoded_room if kind == armed_kind else 0, self._armed_bytes
        if len(pending) >= room or size > armed_bytes:
            return False
        pending.append(payload)
        return True

    def _fits_wide(self, text: str) -> bool:
        """Whether a text that is not ASCII may be appended: nobody has counted yet what UTF-8 makes of it."""
        self._has_wide = True  # before it is appended, so that who takes it sees this
        return len(text) * _MOST_UTF_8_BYTES <= self._armed_bytes

    @property
    def _is_armed(self) -> bool:
        return bool(self._plain_room or self._encoded_room) or self._mixed is not None

    def _arm(self, kind: int, payload: Any, size: int, has_left: bool = False) -> None:
        """Let `publish` append so many events of this kind, and of about this size, without asking: to a full pack, if
        the window has room for that.

        Only for a producer that publishes in every few ticks: to look after thousands that seldom do would cost more.
        """
        crew = self.endpoint.crew
        ticks = crew.ticks - self._gathered_at_tick
        is_frequent = ticks < _FREQUENT_TICKS
        is_next = self.endpoint.is_next_in_turn(self)
        # An event of its own that went between two of a mixture left at once, and so would the next one.
        may_join = self._takes_turns or (is_next and (has_left or not is_frequent))
        if may_join and self._join_mixture(kind, payload, size):
            return
        self._gathered_at_tick = crew.ticks
        self._gathered_in_tick = 1 if ticks else self._gathered_in_tick + 1
        if has_left:
            self._disarm_own()  # the first event of a pack looks at the clock
            return
        # What an armed producer appends waits for a tick.
        if is_frequent and crew.ticking and self.stream.packing.interval_seconds >= TICK_SECONDS:
            # With too large a size, what is left of a window would be used in ever smaller steps.
            armed_bytes = self._sizes.get(kind) or max(_LEAST_ARMED_BYTES, 1 << (size - 1).bit_length())
            # For who goes only to modulators no link's load says whether to gather.
            gather = self.stream.gather
            unasked = self.stream.policy.unasked - (len(gather.events) if gather is not None else 0)
            if self.has_branches and not self.stream.recipients:
                is_busy = self._gathered_in_tick >= _MANY_IN_A_TICK and self.stream.packing.degree != 1
                unasked = _MOST_TO_MODULATORS if is_busy else 0
            room = self._room_for(armed_bytes, unasked)
            self.disarm()
            if room > 0:
                self._armed_kind = kind
                self._armed_bytes = armed_bytes - OVERHEAD_BYTES if kind == PLAIN else armed_bytes
                self._plain_room = room if kind == PLAIN else 0
                if kind == PICKLED or wire_kind(kind) == RECORD:
                    self._encoded = kind, self._lists.setdefault(kind, [])
                    self._encoded_room = room
                self.endpoint.armed[self] = None

    def _may_mix(self, kind: int, payload: Any, size: int) -> bool:
        """Whether this event goes the way of the mixture that the stream is in."""
        assert self._mixed is not None
        is_small = size <= _MAX_MIXED_SIZE and kind == self._mixed_kind and type(payload) is bytes
        return is_small and not self.is_halted and self._mixed.is_wanted

    def _join_mixture(self, kind: int, payload: Any, size: int) -> bool:
        """Let `publish` append to a list that many producers share, if packs gather on the link: for one of many that
        publish now and then. Whether it may.
        """
        stream = self.stream
        if kind == PLAIN and type(payload) is not bytes:
            kind = PICKLED  # all that follows: there everything has a length
        mixes = kind in (PLAIN, PICKLED) or wire_kind(kind) == RECORD
        if not (mixes and stream.policy.unasked and size <= _MAX_MIXED_SIZE and self.endpoint.crew.ticking):
            return False
        if self.has_branches or stream.limit_bytes < 0 or stream.packing.interval_seconds < TICK_SECONDS:
            return False
        mixture = self.endpoint.core.sender.mixture_for(stream, kind)
        if mixture is None:
            return False
        if mixture.owner is None:
            from echannel_ray.producers.mixed_list import MixedList

            mixture.owner = MixedList(self.endpoint, mixture, stream.packing.interval_seconds)
        self._disarm_own()
        lane = mixture.owner.join(self, kind)
        if lane is None:
            return False
        self._lane, self._mixed_kind, self._mixed = lane, kind, mixture.owner
        place = mixture.owner, lane, kind
        self._plain_mixed = place if kind == PLAIN else None
        self._encoded_mixed = None if kind == PLAIN else place
        return True

    def left_mixture(self) -> None:
        """The stream publishes by itself again. A thread may still be about to append to the list."""
        self._former, self._takes_turns = self._mixed, False
        self._mixed = self._plain_mixed = self._encoded_mixed = None

    def _has_late(self) -> bool:
        return self._former is not None and bool(self._former.pending)

    def take_late(self, kind: int, payload: bytes) -> None:
        """An event that was found in the list of a mixture which the stream has left."""
        (self._plain if kind == PLAIN else self._lists.setdefault(kind, [])).append(payload)
        if not self.is_halted:
            self.absorb()

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
        if self.outlet.local:
            return 0  # they get theirs at once
        stream = self.stream
        limit = stream.limit_bytes - stream.published_bytes
        if self.has_branches:
            limit = self.branches.room_bytes()
            if stream.recipients:
                limit = min(limit, stream.limit_bytes - stream.published_bytes)
        return min(most, limit // each_bytes)

    @override
    def is_young(self, now: float) -> bool:
        gather = self.stream.gather
        return gather is not None and bool(gather.began_at) and gather.due_at > now + EARLY_SECONDS

    @override
    def has_little(self, armed: int) -> bool:
        """Whether so little came since the last tick that each event should be looked at, and leave at once; or it is
        one of many that are armed, which are looked after together where each has little.
        """
        absorbed, self._absorbed = self._absorbed, 0
        self._takes_turns = armed >= MANY_ARMED and absorbed < _MANY_BY_ITSELF
        if self._takes_turns:
            return True
        return not self.stream.policy.unasked if self.stream.recipients else absorbed < _MANY_IN_A_TICK

    @override
    def disarm(self) -> bool:
        if self._direct is not None:
            self._direct.direct_room = 0
            self._direct = None
        if self._mixed is not None:
            self._mixed.absorb()
        if self.stream.mixture is not None:
            self.stream.mixture.release(self.stream)
        return self._disarm_own()

    def _disarm_own(self) -> bool:
        was_armed = bool(self._plain_room or self._encoded_room or self._handover.room)
        self._plain_room = self._encoded_room = self._handover.room = 0
        return was_armed

    @override
    def absorb(self) -> bool:
        if self._direct is not None:
            seen = self._direct.seen_directly()
            self.endpoint.core.skip(self.stream, seen)
        for mixed in (self._former, self._mixed):
            if mixed is not None and mixed.pending:
                mixed.absorb()
        if self.is_halted:
            return False  # a thread that found it armed was late: that is published after the cut
        absorbed = self._handover.absorb() if self.outlet.local else 0
        # Several lists, since a thread that was about to append may go on after another has armed us for another kind.
        lists = [each for each in self._lists.items() if each[1]]
        if self._plain:
            lists.append((PLAIN, self._plain))
        if len(lists) > 1:  # what is of a kind that we were not armed for last came first
            lists.sort(key=lambda each: each[0] == self._armed_kind)
        for kind, pending in lists:
            count = len(pending)
            # Another thread may append between these two, behind what is taken.
            taken = pending[:count]
            del pending[:count]
            each_bytes = self._sizes.get(kind)
            try:
                size = each_bytes * count if each_bytes else size_of(taken, self._has_wide)
            except UnicodeEncodeError:  # of a text that has a lone surrogate, which travels as a pickle
                for event in taken:
                    one_kind, payload, size = self.encode(event)
                    self._take_in(one_kind, [payload], size)
            else:
                self._take_in(kind, taken, size)
            absorbed += count
        self._absorbed += absorbed
        return absorbed > 0

    def _take_in(self, kind: int, taken: list[Any], size: int) -> None:
        if self.has_branches:
            self.branches.feed(Chunk(kind, taken, None, size))
        self.outlet.absorb(kind, taken, size)

    @override
    def see_off(self, now: float) -> None:
        """What was absorbed at a tick leaves when its time has come."""
        route = self.stream.route
        if route is not None and route.gather and not self.endpoint.outgoing.see_off(self.stream, route):
            # Some of it has waited for a tick already.
            route.gather.leave_by(now + self.stream.packing.interval_seconds - TICK_SECONDS)

    # ---- the long way ----

    @override
    def segment_destinations(self) -> frozenset[int] | None:
        # Modulators get bytes.
        if self.has_branches or not self.endpoint.exchange.may_share:
            return None
        return self.stream.segment_destinations(self.endpoint.node)

    @override
    def placed(self, encoded: Encoded) -> Encoded:
        kind, payload, size = encoded
        # Consumers of this process read records of bytes.
        if type(payload) is not bytes or (self.records is not None and self.outlet.local):
            return encoded
        placed = self._place([payload])
        return encoded if placed is None else (kind, placed, size)

    def _place(self, pieces: list[Any]) -> Placed | None:
        size = sum(map(len, pieces))
        destinations = self.segment_destinations() if size >= MIN_SEGMENT_BYTES else None
        if destinations is None:
            return None
        return self.endpoint.exchange.store.place(pieces, size, destinations, self.stream.refuse_segment)

    def _placed_or_kept(self, pieces: list[Any]) -> list[Any]:
        placed = self._place(pieces)
        return kept(pieces) if placed is None else placed

    @override
    def placed_block(self, data: Any) -> Any:
        if isinstance(data, Placed):
            return data if self.segment_destinations() is not None else data[0]
        return data if self.outlet.local else self._place([data]) or data

    @property
    @override
    def block_bytes(self) -> int:
        if self.segment_destinations() is None or self.outlet.local:
            return BLOCK_BYTES
        return min(SEGMENT_BLOCK_BYTES, max(BLOCK_BYTES, self.stream.window_bytes // 2))

    @override
    def expect_loans(self) -> None:
        self.encode = self._encoded_event

    def _encoded_event(self, event: Any) -> Encoded:
        """What the event is as bytes; those of a loaned array are where they have to be."""
        loans = self.publisher.loans
        if loans is not None and not self.has_branches:
            if self.records is None:
                placed = loans.placed_event(event)
                if placed is not None:
                    return BUFFERS, placed, placed.size_bytes + OVERHEAD_BYTES
            else:
                placed = loans.placed(event)
                kind = self.records.record_kind(event) if placed is not None and not self.outlet.local else None
                if placed is not None and kind is not None:
                    return kind, placed, placed.size_bytes + OVERHEAD_BYTES
        return encode(event, self._placed_or_kept) if self.records is None else self.records.encode(event)

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
                self._arm(*encoded)
        elif self.records is None and self._handover.arm():
            self.endpoint.armed[self] = None
            if not self.endpoint.crew.ticking:
                self.endpoint.crew.wake_ticker()
        return complete

    @override
    def deliver(self, event: Any, timeout: GivenTimeout = None) -> PendingDelivery:
        stream = self.stream
        if stream.limit_bytes < 0:
            return self.publisher.deliver_encoded(event, timeout)
        encoded = kind, payload, size = self.encode(event)
        endpoint = self.endpoint
        with self.lock:
            self.absorb()
            takes_long_way = stream.own_mark + size > stream.limit_bytes or size > SMALL_BYTES
            if not takes_long_way and not self.has_branches:
                delivery = endpoint.new_delivery()
                began = time.monotonic()
                endpoint.core.deliver_small(delivery.awaited, stream, kind, payload, size, began)
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
    def drain(self, timeout: GivenTimeout) -> None:
        Drain(self, timeout).run()

    @override
    def apply(self, membership: Membership) -> None:
        if membership.recency > self.stream.version:
            self.disarm()
            self.absorb()
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
        if self._former is not None:
            self._former.forget(self._lane)
        self.endpoint.forget_sink(self)

    @override
    def close(self) -> None:
        self.branches.close()
