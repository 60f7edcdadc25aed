"""On which event loop a coroutine handler runs: the one that subscribed, else one of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class HandlerLoop:
    """Finds the loop for a subscription that is being made."""

    def __init__(self) -> None:
        self._given = threading.local()
        self._lock = threading.Lock()
        self._ours: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> asyncio.AbstractEventLoop:
        """The loop that runs in this thread, or on behalf of which it works, else ours (started on first use)."""
        given: asyncio.AbstractEventLoop | None = getattr(self._given, "loop", None)
        if given is not None:
            return given
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            pass
        with self._lock:
            if self._ours is None or self._ours.is_closed():
                self._ours = asyncio.new_event_loop()
                threading.Thread(target=self._ours.run_forever, name="echannel-loop", daemon=True).start()
            return self._ours

    @contextmanager
    def of(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Work on behalf of this loop."""
        self._given.loop = loop
        try:
            yield
        finally:
            self._given.loop = None

    def forget(self) -> None:
        """In the child of a fork: the thread that ran our loop is the parent's."""
        self._lock = threading.Lock()
        self._ours = None


handler_loop = HandlerLoop()
