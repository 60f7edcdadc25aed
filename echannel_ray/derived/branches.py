"""What is derived at one producer: all its modulators, and who of the consumers gets events from which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core import windows
from echannel_ray.core.kinds import BUFFERS, PLAIN, token_of
from echannel_ray.core.messages import REPLAY, Consumer, Derived, GetModulator, Membership
from echannel_ray.core.windows import DROP_LONGEST_WAITING, DROP_THIS, MODULATOR
from echannel_ray.derived.branch import QUEUEING_WINDOW_BYTES, Branch, Chunk
from echannel_ray.derived.host import Host
from echannel_ray.derived.inline_host import InlineHost
from echannel_ray.derived.isolated_host import IsolatedHost
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.producers.outlet import Encoded, Outlet
from echannel_ray.producers.pending_deliveries import PendingDelivery

if TYPE_CHECKING:
    from echannel_ray.producers.consumer_sink import ConsumerSink


def _ecode_host(branch: Branch) -> Host:
    # Imported by the first program: with it comes NumPy, for which most processes have no use.
    from echannel_ray.derived.ecode_host import EcodeHost

    return EcodeHost(branch)


_HOSTS: dict[str, Callable[[Branch], Host]] = {"inline": InlineHost, "isolated": IsolatedHost, "ecode": _ecode_host}


class Branches:
    """One per producer; empty for most."""

    def __init__(self, sink: ConsumerSink) -> None:
        self._sink = sink
        self._publisher = sink.publisher
        self._endpoint = sink.endpoint
        self._by_key: dict[str, Branch] = {}  # parents before their children
        self._first: tuple[Branch, ...] = ()  # those that get what is published
        self.need_bytes = False
        self._tiers: frozenset[str] = frozenset()  # of those
        self._closing: list[Host] = []

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __iter__(self) -> Iterator[Branch]:
        return iter([*self._by_key.values()])

    # ---- events; under the endpoint's lock ----

    def feed(self, chunk: Chunk) -> None:
        """Events were published."""
        for branch in self._first:
            branch.feed(chunk)

    def offer(self, event: Any, encoded: Encoded | None, delivery: PendingDelivery | None) -> bool:
        """One event was published; False where a policy dropped it for somebody."""
        kind, payload, size = encoded or (PLAIN, None, OVERHEAD_BYTES)
        objects = None if event is NOTHING else [event]
        on_full = windows.on_full(self._sink.stream, MODULATOR)
        drops = on_full in (DROP_THIS, DROP_LONGEST_WAITING)
        complete = True
        for branch in self._first:
            outlet = branch.outlet
            if drops and outlet.backlog_bytes + size > outlet.stream.window_bytes and outlet.backlog_bytes:
                chunk = Chunk(kind, None if encoded is None else [payload], objects, size)
                complete &= branch.drop(chunk, on_full == DROP_LONGEST_WAITING)
                continue
            emission = delivery.hold() if delivery is not None else None
            branch.feed(Chunk(kind, None if encoded is None else [payload], objects, size, emission))
            if emission is not None:
                emission.complete()
        return complete

    def room_bytes(self) -> int:
        """How much may be published before somebody has to look whether there is room."""
        room = 1 << 40
        for branch in self._first:
            outlet = branch.outlet
            stream = outlet.stream
            if branch.host is None or not branch.is_wanted:
                continue
            if branch.host.queues or not outlet.has_consumers:
                room = min(room, stream.window_bytes - outlet.backlog_bytes)
            else:
                room = min(room, stream.limit_bytes - stream.published_bytes - outlet.backlog_bytes)
        return room

    def may_arm(self, kind: int) -> bool:
        """Whether events of this kind may come many at a time: inline modulators get objects, one by one, and so do
        isolated ones where events are typed.
        """
        needs_objects = "inline" in self._tiers or (token_of(kind) and "isolated" in self._tiers)
        return bool(self._by_key) and (kind == PLAIN or not needs_objects) and kind != BUFFERS

    def are_ecode(self) -> bool:
        """Whether only E-code gets what is published."""
        return self._tiers <= {"ecode"}

    def only_inline(self) -> InlineHost | None:
        """The one modulator that gets what is published, if it may do so in the thread that publishes."""
        if len(self._first) != 1:
            return None
        branch = self._first[0]
        host = branch.host
        if not isinstance(host, InlineHost) or host.queues or branch.outlet.local or not branch.is_wanted:
            return None
        return host

    def advance(self) -> None:
        """Have what was fed worked on. Without the endpoint's lock."""
        for branch in self._first:
            self._endpoint.fed.pop(branch, None)
            branch.advance()

    def quiesce(self, deadline: float | None = None) -> bool:
        """Return when modulators have done with all that was published; False when they had not by the deadline.
        Without the endpoint's lock.
        """
        return all(branch.quiesce(deadline) for branch in self._first)

    # ---- modulators; without the endpoint's lock, under the installer's ----

    def prepare(self, membership: Membership) -> dict[str, errors.EChannelError]:
        """Have all modulators ready that the membership names; those that can't be here, and why."""
        problems: dict[str, errors.EChannelError] = {}
        for derived in self._concerned(membership):
            branch = self._by_key.get(derived.key)
            if branch is not None and branch.host is None and branch.error is not None:
                if derived.generation <= branch.derived.generation:
                    if membership.epoch > self._publisher.stream.version[0] >= 0:
                        branch.say_gone()  # the manager is a new one
                    continue
            elif branch is not None and branch.host is not None:
                branch.derived = derived
                continue
            try:
                if not derived.shipment.code:
                    found = self._endpoint.requests.ask(GetModulator(membership.channel, derived.key))
                    if not isinstance(found, Derived):
                        continue  # it has ended meanwhile: the next membership says so
                    derived = found
                parent = self._by_key.get(derived.parent)
                if parent is not None and parent.error is not None:
                    raise parent.error
                if branch is None:
                    branch = self._open(derived)
                branch.derived = derived
                self._install(branch)
            except Exception as error:  # of this host too, such as a lack of descriptors
                if branch is None:
                    branch = self._open(derived)
                branch.error = problems[derived.key] = _refusal(branch, error)
            with self._endpoint.lock:
                self._by_key[derived.key] = branch
                self._arrange()
        return problems

    def host_of(self, key: str) -> Host | None:
        """The modulator of a derived channel, where it is."""
        branch = self._by_key.get(key)
        return branch.host if branch is not None else None

    def makes_outputs(self, key: str) -> bool:
        """Whether E-code there, or before it, makes events of a type of its own."""
        branch = self._by_key.get(key)
        if branch is None:
            return False
        has_output = getattr(branch.host, "output_record", None) is not None
        return has_output or self.makes_outputs(branch.derived.parent)

    def _concerned(self, membership: Membership) -> list[Derived]:
        """Those derived, over however many steps, from what this producer publishes on."""
        reached = {self._publisher.derived}
        concerned = []
        for derived in membership.derived:
            if derived.parent in reached and derived.shipment.tier != REPLAY:  # that is for a producer of its own
                reached.add(derived.key)
                concerned.append(derived)
        return concerned

    def _open(self, derived: Derived) -> Branch:
        with self._endpoint.lock:
            return Branch(self._sink, derived)

    def _install(self, branch: Branch) -> None:
        shipment = branch.derived.shipment
        admission = self._sink.admission
        make = _HOSTS.get(shipment.tier)
        if make is None or shipment.tier not in admission.tiers:
            admitted = ", ".join(admission.tiers) or "none"
            reason = f"it admits no {shipment.tier} modulators, but these tiers: {admitted}"
            raise branch.refused(f"{reason}; ask for one of these, or make it with an Admission that lists it")
        if len(shipment.code) > admission.max_shipped_bytes:
            limit = f"{len(shipment.code):,} bytes were shipped, and it admits {admission.max_shipped_bytes:,}"
            raise branch.refused(f"{limit}: keep less in the modulator, or raise its max_shipped_bytes")
        others = [each for each in self._by_key.values() if each is not branch and each.host is not None]
        if len(others) >= admission.max_modulators:
            raise branch.refused(
                f"it has {len(others)} modulators, the most that it admits: close some, or raise its max_modulators",
            )
        same = sum(each.derived.maker == branch.derived.maker for each in others)
        if same >= admission.max_modulators_per_consumer:
            reason = f"it has {same} modulators of this consumer, the most that it admits"
            raise branch.refused(f"{reason}: close some, or raise its max_modulators_per_consumer")
        for name in shipment.requires:
            self._sink.grants.grant(name)
        host = make(branch)
        host.install()
        branch.strikes = 0
        with self._endpoint.lock:
            branch.error = None
            branch.host = host
            if host.queues:
                branch.outlet.stream.window_bytes = QUEUEING_WINDOW_BYTES
                self._endpoint.queueing[branch.outlet.stream.number] = branch

    def _arrange(self) -> None:
        """Who gets what from whom; under the endpoint's lock."""
        children: dict[str, list[Branch]] = defaultdict(list)
        for branch in self._by_key.values():
            children[branch.derived.parent].append(branch)
        for branch in self._by_key.values():
            branch.children = tuple(children[branch.derived.key])
        self._first = tuple(children[self._publisher.derived])
        self._sink.has_branches = bool(self._by_key)
        self._tiers = frozenset(branch.derived.shipment.tier for branch in self._first)
        self.need_bytes = bool(self._tiers - {"inline"})

    # ---- consumers; under the endpoint's lock ----

    def moves(self, membership: Membership) -> bool:
        """Whether a consumer goes over to another handler version: then all that was published has to go out before."""
        before = self._whereabouts()
        for consumer in membership.consumers:
            known = before.get((consumer.endpoint, consumer.subscription))
            if known is not None and known != (consumer.derived, consumer.handler_version):
                return True
        return False

    def _whereabouts(self) -> dict[tuple[int, int], tuple[str, int]]:
        places: dict[tuple[int, int], tuple[str, int]] = {}
        for key, outlet in self._outlets().items():
            for each, recipient in outlet.stream.recipients.items():
                if not recipient.is_leaving:
                    places[each] = (key, recipient.consumer.handler_version)
            for local in outlet.local:
                places[self._endpoint.id, local.inbox.number] = (key, local.version)
        return places

    def _outlets(self) -> dict[str, Outlet]:
        outlets = {key: branch.outlet for key, branch in self._by_key.items()}
        return {self._publisher.derived: self._sink.outlet, **outlets}

    def apply(self, membership: Membership, deleted: bool) -> None:
        """The consumers have changed."""
        outlets = self._outlets()
        wanted: dict[str, list[Consumer]] = {key: [] for key in outlets}
        cutover_points: dict[str, dict[tuple[int, int], tuple[int, int]]] = {key: {} for key in outlets}
        before = self._whereabouts()
        for consumer in () if deleted else membership.consumers:
            if consumer.derived not in wanted:
                continue
            wanted[consumer.derived].append(consumer)
            each = (consumer.endpoint, consumer.subscription)
            key_before, _ = before.get(each, (consumer.derived, 0))
            if key_before != consumer.derived and key_before in outlets:
                cutover_point = self._endpoint.core.cutover_point_of(outlets[key_before].stream, *each)
                if cutover_point is not None:
                    cutover_points[consumer.derived][each] = cutover_point
        for key, outlet in outlets.items():
            outlet.apply(membership.recency, wanted[key], deleted, cutover_points[key])

    def ended(self, membership: Membership) -> list[Host]:
        """Take out what is derived no more; the hosts are to be closed without the lock."""
        present = {derived.key for derived in membership.derived} if not membership.deleted else set()
        hosts = []
        if self._by_key.keys() - present:
            self._endpoint.metrics_reporter.look_at_producer(self._publisher)  # what they have counted goes with them
        for key, branch in [*self._by_key.items()]:
            if key not in present:
                del self._by_key[key]
                hosts += self._leave(branch)
        self._arrange()
        return hosts

    def _leave(self, branch: Branch) -> list[Host]:
        self._endpoint.queueing.pop(branch.outlet.stream.number, None)
        self._endpoint.fed.pop(branch, None)
        self._endpoint.held_up.pop(branch.outlet.stream.number, None)
        branch.outlet.held.clear()
        while branch.pending:
            branch.release(branch.pending.popleft())
        self._endpoint.core.close_stream(branch.outlet.stream)
        host, branch.host = branch.host, None
        return [host] if host is not None else []

    def report(self, problems: dict[str, errors.EChannelError], membership: Membership) -> None:
        """Tell consumers of modulators that this producer can't have; without the lock."""
        consumed = {consumer.derived for consumer in membership.consumers}
        for key, error in problems.items():
            branch = self._by_key.get(key)
            if branch is not None:
                if any(each.derived.key in consumed for each in branch.with_descendants()):
                    branch.tell(error)
                branch.say_gone()  # whoever wants it later is to be told then

    def counters(self) -> dict[str, Any]:
        """Of each derived channel, by its key."""
        return {key: branch.counters() for key, branch in self._by_key.items()}

    def gauges(self) -> dict[str, Any]:
        """As `counters`, what is so now."""
        return {key: branch.outlet.gauges() for key, branch in self._by_key.items()}

    def leave(self) -> None:
        """The producer is closed; under the lock."""
        self._closing = [host for branch in self for host in self._leave(branch)]

    def close(self) -> None:
        """End the modulators, after `leave`; without the lock."""
        for host in self._closing:
            host.close()


def _refusal(branch: Branch, error: Exception) -> errors.EChannelError:
    """What consumers are told of a modulator that this producer can't have."""
    if isinstance(error, errors.MasterLost):
        return branch.refused("the process that made a shared object of it is gone: make a new one, and reset to it")
    if isinstance(error, errors.EChannelError):
        return error
    return branch.refused(f"it could not be installed: {type(error).__name__}: {error}")
