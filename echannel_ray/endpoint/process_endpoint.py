"""One per process and namespace: everything that this process sends and receives goes through it.

It carries out what the core decides: reads and writes the link, keeps the time, hands events to inboxes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.consumers.mixed_driver import MixedDriver
from echannel_ray.core import frames
from echannel_ray.core.counters import add_up
from echannel_ray.core.credit import Reception
from echannel_ray.core.deliveries import Answered
from echannel_ray.core.endpoint import (
    LOOK_SECONDS,
    NEVER,
    Acknowledged,
    Credited,
    EndpointCore,
    EndpointGone,
    LargeEventLeft,
    PathRestored,
)
from echannel_ray.core.messages import (
    MAX_SHIPPED_BYTES,
    Definition,
    Membership,
    Registrations,
    Release,
    Unsubscribe,
)
from echannel_ray.core.streams import Recipient
from echannel_ray.derived.installer import Installer
from echannel_ray.derived.watchdog import Watchdog
from echannel_ray.endpoint.bell import Bell
from echannel_ray.endpoint.by_channel import ByChannel
from echannel_ray.endpoint.calls import Calls
from echannel_ray.endpoint.crew import EARLY_SECONDS, MANY_ARMED, Crew, CrewLink, Job
from echannel_ray.endpoint.direct_links import DirectLinks
from echannel_ray.endpoint.held_derivations import HeldDerivations
from echannel_ray.endpoint.link_reader import LinkReader
from echannel_ray.endpoint.link_writer import LinkWriter
from echannel_ray.endpoint.metrics_reporter import MetricsReporter
from echannel_ray.endpoint.requests import Requests
from echannel_ray.endpoint.segment_exchange import SegmentExchange
from echannel_ray.endpoint.timers import Timers
from echannel_ray.formats.packs import encode_pack
from echannel_ray.formats.sealed_events import ORDINARY, Decoding
from echannel_ray.ids import new_endpoint_id
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.sandbox.warden import Warden
from echannel_ray.shared.shared_copies import Sharing
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection, PlainConnection

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.derived.branch import Branch
    from echannel_ray.producers.consumer_sink import ConsumerSink
    from echannel_ray.producers.mixed_list import MixedList
    from echannel_ray.producers.outlet import Outlet
    from echannel_ray.producers.publisher import Publisher
    from echannel_ray.producers.sink import Sink

logger = logging.getLogger(__name__)

# A thread that found its producer armed may append after the tick that disarmed it.
_ABSORB_LATE_SECONDS = 0.25
_CHANNELS_PER_REGISTRATION = 256
_PUBLISHERS_AT_ONCE = 64


class ProcessEndpoint(CrewLink):
    """The data plane of one process in one namespace; large, since it has all that the parts below share."""

    def __init__(
        self, namespace: str, node: int, connect: Callable[[ProcessEndpoint], Connection], decoding: Decoding = ORDINARY
    ) -> None:
        """`connect` gives a greeted link to the concentrator; it may take its time, and is called after each loss."""
        self.namespace = namespace
        self.decoding = decoding
        self.node = node
        self.id = new_endpoint_id()
        self._connect = connect
        self.lock = threading.Lock()
        self.room = Bell(self.lock)  # publishers and drains wait here for credit and acknowledgements
        self.write_lock = threading.Lock()
        self.core = EndpointCore(node, self.id, encode_pack, clock_offset_seconds=time.time() - time.monotonic())
        self.direct = DirectLinks(self)
        self.exchange = SegmentExchange(self)
        self.outgoing = LinkWriter(self)
        self.incoming = LinkReader(self)
        self.requests = Requests(self)
        self.calls = Calls(self)
        self.sharing = Sharing(self)
        self.crew = Crew(f"echannel-{namespace}", self)
        self.mixed = MixedDriver(self)
        self.connection: Connection | None = None
        self.closed = False
        self.broken: errors.EChannelError | None = None
        self.dismissed: errors.EChannelError | None = None  # why the link that ends now must not be replaced
        self.reconnections = 0
        self._relinking: threading.Thread | None = None  # while there is no link to the concentrator
        self.heard_at = time.monotonic()
        self.publishers: ByChannel[Publisher] = ByChannel()
        self.inboxes: ByChannel[Inbox] = ByChannel()
        self.definitions: dict[str, Definition] = {}
        self.memberships: dict[str, Membership] = {}
        self.derivations = HeldDerivations(self)
        self.deliveries: dict[int, PendingDelivery] = {}
        self.peculiar_seen = False  # events that no handler gets: unreadable ones, and notices
        self.on_node_drains: Callable[[float], Any] | None = None  # how its owner leaves a node within so many seconds
        self.blocked_publishers = 0  # that wait for credit
        self.draining = 0  # that wait for acknowledgements, or for credit of groups
        self.fed: dict[Branch | Sink, None] = {}  # whose modulators have something to do, or that have to send
        self.held_up: dict[int, Outlet] = {}  # that wait for a large event to leave, by their streams
        self.queueing: dict[int, Branch] = {}  # whose modulators keep queues of their own, by their streams
        self.timers = Timers(self.crew)
        self.watchdog = Watchdog()
        self.metrics_reporter = MetricsReporter(self)
        self.installer = Installer(self)
        self._warden: Warden | None = None
        self.released_handles: deque[Release] = deque()
        self._abandoned: deque[Inbox] = deque()
        self.is_absorbing = False
        # That have been armed until a look or two ago; and what is left of a round of all producers.
        self._disarmed_now: dict[Sink | MixedList, None] = {}
        self._disarmed_before: dict[Sink | MixedList, None] = {}
        self._to_absorb: Iterator[int] = iter(())
        self._published_last: ConsumerSink | None = None  # of those that are not armed
        self._turns = 0  # how many did so before it, each other than the one before
        self.armed: dict[Sink | MixedList, None] = {}  # those whose events may wait to be absorbed
        self._deleted: list[Inbox] = []  # of channels that were deleted: closed on the next tick, outside the lock
        self._next_subscription = 1
        self._due_late = 0.0
        self._due_calls = 0.0

    # ---- lifecycle ----

    def start(self) -> None:
        """Link up to the concentrator and begin."""
        self._link_up()
        self.crew.start()

    def close(self) -> None:
        """Leave: the link ends, threads end, whoever waits is told."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.outgoing.end_measuring()
            self._abandon_all("this process has left")
        self.calls.fail(errors.Closed("this process has left the namespace", what="session"))
        if self.connection is not None:
            self.metrics_reporter.report()
            self.outgoing.put(frames.frame(frames.GOODBYE))
            self.outgoing.write()
        self._end_modulators()
        self.crew.close()
        self.direct.close()
        self.exchange.close()
        connection = self.connection  # another thread may be about to let go of it
        if connection is not None:
            connection.close()

    def leave_node(self, seconds: float) -> None:
        """The node is to be removed: have this endpoint's owner leave it, in a thread of its own; under the lock."""
        leave, self.on_node_drains = self.on_node_drains, None  # once, however often it is told
        if leave is not None:
            threading.Thread(target=leave, args=[seconds], name="echannel-leaving", daemon=True).start()

    def _end_modulators(self) -> None:
        self.installer.close()
        warden, self._warden = self._warden, None
        if warden is not None:
            warden.close()

    @property
    def warden(self) -> Warden:
        """The warden of this process, which looks after its sandboxes."""
        with self.lock:
            if self._warden is None:
                self._warden = Warden()
            return self._warden

    def forget(self) -> None:
        """In the child of a fork: the link and the threads are the parent's."""
        self.closed = True
        if self._warden is not None:
            self._warden.forget()
        # Another thread of the parent may have held it.
        self.lock = threading.Lock()
        self.write_lock = threading.Lock()
        self.room = Bell(self.lock)
        for publisher in self.publishers.values():
            publisher.forget()
        self.outgoing.end_measuring()
        self.direct.forget()
        self.exchange.forget()
        connection, self.connection = self.connection, None
        if isinstance(connection, PlainConnection):
            connection.forget()

    def fail(self, error: errors.EChannelError) -> None:
        """The link can't be had again: everything that waits, and every later call, gets this error."""
        with self.lock:
            self.broken = error
            self._abandon_all(str(error))
        self.direct.close()
        self.calls.fail(error)
        for inbox in [*self.inboxes.values()]:
            inbox.close()
        # In one piece, since this crew is about to end; and not before the rest knows, for it may take its time.
        self.crew.submit(Job(_report, [each for each in self.inboxes.values() if each.on_error], error))

    def _abandon_all(self, reason: str) -> None:
        for publisher in self.publishers.values():
            publisher.cut_off()
        for delivery in [*self.deliveries.values()]:
            delivery.abandon(reason)
        self.room.notify_all()

    def check_usable(self) -> None:
        """Raise where this endpoint can do nothing any more."""
        if self.broken is not None:
            raise self.broken
        if self.closed:
            raise errors.Closed(
                "this process has left the namespace: call echannel_ray.connect() again", what="session"
            )

    def _link_up(self) -> None:
        connection = self._connect(self)
        connection.setblocking(False)
        # With the write lock: a thread that still wrote to the link before would take what is put here for the new one.
        with self.write_lock, self.lock:
            self.connection = connection
            registered = [frames.REQUEST_ID.pack(0) + wire.encode(each) for each in self._registered()]
            self.core.linked(time.monotonic(), [frames.frame(frames.REQUEST, each) for each in registered])
            self.calls.repeat()
        self.incoming.links_changed()
        self.sharing.relinked()
        self.outgoing.write()

    def _registered(self) -> Iterator[wire.Registered]:
        # Also of channels that are only open: the concentrator has to know them when the next request concerns one.
        streams: dict[str, list[tuple[int, str]]] = {}
        consumers: dict[str, list[tuple[int, str | None, str, str, int]]] = {}
        for publisher in self.publishers.values():
            if publisher.is_registered:
                streams.setdefault(publisher.channel, []).append((publisher.stream.number, publisher.derived))
        for inbox in self.inboxes.values():
            entry = (inbox.number, inbox.group, inbox.fingerprint, inbox.derived, inbox.version)
            consumers.setdefault(inbox.channel, []).append(entry)
        held = [
            Registrations(
                self.node,
                self.id,
                channel,
                definition,
                tuple(streams.get(channel, ())),
                tuple(consumers.get(channel, ())),
                *self.derivations.held(channel),
                logs=tuple((p.stream.number, p.log) for p in self.publishers.on(channel) if p.log),
            )
            for channel, definition in [*self.definitions.items()]
        ]
        part: list[Registrations] = []
        size = 0
        for each in held:
            # A frame has to hold them, code of modulators included.
            more = sum(len(derived.shipment.code) for derived in each.derived)
            if part and (len(part) >= _CHANNELS_PER_REGISTRATION or size + more > MAX_SHIPPED_BYTES):
                yield wire.Registered(tuple(part), complete=False)
                part, size = [], 0
            part.append(each)
            size += more
        if part:
            yield wire.Registered(tuple(part), complete=False)
        yield wire.Registered((), complete=True)

    # ---- the crew's link ----

    @override
    def read(self, timeout_seconds: float | None) -> bool:
        # What this thread has to answer to what it read before, from handlers too, in one piece.
        self.outgoing.write()
        connection = self.connection
        if connection is None and self._relinking is None:
            return False
        return self.incoming.read(connection, timeout_seconds)

    @override
    def restore(self) -> None:
        if self.closed or self.broken:
            self.crew.close()
            return
        if self._relinking is not None:
            return
        self.reconnections += 1
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        # In a thread of its own, since direct links are to be read meanwhile: it may take seconds.
        self._relinking = threading.Thread(target=self._relink, name="echannel-relinking", daemon=True)
        self._relinking.start()

    def _relink(self) -> None:
        try:
            if self.dismissed is not None:
                raise self.dismissed
            self._link_up()
        except errors.EChannelError as error:
            if not self.closed:
                logger.warning("namespace %r: %s", self.namespace, error)
                self.fail(error)
        except Exception as error:  # of Ray, when its cluster ends under us: who waits must not wait for good
            logger.exception("namespace %r: the link can't be had again", self.namespace)
            self.fail(errors.Disconnected(f"the link to the concentrator of this node can't be had again: {error!r}"))
        finally:
            self._relinking = None
            self.incoming.interrupt()

    @override
    def interrupt(self) -> None:
        self.incoming.interrupt()

    @override
    def tick(self) -> bool:
        """Send what has waited long enough, acknowledge, probe, ask again; True when there is more to do soon."""
        now = time.monotonic()
        with self.lock:
            busy = self._absorb(now)
            busy |= self._flush_due(now)
            if now >= self._due_late:
                self._due_late = now + _ABSORB_LATE_SECONDS
                self.core.sender.clock_offset_seconds = time.time() - now  # somebody may have set the clock
                self._absorb_late()
            busy |= self.core.tick(now)
            busy |= self.mixed.supervise()
            if now >= self._due_calls:
                self._due_calls = now + LOOK_SECONDS
                self.calls.tick(now)
        self.outgoing.write()
        self.direct.tick(now)
        self.exchange.tick(now)
        busy |= self.metrics_reporter.tick(now)
        self.sharing.tick()
        busy |= self._advance_fed() | self.timers.tick(now)
        while self._abandoned:
            inbox = self._abandoned.popleft()
            logger.warning(
                "a pull subscription of channel %r was dropped without close(): it is closed now", inbox.channel
            )
            self._end_in_background(inbox)
        while self.released_handles:
            self.requests.tell(self.released_handles.popleft())
        while self._deleted:
            self._end_deleted(self._deleted.pop())
        return busy

    @override
    def about_to_wait(self) -> None:
        self.mixed.step_aside()

    @override
    def depart(self, now: float) -> None:
        with self.lock:
            self._absorb(now)
            self._flush_due(now)
        self.outgoing.write()
        self._advance_fed()

    def _advance_fed(self) -> bool:
        """Have those that have something to do be at it; whether there are any."""
        with self.lock:
            fed, self.fed = self.fed, {}
        for each in fed:
            # Not here: inline modulators are the user's functions, and others may have to wait for one.
            self.crew.submit(Job(each.advance))
        return bool(fed)

    def _end_deleted(self, inbox: Inbox) -> None:
        inbox.deleted = True
        self.close_inbox(inbox)
        if inbox.on_error is not None and not inbox.driver.is_pulled:
            error = errors.ChannelDeleted(f"channel {inbox.channel!r} was deleted", channel=inbox.channel)
            self.crew.submit(Job(inbox.report, error))  # the user's function must not hold up the ticker

    @override
    def idle_seconds(self) -> float:
        # Never for good: a thread that found its producer armed may append after the tick that disarmed it.
        with self.lock:
            waits = self.blocked_publishers or self.draining or self.calls.is_waiting or self.core.is_waiting
            # What left at once woke nobody: its loss must not go unnoticed for long.
            seconds = LOOK_SECONDS if waits else 0.1 if self.core.sender.flows else 0.5
        return self.timers.shortened(seconds, time.monotonic())

    def _absorb(self, now: float) -> bool:
        """Take in what armed producers have appended since the last tick; disarm those that have nothing to say."""
        absorbed = []
        self.is_absorbing = True  # what all of them have appended leaves together
        try:
            for each in [*self.armed]:
                if len(self.armed) == 1 and each.is_young(now):
                    return True
                if each.absorb():
                    absorbed.append(each)
                    if each.has_little(len(self.armed)):
                        each.disarm()
                elif not each.disarm():
                    del self.armed[each]
                    self._disarmed_now[each] = None
        finally:
            self.is_absorbing = False
        for each in absorbed:
            each.see_off(now)
        return bool(absorbed)

    def _absorb_late(self) -> None:
        """Take in what was appended behind a tick that had disarmed its producer: of those that were disarmed of late,
        and of a few others, since a thread may be stopped for any time.
        """
        for each in {**self._disarmed_before, **self._disarmed_now}:
            each.absorb()
        self._disarmed_before, self._disarmed_now = self._disarmed_now, {}
        some = [*islice(self._to_absorb, _PUBLISHERS_AT_ONCE)]
        for number in some:
            publisher = self.publishers.get(number)
            if publisher is not None:
                publisher.sink.absorb()
        if not some:
            self._to_absorb = iter([*self.publishers])

    def forget_sink(self, sink: Sink) -> None:
        """A producer is closed; under the lock."""
        for each in (self.armed, self._disarmed_now, self._disarmed_before):
            each.pop(sink, None)
        if self._published_last is sink:
            self._published_last = None

    def absorb_later(self, sink: Sink) -> None:
        """A producer was disarmed; a thread that has found it armed may append yet. Under the lock."""
        self._disarmed_now[sink] = None

    def is_next_in_turn(self, sink: ConsumerSink) -> bool:
        """Whether so many producers as would be too many to look after have published one after the other, this one
        last; under the lock.
        """
        self._turns = 0 if sink is self._published_last else self._turns + 1
        self._published_last = sink
        return self._turns >= MANY_ARMED

    def _flush_due(self, now: float) -> bool:
        began = time.monotonic()
        next_at = self.core.flush_due(now + EARLY_SECONDS)
        self.outgoing.sent(began)
        self.crew.depart_at(next_at)
        return next_at < NEVER

    def flush_all(self) -> None:
        """Send everything that was gathered, the oldest first: before a stream changes its route."""
        for each in [*self.armed]:
            each.absorb()
        began = time.monotonic()
        self.core.flush_all(began)
        self.outgoing.sent(began)

    # ---- what the core says; under the lock ----

    def carry_out(self) -> None:
        """Do what the core has said. What follows from that may have it say more."""
        instructions = self.core.instructions
        while instructions:
            each = instructions.popleft()
            _CARRY_OUT[type(each)](self, each)

    def _acknowledged(self, instruction: Acknowledged) -> None:
        if self.draining:
            self.room.notify_all()

    def _credited(self, instruction: Credited) -> None:
        branch = self.queueing.get(instruction.stream)
        if branch is not None and branch.host is not None:
            self.crew.submit(Job(branch.host.pump))
        if instruction.has_moved and (self.blocked_publishers or self.draining):
            self.room.notify_all()

    def _large_event_left(self, instruction: LargeEventLeft) -> None:
        held_up = self.held_up.get(instruction.stream)
        if held_up is not None:
            held_up.release()
        self.room.notify_all()

    def _answered(self, instruction: Answered) -> None:
        delivery = self.deliveries.get(instruction.delivery)
        if delivery is not None:
            delivery.remote_result(instruction)

    def _endpoint_gone(self, instruction: EndpointGone) -> None:
        self.calls.endpoint_gone(instruction.endpoint)
        self.exchange.endpoint_gone(instruction.endpoint)
        self.room.notify_all()

    def _path_restored(self, instruction: PathRestored) -> None:
        self.calls.repeat(instruction.node)

    # ---- what waits for answers ----

    def new_delivery(self) -> PendingDelivery:
        """Begin a delivery that nobody has to answer yet; under the lock."""
        delivery = PendingDelivery(self, self.core.deliveries.begin())
        self.deliveries[delivery.number] = delivery
        return delivery

    def release(self, reception: Reception, delivery: int) -> None:
        """Report that a delivered event was discarded."""
        with self.lock:
            self.core.release(reception, delivery)
        self.outgoing.write()

    # ---- what inboxes report ----

    def run_handled(self, reception: Reception, mark: int, delivery: int, outcome: bytes) -> None:
        """An inbox has handled a stream up to `mark`; the last event of it was perhaps a delivered one."""
        with self.lock:
            self.core.handled(reception, mark, delivery, outcome)
        # The leader, if it is the leader who calls, writes when it has handled all that it read: see `LinkReader.read`.
        if not self.crew.leads:
            self.outgoing.write()

    def local_handled(self, inbox: Inbox) -> None:
        """Note that an inbox has handled an event of a producer of this process."""
        if self.blocked_publishers and inbox.local_pending <= inbox.local_low_water:
            self.room_made()

    def room_made(self) -> None:
        """Have whoever waits for room look again."""
        if self.blocked_publishers:
            with self.lock:
                self.room.notify_all()

    def abandon(self, inbox: Inbox) -> None:
        """An inbox can't handle anything any more, since its event loop is closed."""
        logger.warning("a subscription of channel %r ends: the event loop that it belongs to is closed", inbox.channel)
        self._end_in_background(inbox)

    def _end_in_background(self, inbox: Inbox) -> None:
        threading.Thread(target=self._abandon, args=[inbox], name="echannel-closing", daemon=True).start()

    def _abandon(self, inbox: Inbox) -> None:
        # Producers must know as well: they would wait for its credit for good.
        self.requests.tell(Unsubscribe(inbox.channel, inbox.number, inbox.totals()))
        self.close_inbox(inbox)

    def abandon_later(self, inbox: Inbox) -> None:
        """Have a pull subscription closed that nobody holds. The garbage collector calls this in any thread."""
        if not inbox.closed:
            self._abandoned.append(inbox)

    # ---- subscriptions ----

    def new_subscription(self) -> int:
        """A number for a subscription."""
        with self.lock:
            number = self._next_subscription
            self._next_subscription += 1
            return number

    def is_in_handler_of(self, recipient: Recipient) -> bool:
        """Whether the calling thread is in the handler of this subscription."""
        inbox = self.inboxes.get(recipient.subscription) if recipient.endpoint == self.id else None
        return inbox is not None and inbox.driver.is_current_thread()

    def open_inbox(self, inbox: Inbox) -> None:
        """Take in events for an inbox from now on."""
        with self.lock:
            self.inboxes[inbox.number] = inbox
            self.core.subscription_opened(inbox.number)

    def close_inbox(self, inbox: Inbox) -> None:
        """Take in no more events for it; members of groups tell how far they came."""
        with self.lock:
            if inbox.is_seated:
                inbox.leave_seats()
            if self.inboxes.pop(inbox.number, None) is None:
                return
            for publisher in self.publishers.values():
                for outlet in publisher.sink.outlets():
                    outlet.local = tuple(each for each in outlet.local if each.inbox is not inbox)
        inbox.supply.stop()
        inbox.close()
        # What a member of a group is handling now counts as handled: nobody else must get it.
        inbox.at_rest(lambda: self._release_inbox(inbox))

    def _release_inbox(self, inbox: Inbox) -> None:
        with self.lock:
            self.metrics_reporter.look_at_consumer(inbox)
            self.metrics_reporter.forget(inbox)
            self.core.subscription_closed(inbox.number)
            self.room.notify_all()
        self.outgoing.write()

    # ---- what managers push ----

    def membership_pushed(self, membership: Membership, unprepared: Collection[Sink] = ()) -> None:
        """The consumers of a channel have changed, or it was deleted; under the lock. Those that are `unprepared` lack
        the modulators of it, and wait for the answer to their own registration.
        """
        known = self.memberships.get(membership.channel)
        if known is not None and known.recency >= membership.recency:
            return
        self.memberships[membership.channel] = membership
        self.flush_all()
        for publisher in self.publishers.on(membership.channel):
            if publisher.sink not in unprepared:
                publisher.apply(membership)
        self.flush_all()
        for inbox in self.inboxes.on(membership.channel):
            if membership.deleted or inbox.incarnation != membership.incarnation:
                self._deleted.append(inbox)
            else:
                inbox.supply.logs_are(membership.logs)
        if self._deleted and not self.crew.ticking:
            self.crew.wake_ticker()
        self.room.notify_all()

    def stats_of(self, channel: str) -> dict[str, Any]:
        """The counters of a channel in this process; under the lock."""
        sums: Counter[str] = Counter()  # a Counter: what nobody has counted is 0
        ends: dict[str, int] = {}
        for publisher in self.publishers.on(channel):
            add_up(sums, publisher.counters())
            add_up(sums, publisher.gauges())
            ends.update(publisher.ends())
        for inbox in self.inboxes.on(channel):
            add_up(sums, inbox.totals())
            add_up(sums, inbox.gauges())
        return {**sums, "packing_degree": self._packing_degrees(channel), "ends": ends}

    def _packing_degrees(self, channel: str) -> dict[str, float]:
        """With how many events packs leave now, on each link that carries the channel from here."""
        now = time.monotonic()
        degrees = {}
        for publisher in self.publishers.on(channel):
            for outlet in publisher.sink.outlets():
                for route, policy in outlet.stream.links():
                    nodes = "+".join(f"{node:016x}" for node in sorted(route.flow.members))
                    degrees[f"{self.id:016x}-{route.flow.number} to {nodes}"] = round(policy.typical(now), 1)
        return degrees


_CARRY_OUT: dict[type[Any], Callable[[ProcessEndpoint, Any], None]] = {
    Acknowledged: ProcessEndpoint._acknowledged,
    Credited: ProcessEndpoint._credited,
    LargeEventLeft: ProcessEndpoint._large_event_left,
    Answered: ProcessEndpoint._answered,
    EndpointGone: ProcessEndpoint._endpoint_gone,
    PathRestored: ProcessEndpoint._path_restored,
}


def _report(inboxes: list[Inbox], error: errors.EChannelError) -> None:
    for inbox in inboxes:
        inbox.report(error)
