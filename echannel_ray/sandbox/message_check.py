"""What a producer makes of the messages of a sandbox: each is held against what the sandbox was asked for.

What fits goes to the owner; everything else is a `Violation`. Nothing is trusted: not numbers, not counts, not order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from echannel_ray.formats import plain
from echannel_ray.sandbox import messages
from echannel_ray.sandbox.given_payloads import GivenPayloads
from echannel_ray.sandbox.meter import Task
from echannel_ray.sandbox.owner import SandboxOwner

_UNASKED: Final = 16  # how often `period` may answer before its time counts

_log = logging.getLogger(__name__)

Granted = Mapping[str, frozenset[str]]  # the methods of each service that may be called


class MessageCheck:
    """What one sandbox was asked for, and its answers. `handle` runs on the warden's thread, the rest on any."""

    def __init__(self, owner: SandboxOwner, max_held_bytes: int, refuse: Callable[[int, Exception], None]) -> None:
        self.task: Task | None = None
        self.installed: messages.InstallDone | None = None
        self.reply: messages.Upward | None = None  # to what is waited for, outside `Outcome`
        self.news = threading.Event()
        self._owner = owner
        self._refuse = refuse
        self._given = GivenPayloads(max_held_bytes)
        self._services: Granted = {}
        self._shared = 0
        self._outstanding: int | None = None  # the call that the sandbox waits for
        self._lock = threading.Lock()
        self._updates = 0  # that it has not confirmed
        self._installed_at = 0.0
        self._unasked = 0
        self._restarts = 0

    def expect(self, services: Granted, shared: int) -> None:
        """Note what the sandbox may call, and how many shared objects there are."""
        self._services = services
        self._shared = shared

    def expect_update(self) -> None:
        """Note that an update of a shared object is being sent."""
        with self._lock:
            self._updates += 1

    def expect_restart(self) -> None:
        """Note that a new modulator is made, which holds nothing of what the old one held."""
        self._given.clear()
        self._restarts += 1

    def end_call(self, call: int) -> None:
        """Note that a call is being answered."""
        if self._outstanding == call:
            self._outstanding = None

    def forget(self) -> None:
        """Give the payloads back: the sandbox is over."""
        self._given.clear()
        self.news.set()

    def handle(self, message: messages.Upward) -> None:
        """Tell the owner of a message, or raise `Violation`."""
        if isinstance(message, messages.Outcome):
            self._handle_outcome(message)
        elif isinstance(message, messages.CallService):
            self._handle_call(message)
        elif isinstance(message, messages.PublishShared | messages.Pull):
            self._handle_shared(message)
        elif isinstance(message, messages.Updated):
            if message.index >= self._shared or not self._updates:
                raise messages.Violation("an update that there was not")
            with self._lock:
                self._updates -= 1
            self._tell(self._owner.shared_updated, message.index, message.version)
        else:
            task = self.task
            if self.installed is not None or task is None or task.events is not None:
                raise messages.Violation("an answer that nobody waits for")
            if isinstance(message, messages.InstallDone):
                self._accept(message)
            self.reply = message
            self.task = None
            self.news.set()

    def tell_end(self, begun: int, reason: str, overran: bool) -> None:
        """Tell the owner that the process is gone."""
        task = self.task
        if self.installed is not None:
            index = begun if task is not None and task.is_batch and begun < task.count else -1
            self._tell(self._owner.ended, 0 if task is None else task.number, index, reason, overran)

    def _handle_outcome(self, message: messages.Outcome) -> None:
        task = self.task
        if self.installed is None:
            raise messages.Violation("an answer before it was installed")
        if message.number == 0:
            self._count_unasked(message, self.installed)
            outputs, missing = self._given.resolve(message, b"", ())
        elif task is None or task.number != message.number or task.events is None:
            raise messages.Violation("an answer that nobody waits for")
        elif message.index >= task.count:
            raise messages.Violation("it failed at an event that there was not")
        else:
            outputs, missing = self._given.resolve(message, *task.events)
            self.task = None
        failure = message.failure
        if missing and failure is None:
            failure = "it emitted an event that it had held longer than max_memory_bytes allows"
        if failure is None:
            self._tell(self._owner.emitted, message.number, outputs, message.waiting)
        else:
            self._tell(self._owner.failed, message.number, message.index, outputs, message.waiting, failure)

    def _count_unasked(self, message: messages.Outcome, installed: messages.InstallDone) -> None:
        """Count what a period emits; `Violation` where that is more than its timer allows."""
        if message.index != -1:
            raise messages.Violation("it failed at an event that there was not")
        self._unasked += 1
        elapsed = time.monotonic() - self._installed_at
        periods = elapsed / installed.period_seconds if installed.period_seconds else 0
        if self._unasked > _UNASKED + periods + self._restarts:
            raise messages.Violation("it answers what was not asked")

    def _handle_call(self, message: messages.CallService) -> None:
        self._begin_call(message.call)
        if message.service not in self._services:
            raise messages.Violation("a call of a service that it was not granted")
        methods = self._services[message.service]
        arguments = _read_plain(message.arguments)
        if type(arguments) is not list or [type(each) for each in arguments] != [list, dict]:
            raise messages.Violation("arguments that are none")
        args, kwargs = arguments
        if not all(type(name) is str for name in kwargs):
            raise messages.Violation("arguments that are none")
        if message.method.startswith("_") or message.method not in methods:
            self._refuse(message.call, AttributeError(f"{message.service} has no public method {message.method!r}"))
        elif self.installed is None:
            self._refuse(message.call, RuntimeError("services can be called once the modulator is installed"))
        else:
            self._tell(self._owner.called, message.call, message.service, message.method, tuple(args), kwargs)

    def _handle_shared(self, message: messages.PublishShared | messages.Pull) -> None:
        self._begin_call(message.call)
        if message.index >= self._shared:
            raise messages.Violation("a shared object that it does not have")
        if self.installed is None:
            self._refuse(message.call, RuntimeError("masters can be reached once the modulator is installed"))
        elif isinstance(message, messages.PublishShared):
            fields = _read_plain(message.fields)
            if type(fields) is not dict or not all(type(name) is str for name in fields):
                raise messages.Violation("fields that are none")
            self._tell(self._owner.shared_published, message.call, message.index, fields, message.expected_version)
        else:
            self._tell(self._owner.shared_pulled, message.call, message.index)

    def _begin_call(self, call: int) -> None:
        if self._outstanding is not None:
            raise messages.Violation("a call while another one waits")
        self._outstanding = call

    def _accept(self, done: messages.InstallDone) -> None:
        if done.key is not None and plain.canonical(_read_plain(done.key)) != done.key:
            raise messages.Violation("a key that is not in order")
        self._installed_at = time.monotonic()
        self.installed = done

    def _tell(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception:  # an owner's: what this sandbox and others have said besides must not be lost by it
            _log.exception("the owner of a sandbox raised")


def _read_plain(data: bytes) -> Any:
    try:
        return plain.decode(data)
    except plain.NotPlain as error:
        raise messages.Violation(str(error)) from None
