"""Clients across forks.

gRPC, which carries Flight, does not survive a fork: the child has its state without its threads, and hangs. It does
where nothing of it is in use at that moment. So before a fork all connections of this process are put down; the next
call on either side makes another. A child that was forked in the middle of a call can't call gateways, and is told so.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from echannel_ray import errors

# gRPC ends its threads some milliseconds after its last client, and does not say when.
_GRPC_THREADS: Final = ("event_engine", "grpc_", "lifeguard", "timer_manager")
_MAX_WAIT_SECONDS: Final = 0.5

_lock = threading.Lock()
_lines: weakref.WeakSet[ForkSafeClient] = weakref.WeakSet()
_is_grpc_used = False  # since the last fork
_is_spoiled = False


class ForkSafeClient:
    """What there may be of a connection: made when it is needed, by `_make`. Any thread may use it."""

    def __init__(self) -> None:
        self._client: Any = None
        self._calls = 0  # in progress
        self._is_closed = False
        with _lock:
            _lines.add(self)

    def _make(self) -> Any:
        raise NotImplementedError

    @contextmanager
    def in_use(self) -> Iterator[Any]:
        """Lend the connection for one call; `Closed` where there can be none."""
        global _is_grpc_used
        with _lock:
            if self._is_closed:
                raise errors.Closed("this client was closed: make another", what="gateway client")
            if _is_spoiled:
                raise errors.Closed(
                    "this process was forked from one that was calling a gateway at that moment, and can't call one "
                    'itself: start it with the method "spawn", or fork between the calls',
                    what="gateway client",
                )
            if self._client is None:
                _is_grpc_used = True
                self._client = self._make()
            client = self._client
            self._calls += 1
        try:
            yield client
        finally:
            del client
            with _lock:
                self._calls -= 1

    def close(self) -> None:
        """End the connection: calls in progress go on, and there will be no others."""
        with _lock:
            self._is_closed = True
            self._client = None

    @staticmethod
    def before_fork() -> None:
        """Put all connections down before this process forks."""
        global _is_grpc_used
        _lock.acquire()
        for line in _lines:
            if not line._calls:
                line._client = None
        if _is_grpc_used and not any(line._calls for line in _lines):
            _wait_for_grpc()
            _is_grpc_used = False

    @staticmethod
    def in_child() -> None:
        """Let calls go on in the child of a fork, if that is possible."""
        global _is_spoiled
        _is_spoiled = _is_spoiled or any(line._calls for line in _lines)
        _lock.release()


def _wait_for_grpc() -> None:
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while time.monotonic() < deadline and any(name.startswith(_GRPC_THREADS) for name in _thread_names()):
        time.sleep(0.001)


def _thread_names() -> Iterator[str]:
    for path in Path("/proc/self/task").iterdir():
        try:
            yield (path / "comm").read_text()
        except OSError:  # it has ended
            pass


os.register_at_fork(
    before=ForkSafeClient.before_fork, after_in_parent=_lock.release, after_in_child=ForkSafeClient.in_child
)
