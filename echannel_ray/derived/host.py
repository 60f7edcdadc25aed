"""Where a modulator runs: what hosts of modulators can do, and what those have in common that are no sandboxes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from typing_extensions import override

from echannel_ray.endpoint.crew import Job
from echannel_ray.endpoint.deadlines import seconds_left

if TYPE_CHECKING:
    from echannel_ray.derived.branch import Branch


class Host:
    """Where one modulator runs, at one producer."""

    queues = False  # whether it overrides `dequeue`

    def install(self) -> None:
        """Have the modulator ready, or raise."""
        raise NotImplementedError

    def advance(self) -> None:
        """Work on what waits, or have it worked on. Without any lock."""
        raise NotImplementedError

    def quiesce(self, deadline: float | None) -> bool:
        """Return when all that has been fed is worked on, and what was held back is emitted. False when that was not so
        by the deadline. Without any lock.
        """
        raise NotImplementedError

    def pump(self) -> None:
        """There may be room again for what waits in the modulator's own queue. Without any lock."""

    @property
    def waiting(self) -> int:
        """How many events wait in the modulator's own queue."""
        return 0

    def close(self) -> None:
        """Leave. Without the endpoint's lock."""
        raise NotImplementedError


class HostInProcess(Host):
    """Works in whichever thread finds something to do: one at a time, which holds the branch's mutex."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._endpoint = branch.endpoint
        self._mutex = branch.mutex
        self._shipment = branch.derived.shipment
        self._updates: deque[Callable[[], None]] = deque()  # of shared objects
        self._closed = False

    def _has_work(self) -> bool:
        return bool(self._branch.pending or self._updates)

    def _work(self) -> None:
        """Work on all that waits; under the mutex."""
        raise NotImplementedError

    def _work_off(self) -> None:
        """Work on all that waits, and emit what was held back; under the mutex."""
        self._work()

    @override
    def advance(self) -> None:
        """Work on what waits; a thread that finds another one at work leaves it to that one."""
        while self._has_work() and self._mutex.acquire(blocking=False):
            try:
                self._work()
            finally:
                self._mutex.release()

    @override
    def quiesce(self, deadline: float | None) -> bool:
        left = seconds_left(deadline)
        if not self._mutex.acquire(timeout=-1 if left is None else left):
            return False
        try:
            self._work_off()
        finally:
            self._mutex.release()
        return True

    def update(self, update: Callable[[], None]) -> None:
        """A shared object has changed: its copy here does so between two events, or two packs of E-code's."""
        self._updates.append(update)
        self._update_soon()

    def _update_soon(self) -> None:
        if self._mutex.acquire(blocking=False):
            try:
                self._apply_updates()
            finally:
                self._mutex.release()
        if self._has_work():
            # Not here: this may be the thread that reads the link.
            self._endpoint.crew.submit(Job(self.advance))

    def _apply_updates(self) -> None:
        while self._updates:
            self._updates.popleft()()
