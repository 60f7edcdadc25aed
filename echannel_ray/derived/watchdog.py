"""Stops inline modulators that don't come to an end: what accident can do, not what malice can.

An exception is raised in the thread that is in the modulator. That ends loops of Python code; it does not reach loops
in C, long regular expressions, sleeps, or code that catches everything. Who runs code inline trusts it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LOOK_SECONDS = 0.02

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
_raise_in.restype = ctypes.c_int
_NOTHING = ctypes.py_object()  # a null pointer: takes back what was not raised yet


class Overran(BaseException):
    """The modulator took more time than its producer admits. (Not an `Exception`: few catch it by accident.)"""


@dataclass(slots=True, eq=False)
class Watch:
    """What the watchdog knows of one inline modulator; `enter` and `leave` surround each of its calls."""

    limit_seconds: float
    progress: Callable[[], int] = lambda: 0  # how many events are left of a batch
    thread: int = 0  # that is in the modulator
    calls: int = 0
    fired: bool = False
    seen: Any = None  # what was to be done when the watchdog looked last
    seen_at: float = 0.0

    def enter(self) -> None:
        """Note that a call of the modulator begins."""
        self.calls += 1
        self.thread = threading.get_ident()

    def leave(self) -> None:
        """Note that the call has ended. `Overran` is not raised any more after this."""
        self.thread = 0
        if self.fired:
            with _lock:
                self.fired = False
                _raise_in(threading.get_ident(), _NOTHING)


_lock = threading.Lock()


class Watchdog:
    """Watches the inline modulators of one endpoint, on a thread of its own while there are any."""

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        """Look after one more modulator."""
        with _lock:
            self._watches[watch] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="echannel-watchdog", daemon=True)
                self._thread.start()

    def remove(self, watch: Watch) -> None:
        """Look no more after a modulator."""
        with _lock:
            self._watches.pop(watch, None)
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(_LOOK_SECONDS)
            with _lock:
                if not self._watches:
                    self._thread = None
                    self._wake.clear()
                    return
                self._wake.clear()
                for watch in self._watches:
                    _look(watch)


def _look(watch: Watch) -> None:
    thread = watch.thread
    if not thread:
        watch.seen = None
        return
    state = (thread, watch.calls, watch.progress())
    try:
        # CPU time: on a machine under load a thread may wait for long, and has done nothing wrong.
        now = time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return  # that thread has ended
    if state != watch.seen:
        watch.seen, watch.seen_at = state, now
    elif now - watch.seen_at > watch.limit_seconds and not watch.fired and watch.thread == thread:
        watch.fired = True
        _raise_in(thread, ctypes.py_object(Overran))
