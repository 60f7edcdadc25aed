"""One thread per process that has sandboxes: hears them, sees that they keep their limits, and has their zygotes.

It lives until `close`: the kernel ends a zygote with the thread that started it, and a warm one is worth its memory.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from echannel_ray.sandbox.nursery import Nursery, Spare
from echannel_ray.sandbox.owner import SandboxUnavailable

if TYPE_CHECKING:
    from echannel_ray.sandbox.process import Sandbox

_LOOKS: Final = 4  # per limit of an event
_IDLE_SECONDS: Final = 0.5  # between looks at sandboxes that have nothing to do
_ACTIVE_SECONDS: Final = 0.5  # after the last batch; as long as that, the next one need not wake this thread
_MIN_LOOK_SECONDS: Final = 0.002
_READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR

_log = logging.getLogger(__name__)


class Warden:
    """Looks after all sandboxes of one process, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._sandboxes: dict[int, Sandbox] = {}  # by descriptor
        self._nurseries: dict[tuple[str, ...], Nursery] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._is_closed = False
        self._sleeps_until_rung = False
        self._active_until = 0.0

    def close(self) -> None:
        """End all sandboxes and zygotes. Their owners are told nothing."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        for sandbox in list(self._sandboxes.values()):
            sandbox.close()
        if thread is not None and thread is not threading.current_thread():
            self._ring()
            thread.join()

    def forget(self) -> None:
        """Close what was inherited, in the child of a fork. The processes are the parent's."""
        self._is_closed = True
        self._epoll.close()  # first: the parent's registrations are in it
        for sandbox in self._sandboxes.values():
            sandbox.abandon()
        for nursery in self._nurseries.values():
            nursery.abandon()
        os.close(self._bell)

    # ---- for sandboxes ---------------------------------------------------------------------------------------------

    def take(self, modules: tuple[str, ...], max_memory_bytes: int, timeout: float) -> Spare:
        """A process that is shut in, with so much memory; `SandboxUnavailable` where there can't be any."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a sandbox can't be made on the warden's thread")
        with self._lock:
            if self._is_closed:
                raise SandboxUnavailable("the warden of this process was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="echannel-warden", daemon=True)
                self._thread.start()
            nursery = self._nurseries.get(modules)
            if nursery is None or nursery.is_over:
                nursery = self._nurseries[modules] = Nursery(modules)
                self.post(lambda: self._open(nursery))
        return nursery.take(max_memory_bytes, timeout)

    def refill(self, modules: tuple[str, ...]) -> None:
        """Have spares ready again. Not when one is taken: the fork would take time from who installs."""
        nursery = self._nurseries.get(modules)
        if nursery is not None:
            nursery.refill()

    def watch(self, sandbox: Sandbox) -> None:
        """Begin to hear a sandbox, and to look at it."""
        with self._lock:
            self._sandboxes[sandbox.fileno()] = sandbox
            self._epoll.register(sandbox.fileno(), _READ)

    def unwatch(self, sandbox: Sandbox) -> None:
        """Stop hearing a sandbox, which is about to close its socket."""
        with self._lock:
            if self._sandboxes.pop(sandbox.fileno(), None) is not None:
                self._epoll.unregister(sandbox.fileno())

    def want_room(self, sandbox: Sandbox, wanted: bool) -> None:
        """Tell a sandbox when it can send more, or do so no longer."""
        with self._lock:
            if sandbox.fileno() in self._sandboxes:
                self._epoll.modify(sandbox.fileno(), _READ | select.EPOLLOUT if wanted else _READ)

    def post(self, task: Callable[[], None]) -> None:
        """Have something done on the warden's thread."""
        self._tasks.append(task)
        self._ring()

    def wake(self) -> None:
        """Look at the sandboxes from time to time: one has something to do."""
        if self._sleeps_until_rung:
            self._ring()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        next_look = 0.0
        while not self._is_closed:
            pause = self._pause()
            self._sleeps_until_rung = pause >= _IDLE_SECONDS
            if self._sleeps_until_rung:
                pause = self._pause()  # what began in between has seen no sleeper
            now = time.monotonic()
            next_look = min(next_look, now + pause) if next_look > now else now + pause
            for descriptor, events in self._epoll.poll(max(next_look - now, 0)):
                self._dispatch(descriptor, events)
            while self._tasks:
                self._guard(self._tasks.popleft())
            now = time.monotonic()
            if now >= next_look:
                next_look = 0.0
                for sandbox in list(self._sandboxes.values()):
                    self._guard(partial(sandbox.look, now))
        for nursery in self._nurseries.values():
            nursery.close()
        self._epoll.close()

    def _pause(self) -> float:
        """How long until the next look at all of them."""
        pause = _IDLE_SECONDS
        now = time.monotonic()
        for sandbox in list(self._sandboxes.values()):
            pause = min(pause, max(sandbox.limits.max_seconds_per_event / _LOOKS, _MIN_LOOK_SECONDS))
            if sandbox.is_busy:
                self._active_until = now + _ACTIVE_SECONDS
        return pause if now < self._active_until else _IDLE_SECONDS

    def _dispatch(self, descriptor: int, events: int) -> None:
        if descriptor == self._bell:
            os.eventfd_read(self._bell)
            return
        sandbox = self._sandboxes.get(descriptor)
        if sandbox is not None:
            if events & _READ:
                self._guard(sandbox.on_readable)
            if events & select.EPOLLOUT:
                self._guard(sandbox.line.on_writable)
            return
        for nursery in list(self._nurseries.values()):
            if nursery.fileno() == descriptor:
                nursery.on_readable()
                if nursery.is_over:
                    self._epoll.unregister(descriptor)
                    nursery.close()

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # an owner's; the other sandboxes need this thread
            _log.exception("a sandbox's owner raised")

    def _open(self, nursery: Nursery) -> None:
        nursery.open()
        if not nursery.is_over:
            self._epoll.register(nursery.fileno(), _READ)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)
