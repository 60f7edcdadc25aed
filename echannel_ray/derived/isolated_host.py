"""Modulators that run in a sandbox beside the producer: one batch at a time is there, the rest waits here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.core.kinds import token_of
from echannel_ray.derived.branch import Branch, Chunk
from echannel_ray.derived.host import Host
from echannel_ray.endpoint.crew import Job
from echannel_ray.endpoint.deadlines import seconds_left
from echannel_ray.formats import plain
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.sandbox.owner import SandboxFailed, SandboxOwner, SandboxUnavailable
from echannel_ray.sandbox.process import Sandbox
from echannel_ray.shared.copies import ALL_VERSIONS, CopyInSandbox

_MAX_BATCH_EVENTS = 1000
_MAX_BATCH_BYTES = 768 << 10
_INSTALL_SECONDS = 30.0


class IsolatedHost(Host, SandboxOwner):
    """A modulator in its sandbox, whose owner this is: the methods of an owner run on the warden's thread."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._endpoint = branch.endpoint
        self._shipment = branch.derived.shipment
        self._shared = [
            CopyInSandbox(self, self._endpoint.sharing, index, ref) for index, ref in enumerate(self._shipment.shared)
        ]
        self.sandbox: Sandbox
        self._calm = threading.Condition(branch.mutex)  # `quiesce` waits here
        # Under the branch's mutex:
        self._batch: list[Chunk] = []  # what the sandbox works on
        self._offset = 0  # of its events, those that it has seen before it failed
        self._number = 0  # of what was asked last
        self._busy = False
        self._asked_to_flush = False
        self._holds_back = True
        self._waiting = 0  # in the modulator's own queue
        self._closed = False
        self.is_away = False  # while the modulator waits for an answer

    @override
    def install(self) -> None:
        shipment = self._shipment
        branch = self._branch
        with contextlib.ExitStack() as undoing:
            undoing.callback(self._detach)
            for shared in self._shared:
                shared.attach()
            try:
                self.sandbox = Sandbox(self, self._endpoint.warden, branch.sink.admission, shipment.name)
                undoing.callback(self.sandbox.close)
                granted = {name: branch.sink.grants.grant(name) for name in shipment.requires}
                installed = self.sandbox.install(
                    shipment.code,
                    granted,
                    [shared.state for shared in self._shared],
                    wants_key=shipment.key is not None,
                    timeout=_INSTALL_SECONDS,
                )
            except (SandboxFailed, SandboxUnavailable) as error:
                raise branch.refused(str(error)) from None
            branch.check_key(installed.key)
            undoing.pop_all()
        self.queues = installed.queues
        self._holds_back = installed.holds_back
        for shared in self._shared:
            shared.installed()

    def _detach(self) -> None:
        for shared in self._shared:
            shared.detach()

    # ---- working ----

    @override
    def advance(self) -> None:
        if self._branch.pending and not self._busy:
            with self._branch.mutex:
                self._submit()

    def _submit(self) -> None:
        """Give the sandbox what waits, if it has nothing to do; under the mutex."""
        pending = self._branch.pending
        if self._busy or self._closed or not pending:
            return
        if pending[0].dropped:
            with self._endpoint.lock:
                self._branch.tell_dropped()
            if not pending:
                return
        batch = [pending.popleft()]
        events, size = len(batch[0]), batch[0].size_bytes
        # A delivered event is alone, so that what comes back is known to be its.
        while pending and batch[0].emission is None and pending[0].emission is None and not pending[0].dropped:
            events, size = events + len(pending[0]), size + pending[0].size_bytes
            if events > _MAX_BATCH_EVENTS or size > _MAX_BATCH_BYTES:
                break
            batch.append(pending.popleft())
        self._batch, self._offset = batch, 0
        self._send()

    def _send(self) -> None:
        """Have the sandbox see the batch, from `_offset` on."""
        kinds, payloads = _as_batch(self._batch)
        originals = _originals(self._batch)
        if self._offset:
            kinds, payloads = kinds[self._offset :], payloads[self._offset :]
            originals = originals and (originals[0][self._offset :], originals[1][self._offset :])
        self.sandbox.submit(self._next_number(), kinds, payloads, originals)

    def _next_number(self) -> int:
        """The number of what the sandbox is asked next; it is busy with that."""
        self._busy = True
        self._number += 1
        return self._number

    def _finish(self) -> None:
        """The batch is done with, in one way or another; under the mutex."""
        self._busy = False
        batch, self._batch = self._batch, []
        if batch:
            with self._endpoint.lock:
                for chunk in batch:
                    self._branch.done(chunk)

    def _go_on(self) -> None:
        """Do what is next, under the mutex: more events, what may be sent, or a flush."""
        self._submit()
        if not self._busy and not self._closed and self._waiting:
            count = self._waiting if self._asked_to_flush else self._branch.may_dequeue()
            if count:
                self.sandbox.dequeue(self._next_number(), count)
        if not self._busy:
            self._calm.notify_all()

    @override
    def pump(self) -> None:
        if self._waiting and not self._busy:
            with self._branch.mutex:
                self._go_on()

    @property
    @override
    def waiting(self) -> int:
        return self._waiting

    @override
    def quiesce(self, deadline: float | None) -> bool:
        with self._branch.mutex:
            self._go_on()
            if not self._wait_until_calm(deadline):
                return False
            if self._closed or not self._holds_back:
                return True  # to ask a process takes as long as all else of a cut
            self._asked_to_flush = True
            try:
                self.sandbox.flush(self._next_number())
                return self._wait_until_calm(deadline)
            finally:
                self._asked_to_flush = False

    def _wait_until_calm(self, deadline: float | None) -> bool:
        # The sandbox answers, or is ended for its limits: this comes to an end.
        return self._calm.wait_for(self._is_calm, seconds_left(deadline))

    def _is_calm(self) -> bool:
        waits = self._branch.pending or (self._asked_to_flush and self._waiting)
        return self._closed or not (self._busy or waits)

    @override
    def close(self) -> None:
        with self._branch.mutex:
            self._end()
        self.sandbox.close()
        self._detach()

    def _end(self) -> None:
        self._closed = True
        self._finish()
        self._calm.notify_all()

    # ---- what the sandbox says ----

    @override
    def emitted(self, number: int, outputs: list[tuple[int, Any]], waiting: int) -> None:
        with self._branch.mutex:
            if self._closed:
                return
            self._waiting = waiting
            emission = self._batch[0].emission if number and self._batch else None
            try:
                if outputs and number:
                    self._branch.emit_payloads(outputs, emission)
                elif outputs:
                    self._branch.emit_unasked(outputs, are_objects=False)
            finally:  # whatever an event's own class does when it is read: the next batch has its turn
                if number:
                    self._finish()
                self._go_on()

    @override
    def failed(self, number: int, index: int, outputs: list[tuple[int, Any]], waiting: int, description: str) -> None:
        branch = self._branch
        with branch.mutex:
            if self._closed:
                return
            self._waiting = waiting
            if outputs:
                branch.emit_payloads(outputs, self._batch[0].emission if self._batch else None)
            if index < 0 and self._waiting:
                description += f"; {self._waiting} events that waited in its queue are lost too"
            at = self._offset + index if index >= 0 else -1
            event = self._event_at(at)
            if not branch.failed(description, event):
                self._end()
                return
            self.sandbox.restart()
            self._waiting = 0
            self._go_on_behind(at)

    def _go_on_behind(self, at: int) -> None:
        """Have the rest of the batch seen, behind the event at which it failed (-1: at none of these)."""
        if 0 <= at < sum(map(len, self._batch)) - 1:
            self._offset = at + 1
            self._send()
        else:
            self._finish()
            self._go_on()

    @override
    def ended(self, number: int, index: int, reason: str, overran: bool) -> None:
        # Another sandbox may have to start, which takes its time.
        self._endpoint.crew.submit(Job(self._ended, index, reason, overran))

    def _ended(self, index: int, reason: str, overran: bool) -> None:
        branch = self._branch
        with branch.mutex:
            if self._closed:
                return
            if overran:
                branch.quarantine(reason)
            else:
                at = self._offset + index if index >= 0 else -1
                if branch.failed(reason, self._event_at(at)) and self._begin_anew():
                    self._go_on_behind(at)
                    return
            self._end()

    def _begin_anew(self) -> bool:
        """Have another sandbox, unless it fails too often. Who publishes finds us busy meanwhile, and does not wait."""
        self._busy = True
        self._waiting = 0
        while True:
            self._detach()
            try:
                self.install()
            except errors.EChannelError as error:
                if not self._branch.failed(str(error), NOTHING):
                    return False
            else:
                self._busy = False
                return True

    def _event_at(self, index: int) -> Any:
        """The event at an index of the batch, to be shown; those that this process made."""
        for chunk in self._batch if index >= 0 else ():
            if index < len(chunk):
                try:
                    return chunk.as_objects()[index]
                except Exception as error:  # of the event's own class
                    return error
            index -= len(chunk)
        return NOTHING

    @override
    def called(self, call: int, service: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._serve(call, self._call_service, service, method, args, kwargs)

    def _call_service(self, service: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = self._branch.sink.grants.call(service, method, args, kwargs)
        plain.encode(result)  # which raises where it is no plain data
        return result

    @override
    def shared_published(self, call: int, index: int, fields: dict[str, Any], expected_version: int | None) -> None:
        ref = self._shipment.shared[index]
        self._serve(call, self._endpoint.sharing.publish, ref, fields, expected_version)

    @override
    def shared_pulled(self, call: int, index: int) -> None:
        self._serve(call, self._endpoint.sharing.pull, self._shipment.shared[index])

    def _serve(self, call: int, function: Callable[..., Any], *arguments: Any) -> None:
        """The modulator waits for somebody who may wait for its copies of shared objects: see `InlineHost.away`."""
        self.is_away = True
        for shared in self._shared:
            shared.updated(ALL_VERSIONS)
        self._endpoint.crew.submit(Job(self._answer, self.sandbox, call, function, *arguments))

    def _answer(self, sandbox: Sandbox, call: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Answer who asked: there may be another sandbox by now, with calls of the same numbers."""
        try:
            answer = function(*arguments)
        except Exception as error:  # of the user's handle, or of the master
            self.is_away = False
            sandbox.refuse(call, error)
        else:
            self.is_away = False
            sandbox.answer(call, answer)

    @override
    def shared_updated(self, index: int, version: int) -> None:
        self._shared[index].updated(version)


def _originals(chunks: list[Chunk]) -> tuple[list[int], list[Any]] | None:
    """What goes out for the events of a batch if they pass; None where that is what the sandbox sees."""
    if not any(token_of(chunk.kind) for chunk in chunks):
        return None
    kinds: list[int] = []
    payloads: list[Any] = []
    for chunk in chunks:
        chunk_kinds, more = chunk.originals()
        kinds += chunk_kinds
        payloads += more
    return kinds, payloads


def _as_batch(chunks: list[Chunk]) -> tuple[bytes, list[Any]]:
    if len(chunks) == 1:
        return chunks[0].as_payloads()
    parts = [chunk.as_payloads() for chunk in chunks]
    return b"".join(kinds for kinds, _ in parts), [payload for _, payloads in parts for payload in payloads]
