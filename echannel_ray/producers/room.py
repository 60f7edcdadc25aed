"""Room for an event: who has none, and waiting until they have."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from echannel_ray.core.windows import Blocker

if TYPE_CHECKING:
    from echannel_ray.endpoint.deadlines import GivenTimeout
    from echannel_ray.producers.publisher import Publisher

ASK_AGAIN_SECONDS = 0.3
_CHANGE: Final = Blocker("a change of modulators")


class Room:
    """One per producer."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._endpoint = publisher.endpoint
        self._stream = publisher.stream
        self.waiting = 0  # threads that are in `publish` until there is room
        self.blocked_milliseconds = 0
        self._asked = False

    def wait(self, size: int, deadline: float | None, timeout: GivenTimeout) -> None:
        """Wait until nobody is in the way of an event of this size, or somebody has to look again."""
        endpoint = self._endpoint
        with self._blocked():
            while True:
                self._ask(size)
                endpoint.crew.step_aside()
                until = _earlier(time.monotonic() + ASK_AGAIN_SECONDS, deadline)
                with endpoint.lock:
                    while not self._is_over(size, deadline, timeout) and time.monotonic() < until:
                        endpoint.room.wait(until - time.monotonic())
                    if self._is_over(size, deadline, timeout):
                        return

    async def wait_async(self, size: int, deadline: float | None, timeout: GivenTimeout) -> None:
        """As `wait`, for a coroutine."""
        endpoint = self._endpoint
        with self._blocked():
            while True:
                self._ask(size)
                until = _earlier(time.monotonic() + ASK_AGAIN_SECONDS, deadline)
                while time.monotonic() < until:
                    with endpoint.lock:
                        if self._is_over(size, deadline, timeout):
                            return
                        rung = endpoint.room.future()
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(rung, until - time.monotonic())
                with endpoint.lock:
                    if self._is_over(size, deadline, timeout):
                        return

    @contextlib.contextmanager
    def _blocked(self) -> Iterator[None]:
        began = time.monotonic()
        self._asked = False
        with self._endpoint.lock:
            self.waiting += 1
            self._endpoint.blocked_publishers += 1
        try:
            yield
        finally:
            with self._endpoint.lock:
                self.waiting -= 1
                self._endpoint.blocked_publishers -= 1
                self.blocked_milliseconds += int(1000 * (time.monotonic() - began))

    def _ask(self, size: int) -> None:
        """Send what was gathered, and have consumers report what they have handled.

        They report each quarter of a window by themselves. To ask is for an event that needs more room than that, and
        (the second time) for a report that was lost.
        """
        endpoint = self._endpoint
        with endpoint.lock:
            endpoint.flush_all()
            if self._asked or size > self._stream.window_bytes // 4:
                for outlet in self._publisher.sink.outlets():
                    endpoint.core.ask_for_credit(outlet.stream)
        self._asked = True
        endpoint.outgoing.write()
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()

    def _is_over(self, size: int, deadline: float | None, timeout: GivenTimeout) -> bool:
        endpoint = self._endpoint
        if self._publisher.refuses or self._stream.deleted or endpoint.broken or endpoint.closed:
            return True
        blockers = [_CHANGE] if self._publisher.sink.is_halted else self._publisher.sink.blockers(size)
        if blockers and deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"no room for the event on channel {self._stream.channel!r} within {timeout} s: "
                f"{', '.join(map(str, blockers))}"
            )
        return not blockers


def _earlier(moment: float, deadline: float | None) -> float:
    return moment if deadline is None else min(moment, deadline)
