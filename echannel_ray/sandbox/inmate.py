"""What runs inside a sandbox, one thread: it is locked down, unpickles what was shipped, and works on batches.

All of this shares its process with the code that it runs, which can change any of it: nothing here protects anybody.
"""

from __future__ import annotations

import array
import gc
import time
from typing import Any, Final

import cloudpickle
import msgspec
from typing_extensions import override

from echannel_ray.formats import events as formats
from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Modulator, overrides
from echannel_ray.modulation.replica import Replica
from echannel_ray.modulation.services import Services
from echannel_ray.sandbox import lockdown, messages
from echannel_ray.sandbox.area import AREA_BYTES, map_area, map_progress, read_apart
from echannel_ray.sandbox.classes import Classes, CodeUnpickler
from echannel_ray.sandbox.emissions import SCALARS, Data, Holdings, describe, encode
from echannel_ray.sandbox.port import Port, SandboxLink

_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, list[Any]]).decode


class _Rehearsed(Modulator):
    @override
    def enqueue(self, event: Any) -> None:
        self.emit(event)


_rehearsed: list[bytes] = []  # what is installed in a rehearsal: a class by value, as a modulator's is


def rehearse() -> None:
    """Do once what installing does. The first time it imports what it needs; the first time in a process that was
    forked it copies the memory that it touches, which would take longer than all the rest.
    """
    if not _rehearsed:
        made = type("Rehearsed", (_Rehearsed,), {"__module__": "__main__", "flush": lambda self: None})
        _rehearsed.append(cloudpickle.dumps((made, made())))
    sent = messages.frame(messages.Install(_rehearsed[0], [], [], False))
    install = messages.read_down(*messages.MessageAssembly(len(sent)).feed(sent))
    assert isinstance(install, messages.Install)
    unpickler = CodeUnpickler(install.code, lambda index, cls: None)
    _, modulator = unpickler.load()
    classes = Classes()
    classes.plant(unpickler.made)
    replica = Replica(modulator, Services((), lambda *_: None))
    replica.enqueue([None])
    describe(0, [None], replica.take(), Holdings())
    messages.frame(messages.InstallDone(replica.queues, False, None, None))
    classes.forget()
    gc.collect()


def serve(descriptor: int, layers: list[str], memory_in_use: int) -> None:
    """Wait until somebody wants this sandbox, lock it down, and serve."""
    port = Port(descriptor)
    start = port.receive()
    if not isinstance(start, messages.Start):
        return
    area = map_area(port.descriptors.popleft())
    progress = map_progress(port.descriptors.popleft())
    try:
        layers += lockdown.lock(memory_in_use + AREA_BYTES + start.max_memory_bytes)
    except Exception as error:
        port.send(messages.Unavailable(messages.text_of(error)))
        return
    port.send(messages.Ready(layers))
    Inmate(port, area, progress, start.max_memory_bytes).run()


class Inmate:
    """Does what the producer asks for, one thing after the other, and runs the modulator's timer in between."""

    def __init__(self, port: Port, area: memoryview, progress: memoryview, max_memory_bytes: int) -> None:
        self._port = port
        self._area = area
        self._progress = progress  # [the item that was begun last, what was done besides]
        self._max_memory_bytes = max_memory_bytes
        self._classes = Classes()
        self._holdings = Holdings()
        self._given: set[int] = set()  # ids of the events of this batch
        self._shared: dict[int, tuple[int, dict[str, Any]]] = {}
        self._copies: dict[int, Any] = {}
        self._installed: messages.Install | None = None
        self._replica: Replica | None = None
        self._is_used = False  # something was made in this process before
        self._period: float | None = None
        self._due = 0.0

    def run(self) -> None:
        """Serve the producer until it closes the socket."""
        while True:
            timeout = None
            if self._period is not None and self._replica is not None:
                timeout = self._due - time.monotonic()
            if timeout is not None and timeout <= 0:
                self._run_period()
            elif (message := self._port.receive(timeout)) is not None:
                self._perform(message)
            else:
                continue
            self._progress[1] = (self._progress[1] + 1) & 0xFFFFFFFF

    def _perform(self, message: messages.Downward) -> None:
        if isinstance(message, messages.Batch):
            self._work_on(message)
        elif isinstance(message, messages.Dequeue):
            self._dequeue(message)
        elif isinstance(message, messages.Flush):
            self._attempt(message.number, lambda replica: replica.flush())
        elif isinstance(message, messages.UpdateShared):
            self._update(message)
        elif isinstance(message, messages.Install):
            self._install(message)
        elif isinstance(message, messages.Restart):
            self._restart()

    # ---- installing ------------------------------------------------------------------------------------------------

    def _install(self, message: messages.Install) -> None:
        self._installed = message
        self._shared = dict(enumerate((version, plain.decode(fields)) for version, fields in message.shared))
        try:
            modulator = self._make()
            key = None
            if message.wants_key and overrides(modulator, "key"):
                key = plain.canonical(modulator.key())
                if len(key) > messages.MAX_CALL_BYTES:
                    raise ValueError(f"a key of {len(key):,} bytes: the limit is {messages.MAX_CALL_BYTES:,}")
            assert self._replica is not None
            period = modulator.period_seconds
            if period is not None:
                period = max(messages.MIN_PERIOD_SECONDS, float(period))  # in this order: of NaN it makes the least
                period = self._period = min(period, messages.MAX_PERIOD_SECONDS)
                self._due = time.monotonic() + period
            done = messages.InstallDone(self._replica.queues, overrides(modulator, "flush"), period, key)
        except BaseException as error:
            self._port.send(messages.InstallFailed(explain(error, self._max_memory_bytes)))
            return
        self._port.send(done)

    def _make(self) -> Modulator:
        """A new modulator, and its replica, from what was shipped."""
        assert self._installed is not None
        if self._is_used:
            self._replica = None
            self._holdings.clear()
            self._copies.clear()
            self._classes.forget()
            # A modulator and its replica refer to each other, as do an error and the frames that it has passed: without
            # this the memory of the old one would count against the new one.
            gc.collect()
        self._is_used = True
        unpickler = CodeUnpickler(self._installed.code, self._copy)
        _, modulator = unpickler.load()
        self._classes.plant(unpickler.made)
        if not isinstance(modulator, Modulator):
            raise TypeError(f"what was shipped is no modulator, but a {type(modulator).__qualname__}")
        replica = Replica(modulator, Services(self._installed.services, self._port.call_service))
        if not replica.queues:
            modulator.emit = self._emitter(replica.emitted)  # type: ignore[method-assign]
        self._replica = replica
        return modulator

    def _copy(self, index: int, cls: Any) -> Any:
        if index not in self._copies:
            version, fields = self._shared[index]
            self._copies[index] = cls._echannel_copy(version, fields, SandboxLink(self._port, index))
        return self._copies[index]

    def _restart(self) -> None:
        try:
            self._make()
        except BaseException as error:
            self._port.send(self._failure(0, -1, [], error))

    def _update(self, message: messages.UpdateShared) -> None:
        fields = plain.decode(message.fields)
        self._shared[message.index] = (message.version, fields)
        copy = self._copies.get(message.index)
        try:
            if copy is not None:
                copy._echannel_update(message.version, fields)
        except BaseException as error:
            self._port.send(self._failure(0, -1, [], error))
        self._port.send(messages.Updated(message.index, message.version))

    # ---- working ---------------------------------------------------------------------------------------------------

    def _emitter(self, emitted: list[Any]) -> Any:
        """`Modulator.emit`: what could change afterwards is taken as it is now."""
        append = emitted.append
        given = self._given
        held = self._holdings.handles

        def emit(event: Any) -> None:
            if type(event) in SCALARS or id(event) in given or id(event) in held:
                append(event)
            else:
                append(Data(encode(event)))

        return emit

    def _work_on(self, batch: messages.Batch) -> None:
        replica = self._replica
        if replica is None:
            self._port.send(self._failure(batch.number, 0, [], RuntimeError("nothing is installed")))
            return
        events: list[Any] = []
        index = -1
        try:
            if batch.size > AREA_BYTES:
                data: bytes | memoryview = read_apart(self._port.descriptors.popleft(), batch.size)
            else:
                data = self._area[: batch.size]
            is_plain, error = read_batch(data, events)
            index = len(events)  # where it failed, if it did
            if not is_plain:
                self._given.update(map(id, events))
            enqueue = replica.modulator.enqueue
            progress = self._progress
            try:
                for progress[0], event in enumerate(events):
                    enqueue(event)
            except BaseException as raised:
                error = raised
                index = progress[0]
            finally:
                progress[0] = 0
                event = None
                replica.keep_emitted()
            outcome = self._describe(batch.number, events, replica, error, index)
        except BaseException as raised:  # such as a lack of memory
            replica.emitted.clear()
            outcome = self._failure(batch.number, max(index, 0), [], raised)
        if outcome.failure is None and not is_plain:
            outcome.keeps = self._holdings.keep(events).tobytes()
            outcome.drops = self._holdings.sweep()
        self._given.clear()
        self._port.send(outcome)

    def _describe(
        self, number: int, events: list[Any], replica: Replica, error: BaseException | None, index: int
    ) -> messages.Outcome:
        if error is not None:
            outcome = self._failure(number, index, replica.take(), error, events)
        else:
            outcome = describe(number, events, replica.take(), self._holdings)
            if outcome.failure is not None:
                outcome.index = max(len(events) - 1, -1)
        outcome.waiting = len(replica.waiting)
        return outcome

    def _attempt(self, number: int, work: Any) -> None:
        replica = self._replica
        if replica is None:
            self._port.send(self._failure(number, -1, [], RuntimeError("nothing is installed")))
            return
        error: BaseException | None = None
        try:
            work(replica)
        except BaseException as raised:
            error = raised
        try:
            outcome = self._describe(number, (), replica, error, -1)  # type: ignore[arg-type]
        except BaseException as raised:
            outcome = self._failure(number, -1, [], raised)
        if outcome.failure is None:
            outcome.drops = self._holdings.sweep()
        self._port.send(outcome)

    def _dequeue(self, message: messages.Dequeue) -> None:
        def work(replica: Replica) -> None:
            taken: list[Any] = []
            try:
                for self._progress[0] in range(message.count):
                    if not replica.waiting:
                        break
                    taken += replica.dequeue(1)
            finally:
                self._progress[0] = 0
                replica.emitted += taken

        self._attempt(message.number, work)

    def _run_period(self) -> None:
        assert self._period is not None
        self._attempt(0, lambda replica: replica.period())
        # Not `due + period`: what was late is not made up for.
        self._due = time.monotonic() + self._period

    def _failure(
        self, number: int, index: int, emitted: list[Any], error: BaseException, events: Any = ()
    ) -> messages.Outcome:
        """What was emitted before it failed, as far as that can be said."""
        try:
            outcome = describe(number, events, emitted, self._holdings)
        except BaseException:
            outcome = messages.Outcome(number, index, False, b"", [], [], b"", [], 0, None)
        if outcome.passed:  # those before the failure, not all of the batch
            outcome.passed = False
            outcome.picks = array.array("I", range(len(events))).tobytes()
        outcome.index = index
        outcome.failure = explain(error, self._max_memory_bytes)[: messages.MAX_TEXT]
        return outcome


def read_batch(data: bytes | memoryview, events: list[Any]) -> tuple[bool, BaseException | None]:
    """Fill `events`, up to the first that can't be decoded: whether all are scalars, and the error of that one."""
    kinds, payloads = _decode(data)
    if not kinds.strip(b"\0"):
        events += payloads
        return True, None
    decode = formats.decode
    add = events.append
    try:
        for kind, payload in zip(kinds, payloads, strict=True):
            add(decode(kind, payload))
    except BaseException as error:
        return False, CannotDecode(error)
    return False, None


class CannotDecode(Exception):
    """Stands for an event that this process can't make again (`.cause`)."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("the event can't be decoded in the sandbox")
        self.cause = cause


def explain(error: BaseException, max_memory_bytes: int) -> str:
    """What a consumer reads of an error in its modulator."""
    if isinstance(error, CannotDecode):
        return f"{messages.text_of(error)}: {explain(error.cause, max_memory_bytes)}"
    text = ": ".join(filter(None, (type(error).__name__, messages.text_of(error))))
    if isinstance(error, MemoryError):
        text += f" (it needed more than max_memory_bytes, {round(max_memory_bytes / (1 << 20), 1):,g} MiB)"
    if isinstance(error, ImportError | PermissionError):
        name = getattr(error, "name", None) or "what it imports"
        text += f" (a sandbox reaches no files; list {name} in the producer's Admission(modules=...) to have it there)"
    return text
