"""Modulators that run in the producer's process: trusted code, protected against accidents only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.derived.branch import Branch, Chunk
from echannel_ray.derived.host import HostInProcess
from echannel_ray.derived.traced_replica import TracedReplica
from echannel_ray.derived.watchdog import Overran, Watch
from echannel_ray.endpoint.record_codec import EmittedRecords
from echannel_ray.formats import plain
from echannel_ray.formats.trace_context import switch
from echannel_ray.modulation.modulator import overrides
from echannel_ray.modulation.replica import BrokenAt, Replica
from echannel_ray.modulation.services import Services
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.producers.outlet import Encoded
from echannel_ray.shared.copies import CopyInProcess, unpickled

_MOST_UNSENT = 64


class InlineHost(HostInProcess):
    """A modulator that runs in this process."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch)
        self._watch = Watch(branch.sink.admission.max_seconds_per_event)
        self._records: EmittedRecords | None = None  # on a typed channel
        self._links = [CopyInProcess(self, self._endpoint.sharing, ref) for ref in self._shipment.shared]
        self._due = False  # its period
        self.is_away = False
        self.direct_room = 0  # how many events `publish` may take now; set and taken away under the endpoint's lock
        self._seen_directly = 0
        self._enqueue_one: Callable[[Any], None]
        self._emitted: list[Any]
        self._unsent: list[Encoded] = []  # what it emitted then: sent many at a time, and before all else
        self._replica: Replica
        self._timer: Any = None

    @override
    def install(self) -> None:
        records = self._branch.publisher.records
        if records is not None:
            is_changed = self._branch.sink.branches.makes_outputs(self._branch.derived.parent)
            self._records = EmittedRecords(records, not is_changed)
            self._branch.outlet.encode = self._records.encode
        for link in self._links:
            link.attach()
        self._endpoint.watchdog.add(self._watch)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        self.queues = self._replica.queues
        period = self._replica.modulator.period_seconds
        if period is not None:
            self._timer = self._endpoint.timers.add(float(period), self._period_due)

    def _begin(self) -> None:
        self._watch.enter()
        try:
            _, modulator = unpickled(self._shipment, self._links)
            key = plain.canonical(modulator.key()) if overrides(modulator, "key") else None
        except BaseException as error:
            raise self._branch.refused(f"it can't be made here: {type(error).__name__}: {error}") from None
        finally:
            self._watch.leave()
        self._branch.check_key(key)
        replica = TracedReplica if switch.is_on else Replica
        self._replica = replica(modulator, Services(self._shipment.requires, self._call_service))
        self._watch.progress = self._replica.left
        self._enqueue_one = self._replica.enqueue_one
        self._emitted = self._replica.emitted

    @contextmanager
    def away(self) -> Iterator[None]:
        """The modulator waits for somebody else, who may wait for its copies of shared objects: those must not wait for
        the modulator.
        """
        self.is_away = True
        try:
            for link in self._links:
                link.release()
            yield
        finally:
            self.is_away = False

    def _call_service(self, name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.away():
            return self._branch.sink.grants.call_copied(name, method, args, kwargs)

    # ---- the short way of objects ----

    def publish(self, event: Any) -> bool:
        """Have the modulator see an event before it is serialised; False where it has to take the long way.

        `direct_room` is looked at under the mutex: who takes the room away (see `ConsumerSink.disarm`) waits for the
        mutex afterwards, and whoever has something to be done first takes it away.
        """
        mutex = self._mutex
        if not mutex.acquire(False):
            return False
        try:
            room = self.direct_room
            if room <= 0:
                return False
            self.direct_room = room - 1
            self._seen_directly += 1
            watch = self._watch
            watch.calls += 1
            watch.thread = get_ident()
            try:
                self._enqueue_one(event)
            except BaseException as error:  # the modulator's own, or the watchdog's
                watch.leave()
                self._encode(self._replica.take())
                self._send_unsent()
                self._broken(BrokenAt(-1, error), event)
                return True
            watch.thread = 0
            if watch.fired:
                watch.leave()
            if self._emitted:
                self._encode(self._replica.take())
            return True
        finally:
            mutex.release()

    def _encode(self, emitted: list[Any]) -> None:
        unsent = self._unsent
        for each in emitted:
            try:
                unsent.append(self._branch.outlet.encode(each))
            except errors.NotSerialisable as error:
                self._broken(BrokenAt(-1, error), each)
        if len(unsent) >= _MOST_UNSENT:
            self._send_unsent()
        elif emitted:
            self._endpoint.fed[self._branch] = None  # the ticker has it sent, at the latest

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            self._branch.emit_encoded(unsent)

    def seen_directly(self) -> int:
        """How many events came this way since the last time; under the endpoint's lock."""
        seen, self._seen_directly = self._seen_directly, 0
        self._branch.events_in += seen
        self._branch.savings.seen.add_unknown(seen)
        return seen

    # ---- working ----

    @override
    def _has_work(self) -> bool:
        return bool(self._branch.pending or self._updates or self._due or self._unsent)

    @override
    def _work(self) -> None:
        branch = self._branch
        while self._has_work() and not self._closed:
            self._send_unsent()
            self._apply_updates()
            if self._due:
                self._due = False
                self._call(self._replica.period, None)
            with self._endpoint.lock:
                branch.tell_dropped()
            try:
                chunk = branch.pending.popleft()
            except IndexError:
                continue
            try:
                self._enqueue(chunk)
            finally:
                with self._endpoint.lock:
                    branch.done(chunk)
        self._pump()

    def _enqueue(self, chunk: Chunk) -> None:
        if self._records is not None and chunk.payloads is not None:
            self._records.gets(chunk.kind)
        events = chunk.as_objects()
        if chunk.payloads is None and events:
            self._branch.savings.seen.look(events[0], self._branch.publisher.encode, time.monotonic())
        replica = self._replica
        while events and not self._closed:
            broken = self._call(replica.enqueue, chunk, events)
            if broken is None:
                return
            events = events[broken.index + 1 :]

    def _call(self, method: Callable[..., Any], chunk: Chunk | None, *arguments: Any) -> BrokenAt | None:
        """Call the modulator, and send what it emits; where it breaks, begin anew with another copy of it."""
        watch = self._watch
        broken: BrokenAt | None = None
        watch.enter()
        try:
            method(*arguments)
        except BrokenAt as error:
            broken = error
        except BaseException as error:  # the modulator's own, `sys.exit()` included, or the watchdog's
            broken = BrokenAt(-1, error)
        finally:
            watch.leave()
        event = arguments[0][broken.index] if broken is not None and arguments and broken.index >= 0 else NOTHING
        emitted = self._replica.take()
        try:
            self._emit(method, chunk, emitted)
        except errors.NotSerialisable:
            sendable = []
            for each in emitted:
                try:
                    self._branch.outlet.encode(each)
                    sendable.append(each)
                except errors.NotSerialisable as error:
                    if broken is None:  # it has seen all the events of the batch
                        broken, event = BrokenAt(len(arguments[0]) - 1 if arguments else -1, error), each
            self._emit(method, chunk, sendable)
        if broken is not None:
            self._broken(broken, event)
        return broken

    def _emit(self, method: Callable[..., Any], chunk: Chunk | None, emitted: list[Any]) -> None:
        if emitted and method == self._replica.period:
            self._branch.emit_unasked(emitted, are_objects=True)
        elif emitted:
            self._branch.emit_objects(emitted, chunk.emission if chunk is not None else None)

    def _broken(self, broken: BrokenAt, event: Any) -> None:
        branch = self._branch
        if isinstance(broken.cause, Overran):
            limit = branch.sink.admission.max_seconds_per_event
            branch.quarantine(f"it used more than {limit:g} s of CPU time for one event")
        elif branch.failed(str(broken), event):
            try:
                self._begin()
            except errors.EChannelError as error:
                branch.quarantine(str(error))
            else:
                return
        self._closed = True

    def _pump(self) -> None:
        """Send from the modulator's own queue, as far as there is room."""
        if not self.queues:
            return
        replica = self._replica
        while replica.waiting and not self._closed:
            count = self._branch.may_dequeue()
            if not count:
                return
            self._dequeue(count)

    def _dequeue(self, count: int) -> None:
        replica = self._replica
        self._watch.enter()
        try:
            taken = replica.dequeue(count)
        except BaseException as error:
            taken = []
            self._watch.leave()
            self._broken(BrokenAt(-1, error), NOTHING)
        finally:
            self._watch.leave()
        if taken:
            self._branch.emit_objects(taken)

    @override
    def pump(self) -> None:
        while self._replica.waiting and self._mutex.acquire(blocking=False):
            try:
                self._work()
            finally:
                self._mutex.release()
            if not self._branch.may_dequeue():
                return

    @property
    @override
    def waiting(self) -> int:
        return len(self._replica.waiting)

    @override
    def _work_off(self) -> None:
        self._work()
        if not self._closed:
            self._call(self._replica.flush, None)
        while self.queues and self._replica.waiting and not self._closed:
            self._dequeue(len(self._replica.waiting))

    def _period_due(self) -> None:
        self._due = True
        self.direct_room = 0
        self.advance()

    @override
    def close(self) -> None:
        self._closed = True
        self._endpoint.watchdog.remove(self._watch)
        if self._timer is not None:
            self._endpoint.timers.remove(self._timer)
        for link in self._links:
            link.detach()

    @override
    def _update_soon(self) -> None:
        self.direct_room = 0
        super()._update_soon()
