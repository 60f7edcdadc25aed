"""One derived channel at one producer: events come in from the channel that it is derived from, pass the modulator, and
go out to its own consumers.

Locks: `mutex` is held while the modulator works, the endpoint's lock never is. Whoever holds both took `mutex` first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core.kinds import BLOCK, BUFFERS, token_of, wire_kind
from echannel_ray.core.messages import Derived, ModulatorGone
from echannel_ray.core.streams import BY_MODULATOR, BY_TIMER
from echannel_ray.core.windows import holds_up, plain_have_room
from echannel_ray.derived.weights import Savings
from echannel_ray.endpoint.crew import TICK_SECONDS, Job
from echannel_ray.endpoint.record_codec import objects_of, split
from echannel_ray.formats.events import OVERHEAD_BYTES, decode, encode
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.producers.outlet import SMALL_BYTES, Encoded, Outlet, joined
from echannel_ray.producers.pending_deliveries import Emission
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.derived.host import Host
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.producers.consumer_sink import ConsumerSink

# Where a modulator keeps a queue of its own, so much may be under way: what it decides at the last moment is to be of
# use while consumers are slow.
QUEUEING_WINDOW_BYTES = 64 << 10
_DEQUEUED_AT_ONCE = 32
_LOOK_AGAIN_SECONDS = 0.3


class Chunk:
    """Events that came together: as bytes of one kind, as objects, or both; or a block of `count` records. Or the place
    of some that were dropped.
    """

    __slots__ = ("count", "dropped", "emission", "is_borrowed", "kind", "objects", "payloads", "size_bytes")

    def __init__(
        self,
        kind: int,
        payloads: list[Any] | None,
        objects: list[Any] | None,
        size_bytes: int,
        emission: Emission | None = None,
        count: int = 0,
    ) -> None:
        self.count = count or len(payloads if payloads is not None else objects)  # type: ignore[arg-type]
        self.kind = kind
        self.payloads = payloads
        self.objects = objects
        self.size_bytes = size_bytes
        self.emission = emission
        self.dropped = 0  # how many a policy dropped here
        self.is_borrowed = False  # its memory is the publisher's, until the call ends in which it came

    def __len__(self) -> int:
        return self.count

    def as_objects(self) -> list[Any]:
        """The events themselves; those of this producer's own making only are unpickled."""
        if self.objects is None:
            assert self.payloads is not None
            kind = self.kind
            if token_of(kind):
                self.objects = objects_of(kind, self.payloads, self.count)
            else:
                self.objects = self.payloads if not kind else [decode(kind, joined(each)) for each in self.payloads]
        return self.objects

    def as_payloads(self) -> tuple[bytes, list[Any]]:
        """The kinds and bytes of the events."""
        if self.payloads is None or token_of(self.kind):
            # What stands for a record in a sandbox is the object: its class is looked up there.
            encoded = [encode(each) for each in self.as_objects()]
            kinds = bytes(kind for kind, _, _ in encoded)
            return kinds, [joined(payload) if kind == BUFFERS else payload for kind, payload, _ in encoded]
        payloads = [joined(each) for each in self.payloads] if self.kind == BUFFERS else self.payloads
        return bytes((self.kind,)) * self.count, payloads

    def originals(self) -> tuple[Sequence[int], list[Any]]:
        """The kinds and bytes that go out for those of the events that pass."""
        if not token_of(self.kind) or self.payloads is None:
            return self.as_payloads()
        if wire_kind(self.kind) != BLOCK:
            return [self.kind] * self.count, self.payloads
        records = [*split(self.kind, self.payloads[0], self.count)]
        return [each[0] for each in records], [each[1] for each in records]


class Branch:
    """A derived channel at a producer: its modulator, if that could be installed, and the outlet to its consumers."""

    def __init__(self, sink: ConsumerSink, derived: Derived) -> None:
        self.sink = sink
        self.publisher = publisher = sink.publisher
        self.endpoint: ProcessEndpoint = sink.endpoint
        self.derived: Derived = derived
        self.host: Host | None = None
        self.children: tuple[Branch, ...] = ()
        self.mutex: threading.Lock = threading.Lock()
        self.pending: deque[Chunk] = deque()
        self.events_in = 0
        self.events_out = 0
        self.savings = Savings()
        self.errors = 0  # that it has made
        self.strikes = 0
        self.error: errors.EChannelError | None = None  # why there is no host
        source = sink.stream
        stream = sink.endpoint.core.open_stream(source.channel, source.overflow, source.window_bytes, source.packing)
        # Consumers know its events as those of the producer, wherever they pass.
        stream.producer = source.number
        stream.waited_seconds = TICK_SECONDS  # for its modulator
        encoder = sink.records.emitted if sink.records is not None else encode
        self.outlet = Outlet(sink.endpoint, stream, publisher.name, encoder)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody gets what it emits, or what is made of that."""
        return self.outlet.has_consumers or any(child.is_wanted for child in self.children)

    # ---- in; under the endpoint's lock ----

    def feed(self, chunk: Chunk) -> None:
        """Events of the channel that it is derived from. Somebody must call `advance` afterwards."""
        if self.host is None or not self.is_wanted:
            return
        self.events_in += len(chunk)
        if chunk.emission is not None:
            chunk.emission.begin()
        self.pending.append(chunk)
        self.outlet.backlog_bytes += chunk.size_bytes
        self.endpoint.fed[self] = None

    def drop(self, chunk: Chunk, oldest: bool) -> bool:
        """The modulator does not keep up, which counts as its consumers' window: drop these events, or (`oldest`) what
        has waited longest instead. False where these were dropped.
        """
        outlet = self.outlet
        waiting = [each for each in self.pending if not each.dropped] if oldest else []
        for each in waiting:
            if outlet.backlog_bytes + chunk.size_bytes <= outlet.stream.window_bytes:
                break
            each.dropped = len(each)
            self.release(each)
            each.size_bytes = 0
        if waiting:
            self.feed(chunk)
            return True
        if self.host is not None and self.is_wanted:
            chunk.dropped = len(chunk)
            chunk.size_bytes = 0
            self.pending.append(chunk)
            self.endpoint.fed[self] = None
        return False

    def tell_dropped(self) -> None:
        """Have a gap in the place of what was dropped, if that is next."""
        pending = self.pending
        while pending and pending[0].dropped:
            self.outlet.drop(pending.popleft().dropped, BY_MODULATOR)

    def done(self, chunk: Chunk) -> None:
        """The modulator has seen all of a chunk."""
        if chunk.payloads is None:
            self.savings.seen.add_unknown(len(chunk))
        else:
            entries = 1 if wire_kind(chunk.kind) == BLOCK else len(chunk)
            self.savings.seen.add(chunk.size_bytes - OVERHEAD_BYTES * entries)
        self.release(chunk)

    def release(self, chunk: Chunk) -> None:
        """Nobody waits any more for the modulator to see it."""
        self.outlet.backlog_bytes -= chunk.size_bytes
        if chunk.emission is not None:
            chunk.emission.complete()
        if self.endpoint.blocked_publishers:
            self.endpoint.room.notify_all()

    # ---- out; without the endpoint's lock ----

    def emit_objects(self, objects: list[Any], emission: Emission | None = None) -> None:
        """What an inline modulator emitted."""
        self._emit(objects, self._encode(objects), emission)

    def emit_unasked(self, outputs: list[Any], are_objects: bool) -> None:
        """What a modulator emitted by its timer. No publisher can be made to wait: where there is no room, all of it is
        dropped.
        """
        objects = outputs if are_objects else None
        encoded = self._encode(outputs) if are_objects else [(k, payload, _size(payload)) for k, payload in outputs]
        size = sum(each[2] if each is not None else OVERHEAD_BYTES for each in encoded)
        with self.endpoint.lock:
            has_room = not self.outlet.blockers(size)
            if not has_room:
                self.events_out += len(encoded)
                self._weigh(encoded)  # it was not the modulator that kept it from travelling
                self.outlet.drop(len(encoded), BY_TIMER)
        if has_room:
            self._emit(objects, encoded, None)

    def _encode(self, objects: list[Any]) -> list[Any]:
        outlet = self.outlet
        needs_bytes = outlet.stream.recipients or any(
            child.derived.shipment.tier != "inline" for child in self.children
        )
        if needs_bytes:
            return [outlet.encode(each) for each in objects]
        records = self.publisher.records
        if records is None:
            return [None] * len(objects)
        # Where a consumer of this process may want bytes of it after all, and making them would ask a manager.
        return [outlet.encode(each) if records.may_ask(each) or outlet.needs_record(each) else None for each in objects]

    def emit_encoded(self, encoded: list[Encoded]) -> None:
        """What an inline modulator emitted, as bytes already."""
        self._emit(None, encoded, None)

    def emit_payloads(self, outputs: list[tuple[int, Any]], emission: Emission | None = None) -> None:
        """What an isolated modulator emitted: bytes of the producer's own making, and plain data."""
        self._emit(None, [(kind, payload, _size(payload)) for kind, payload in outputs], emission)

    def _emit(self, objects: list[Any] | None, encoded: list[Any], emission: Emission | None) -> None:
        endpoint = self.endpoint
        outlet = self.outlet
        count = len(encoded)
        if objects is None and outlet.local:
            # Not under the lock: reading an event may run code of its class.
            objects = [NOTHING if token_of(kind) else decode(kind, payload) for kind, payload, _ in encoded]
        if objects and encoded[0] is None:
            self.savings.emitted.look(objects[0], outlet.encode, time.monotonic())
        with endpoint.lock:
            self.events_out += count
            self._weigh(encoded)
            is_plain_sailing = emission is None and not outlet.local and outlet.stream.limit_bytes >= 0
            if not outlet.has_consumers:
                endpoint.core.skip(outlet.stream, count)
            elif not is_plain_sailing or not self._absorb(encoded):
                for i, each in enumerate(encoded):
                    event = NOTHING if objects is None else objects[i]
                    part = emission.part() if emission is not None else None
                    size = each[2] if each is not None else OVERHEAD_BYTES
                    outlet.in_turn(size, partial(outlet.send, event, each, part))
                    if emission is not None and part is not None:
                        emission.sent(part)
            for child in self.children:
                of_child = emission.of_child() if emission is not None else None
                for chunk in _chunks(objects, encoded, of_child):
                    child.feed(chunk)
                if of_child is not None:
                    of_child.complete()
        self._leave()

    def _leave(self) -> None:
        """Write what was emitted, and have the children work on it."""
        self.endpoint.outgoing.write()
        for child in self.children:
            child.advance()

    def emit_run(self, kind: int, payloads: list[Any], size_bytes: int) -> None:
        """Many records of one kind and size: the usual way of what E-code lets pass."""
        outlet = self.outlet
        endpoint = self.endpoint
        is_usual = not outlet.local and (outlet.stream.limit_bytes >= 0 or not outlet.stream.recipients)
        if not is_usual or size_bytes > (SMALL_BYTES + OVERHEAD_BYTES) * len(payloads):
            size = size_bytes // len(payloads)
            self._emit(None, [(kind, payload, size) for payload in payloads], None)
            return
        with endpoint.lock:
            self.events_out += len(payloads)
            self.savings.emitted.add(size_bytes - OVERHEAD_BYTES * len(payloads))
            if outlet.has_consumers:
                outlet.absorb(kind, payloads, size_bytes)
            else:
                endpoint.core.skip(outlet.stream, len(payloads))
            for child in self.children:
                child.feed(Chunk(kind, payloads, None, size_bytes))
        self._leave()

    def emit_block(self, kind: int, block: bytes | memoryview, count: int) -> None:
        """A block of records."""
        stream = self.outlet.stream
        if stream.groups or stream.laggards or not holds_up(stream.overflow):
            self._emit(None, [(k, payload, _size(payload)) for k, payload in split(kind, block, count)], None)
            return
        size = len(block) + OVERHEAD_BYTES
        with self.endpoint.lock:
            self.events_out += count
            self.savings.emitted.add(len(block))
            if self.outlet.has_consumers:
                self.outlet.in_turn(size, partial(self.outlet.send_block, kind, block, count, size))
            else:
                self.endpoint.core.skip(stream, count)
            for child in self.children:
                child.feed(Chunk(kind, [block], None, size, count=count))
        self._leave()

    def _weigh(self, encoded: list[Encoded | None]) -> None:
        """What was emitted, or would have been."""
        sizes = [each[2] for each in encoded if each is not None]
        self.savings.emitted.add(sum(sizes) - OVERHEAD_BYTES * len(sizes))
        self.savings.emitted.add_unknown(len(encoded) - len(sizes))

    def _absorb(self, encoded: list[Encoded]) -> bool:
        """The usual way: small events by whole runs. False where there is one that is not small."""
        if any(size > SMALL_BYTES or kind == BUFFERS for kind, _, size in encoded):
            return False
        for kind, run in groupby(encoded, itemgetter(0)):
            events = [*run]
            self.outlet.absorb(kind, [each[1] for each in events], sum(each[2] for each in events))
        return True

    # ---- its own queue ----

    def may_dequeue(self) -> int:
        """How many events the transport can take now from the modulator's own queue."""
        outlet = self.outlet
        stream = outlet.stream
        with self.endpoint.lock:
            if not plain_have_room(stream, SMALL_BYTES):
                return 0
            full = any(each.is_full for each in outlet.local)
            return 0 if full else _DEQUEUED_AT_ONCE

    # ---- working; without the endpoint's lock ----

    def advance(self) -> None:
        """Work on what was fed."""
        host = self.host
        if host is not None:
            host.advance()

    def quiesce(self, deadline: float | None = None) -> bool:
        """Return when all that was fed has gone out, and what was held back too; its children after it."""
        host = self.host
        if host is not None and not host.quiesce(deadline):
            return False
        with self.endpoint.lock:
            while self.outlet.held and not (self.endpoint.closed or self.endpoint.broken):
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self.endpoint.room.wait(_LOOK_AGAIN_SECONDS)
        return all(child.quiesce(deadline) for child in self.children)

    # ---- refusing and failing; without the endpoint's lock ----

    def refused(self, reason: str) -> errors.ModulatorRefused:
        """The error for consumers whose modulator this producer does not let in."""
        publisher = self.publisher
        name = self.derived.shipment.name
        return errors.ModulatorRefused(
            f"producer {publisher.name} of channel {publisher.channel!r} refuses modulator {name}: {reason}",
            reason=reason, producer=publisher.name, channel=publisher.channel, modulator=name,
        )  # fmt: skip

    def check_key(self, key: bytes | None) -> None:
        """Refuse a modulator whose `key()` returns here something else than who shipped it said."""
        if key != self.derived.shipment.key:
            raise self.refused("its key() returns here something else than where it was shipped")

    def failed(self, description: str, event: Any) -> bool:
        """The modulator raised or died at an event. Whether it may be started again."""
        description = _sendable(description)
        self.strikes += 1
        shipment = self.derived.shipment
        left = self.sink.admission.max_restarts - self.strikes
        what = f"modulator {shipment.name} of producer {self.publisher.name} on channel {self.publisher.channel!r}"
        facts = {"channel": self.publisher.channel, "producer": self.publisher.name, "reason": description}
        if left >= 0:
            self.errors += 1
            text = None if event is NOTHING else _shown(event)
            lost = f"the event ({text}) is lost to its consumers, and " if text is not None else ""
            again = f"it goes on from its first state, at most {left} times more"
            self.tell(errors.ModulatorFailed(f"{what} failed: {description}; {lost}{again}", event=text, **facts))
            return True
        self.quarantine(description)
        return False

    def quarantine(self, reason: str) -> None:
        """It has broken a limit: remove it from this producer, tell its consumers, and let go whatever waits for it."""
        reason = _sendable(reason)
        publisher, name = self.publisher, self.derived.shipment.name
        error = errors.ModulatorQuarantined(
            f"modulator {name} was removed from producer {publisher.name} of channel {publisher.channel!r}: {reason}; "
            "mend it, and call subscription.reset() to have events of this producer again",
            channel=publisher.channel,
            producer=publisher.name,
            modulator=name,
            reason=reason,
        )
        endpoint = self.endpoint
        with endpoint.lock:
            self.errors += 1
            host, self.host = self.host, None
            self.error = error
            while self.pending:
                self.release(self.pending.popleft())
        self.tell(error)
        if host is not None:
            # Not here: this may be the host's own thread.
            endpoint.crew.submit(Job(host.close))
        self.say_gone()

    def say_gone(self) -> None:
        """Have the manager know that this producer lacks it."""
        derived = self.derived
        self.endpoint.requests.tell(
            ModulatorGone(self.publisher.channel, derived.key, derived.generation, self.publisher.stream.number)
        )

    def tell(self, error: errors.EChannelError) -> None:
        """Have its consumers, and those of what is derived from it, learn of an error."""
        encoded = wire.encode_error(error)
        with self.endpoint.lock:
            for branch in self.with_descendants():
                branch.outlet.notify(error, encoded)
            self.endpoint.flush_all()
        self.endpoint.outgoing.write()

    def with_descendants(self) -> Iterable[Branch]:
        """It, and all that is derived from it."""
        yield self
        for child in self.children:
            yield from child.with_descendants()

    def counters(self) -> dict[str, Any]:
        """What has gone in and out."""
        return {
            **self.outlet.counters(),
            "events_in": self.events_in,
            "events_out": self.events_out,
            "saved_bytes": self.savings.saved_bytes,
            "modulator_errors": self.errors,
        }


def _chunks(objects: list[Any] | None, encoded: list[Any], emission: Emission | None) -> Iterable[Chunk]:
    if objects is not None and (not encoded or encoded[0] is None):
        yield Chunk(0, None, objects, OVERHEAD_BYTES * len(objects), emission)
        return
    start = 0
    for kind, run in groupby(encoded, itemgetter(0)):
        events = [*run]
        of_objects = None if objects is None else objects[start : start + len(events)]
        start += len(events)
        yield Chunk(kind, [each[1] for each in events], of_objects, sum(each[2] for each in events), emission)


def _size(payload: Any) -> int:
    if isinstance(payload, str) and not payload.isascii():
        payload = payload.encode()
    return (len(payload) if isinstance(payload, bytes | str) else 9) + OVERHEAD_BYTES


def _shown(event: Any) -> str:
    try:
        text = repr(event)
    except Exception as error:  # of the event's own class
        text = f"{type(event).__name__}, whose repr raises {type(error).__name__}"
    return _sendable(text if len(text) <= 200 else text[:197] + "…")


def _sendable(text: str) -> str:
    """A text that may be of anybody's making, fit for UTF-8."""
    return text.encode("utf-8", "replace").decode()
