"""One sandbox as its producer sees it: what is sent to it, what is made of its answers, and its end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from echannel_ray.core.kinds import BUFFERS
from echannel_ray.formats import plain
from echannel_ray.modulation.admission import Admission
from echannel_ray.sandbox import messages
from echannel_ray.sandbox.area import AREA_BYTES, sealed_copy
from echannel_ray.sandbox.line import SandboxLine
from echannel_ray.sandbox.message_check import Granted, MessageCheck
from echannel_ray.sandbox.meter import Meter, Task, max_install_seconds
from echannel_ray.sandbox.owner import SandboxFailed, SandboxOwner, SandboxUnavailable
from echannel_ray.sandbox.warden import Warden

_START_SECONDS: Final = 60.0  # on a busy machine, with much to import

_encode_batch: Final = msgspec.msgpack.Encoder().encode


class Sandbox:
    """A process for one modulator. Made locked down; `install` comes next, then batches, one at a time.

    The owner is called from when `install` has returned until `ended` or `close`. Any thread may call any method.
    """

    def __init__(self, owner: SandboxOwner, warden: Warden, limits: Admission, name: str) -> None:
        self.name = name
        self.limits = limits
        self.layers: tuple[str, ...] = ()
        self._warden = warden
        self._lock = threading.Lock()
        self._message_check = MessageCheck(owner, limits.max_memory_bytes, self.refuse)
        self._is_over = False  # ended or closed: no more callbacks
        self._reason = ""
        self._overran = False
        spare = warden.take(limits.modules, limits.max_memory_bytes, _START_SECONDS)
        self._area = spare.area
        self._progress = spare.progress
        self._process = spare.process
        self.pid = spare.pid
        self.line = SandboxLine(spare.socket, lambda wanted: warden.want_room(self, wanted))
        self._meter = Meter(self.pid, limits, self._progress)
        self._begin(Task(0, 1, _START_SECONDS))
        self.on_readable()  # one that was shut in ahead has said so: then the warden's thread need not wake for it
        if not self._is_over:
            warden.watch(self)
        reply = self._wait(_START_SECONDS)
        if not isinstance(reply, messages.Ready):
            self.close()
            reason = reply.reason if isinstance(reply, messages.Unavailable) else self._reason
            raise SandboxUnavailable(reason)
        if not self._meter.works():
            self.close()
            raise SandboxUnavailable("the kernel does not tell the CPU time of other processes")
        self.layers = tuple(reply.layers)

    # ---- what it is asked for --------------------------------------------------------------------------------------

    def install(
        self,
        code: bytes,
        services: Granted,
        shared: Sequence[tuple[int, dict[str, Any]]],
        wants_key: bool,
        timeout: float,
    ) -> messages.InstallDone:
        """Have it unpickle `code`, a pair of class and modulator. Blocks; `SandboxFailed` says why that was impossible.

        `shared` are version and fields of the shared objects, by index. Not for the warden's thread.
        """
        encoded = [(version, plain.encode(fields)) for version, fields in shared]
        self._message_check.expect(services, len(shared))
        self._begin(Task(0, 1, max_install_seconds(self.limits)))
        self._send(messages.Install(code, [*services], encoded, wants_key))
        reply = self._wait(timeout)
        self._warden.refill(self.limits.modules)
        if isinstance(reply, messages.InstallDone):
            return reply
        if isinstance(reply, messages.InstallFailed):
            raise SandboxFailed(reply.description)
        raise SandboxFailed(self._reason, overran=self._overran)

    def submit(
        self,
        number: int,
        kinds: bytes,
        payloads: Sequence[Any],
        originals: tuple[Sequence[int], Sequence[Any]] | None = None,
    ) -> None:
        """Have it work on a batch of encoded events; one at a time. `emitted`, `failed` or `ended` follows.

        `originals` are the kinds and payloads that stand for those that pass, where they are not what it is to see.
        """
        if BUFFERS in kinds:
            data = _encode_batch((kinds, [b"".join(each) if type(each) is list else each for each in payloads]))
        else:
            data = _encode_batch((kinds, payloads))
        self._begin(
            Task(number, max(len(payloads), 1), self.limits.max_seconds_per_event, originals or (kinds, payloads), True)
        )
        if len(data) > AREA_BYTES:
            self._send(messages.Batch(number, len(data)), [sealed_copy(data)])
        else:
            self._area.write(data)
            self._send(messages.Batch(number, len(data)))

    def dequeue(self, number: int, count: int) -> None:
        """The transport can take so many of what waits there; `emitted` follows, as for a batch."""
        self._begin(Task(number, max(count, 1), self.limits.max_seconds_per_event, (b"", ())))
        self._send(messages.Dequeue(number, count))

    def flush(self, number: int) -> None:
        """Have it emit what it holds back; `emitted` follows, as for a batch."""
        self._begin(Task(number, 1, self.limits.max_seconds_per_event, (b"", ())))
        self._send(messages.Flush(number))

    def restart(self) -> None:
        """Have it make a new modulator of what was installed, in the same process, after a failure."""
        self._message_check.expect_restart()
        self._meter.allow_making()
        self._send(messages.Restart())

    def update_shared(self, index: int, version: int, fields: dict[str, Any]) -> None:
        """A shared object has changed; `shared_updated` follows when its copy there has too."""
        message = messages.UpdateShared(index, version, plain.encode(fields))
        self._message_check.expect_update()
        self._meter.allow_more()
        self._send(message)

    def answer(self, call: int, value: Any) -> None:
        """Answer a call with what it returned: plain data, else the call fails there."""
        try:
            data = plain.encode(value)
        except plain.NotPlain as error:
            self.refuse(call, TypeError(f"the result of a call must be plain data: {error}"))
            return
        self._message_check.end_call(call)
        self._send(messages.CallReturned(call, data))

    def refuse(self, call: int, error: BaseException) -> None:
        """Answer a call with what it raised."""
        self._message_check.end_call(call)
        self._send(messages.take_apart(call, error))

    def close(self) -> None:
        """End the process. No callback begins after this."""
        self._finish("it was closed", False)

    @property
    def is_busy(self) -> bool:
        """Whether a batch, `flush` or `dequeue` is still to be answered."""
        return self._message_check.task is not None

    # ---- for the warden --------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self.line.fileno()

    def on_readable(self) -> None:
        """Read what the sandbox has sent."""
        try:
            for message in self.line.read():
                if self._is_over:
                    return
                if isinstance(message, messages.Outcome):
                    self._message_check.handle(message)
                else:  # what reading a call costs here is charged to who made it: its arguments may be made to be slow
                    begun = time.thread_time()
                    self._message_check.handle(message)
                    self._meter.charge(time.thread_time() - begun)
        except messages.Violation as violation:
            self.end(f"it broke the protocol: {violation}", False)
        except EOFError as end:
            self.end(str(end), False)

    def look(self, now: float) -> None:
        """End it where it does not keep its limits."""
        try:
            reason = self._meter.look(now, self._message_check.task, self._message_check.installed)
        except Exception as error:  # what can't be watched does not run
            reason = f"it can't be watched: {error!r}"
        if reason is not None:
            self.end(reason, True)

    def end(self, reason: str, overran: bool) -> None:
        """Kill the process, and tell the owner; on the warden's thread."""
        begun, _ = self._progress.read()
        if self._finish(reason, overran):
            self._message_check.tell_end(begun, reason, overran)

    def abandon(self) -> None:
        """Close what was inherited, in the child of a fork, and leave the process to the parent."""
        self._is_over = True
        self.line.abandon()
        os.close(self._process)

    # ---- its life --------------------------------------------------------------------------------------------------

    def _begin(self, task: Task) -> None:
        with self._lock:
            if self._message_check.task is not None:
                raise RuntimeError(f"{self.name} has not answered what it was asked before")
            self._message_check.reply = None
            self._message_check.news.clear()
            self._message_check.task = task
            self._meter.begin_task()
            if self._is_over:
                self._message_check.news.set()
        self._warden.wake()

    def _send(self, message: messages.Downward, descriptors: Sequence[int] = ()) -> None:
        try:
            self.line.send(message, descriptors)
        except BufferError as error:
            reason = str(error)
            self._warden.post(lambda: self.end(reason, True))

    def _wait(self, timeout: float) -> messages.Upward | None:
        if not self._message_check.news.wait(timeout):
            self._finish(f"it did not answer within {timeout:g} s", True)
        return self._message_check.reply

    def _finish(self, reason: str, overran: bool) -> bool:
        """Kill it, and give everything back; False where that was done before."""
        with self._lock:
            if self._is_over:
                return False
            self._is_over = True
            self._reason = reason
            self._overran = overran
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended
        self._warden.unwatch(self)
        self.line.close()
        os.close(self._process)
        self._area.close()
        self._progress.close()
        self._message_check.forget()
        return True
