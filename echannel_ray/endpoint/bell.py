"""Rung when somebody who waits for room should look again; threads and coroutines may wait for it."""

from __future__ import annotations

import asyncio
import threading

from echannel_ray.endpoint.offload import wake


class Bell:
    """Rung when somebody should look again; one per endpoint, all of it used under the endpoint's lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self._condition = threading.Condition(lock)
        self._futures: list[asyncio.Future[None]] = []

    def wait(self, timeout_seconds: float) -> None:
        """Let go of the lock until it rings, or the time is up."""
        self._condition.wait(timeout_seconds)

    def future(self) -> asyncio.Future[None]:
        """A future that is done when the bell rings next."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures = [each for each in self._futures if not each.done()]
        self._futures.append(future)
        return future

    def notify_all(self) -> None:
        """Ring the bell."""
        self._condition.notify_all()
        futures, self._futures = self._futures, []
        for future in futures:
            wake(future)
