"""Room for an event: who has none, and waiting until they have."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from echannel_ray.core import frames
from echannel_ray.core.streams import BLOCK, RAISE, Recipient, SenderStream

if TYPE_CHECKING:
    from echannel_ray.runtime.outlet import Outlet
    from echannel_ray.runtime.publisher import Publisher

ASK_AGAIN_SECONDS = 0.3


class Room:
    """One per producer."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._endpoint = publisher.endpoint
        self._stream = publisher.stream
        self.waiting = 0  # threads that are in `publish` until there is room
        self.blocked_milliseconds = 0
        self._asked = False

    def blockers(self, size: int) -> list[Any]:
        """Who has no room for an event of this size; empty where the policy drops."""
        if not self._publisher.has_branches:
            return self.of_outlet(self._publisher.outlet, size)
        blockers = self.of_outlet(self._publisher.outlet, size)
        for branch in self._publisher.branches:
            if branch.host is None or not branch.is_wanted:
                continue
            if not branch.host.queues:
                blockers += self.of_outlet(branch.outlet, size + branch.outlet.backlog_bytes)
            elif branch.outlet.backlog_bytes > self._stream.window_bytes and self._stream.overflow in (BLOCK, RAISE):
                blockers.append(f"modulator {branch.derived.shipment.name}, which does not keep up")
        return blockers

    def of_outlet(self, outlet: Outlet, size: int) -> list[Any]:
        """As `blockers`, of one stream."""
        stream = outlet.stream
        blockers: list[Any] = ["a large event that is leaving"] if stream.chunks else []
        if stream.overflow in (BLOCK, RAISE):
            if outlet.backlog_bytes > stream.window_bytes:
                blockers.append("a modulator that does not keep up")
            if stream.route is not None and not stream.fits(size):
                blockers += [_Consumer(r) for r in stream.full_recipients(size)]
            # A handler may publish into its own channel: it can't wait for itself.
            for name in self._endpoint.sender.full_groups(stream, size) if stream.groups else ():
                if not any(self._endpoint.is_in_handler_of(m.endpoint, m.subscription) for m in stream.groups[name]):
                    blockers.append(f"group {name!r}")
            for mailbox in outlet.local:
                if mailbox.local_pending >= mailbox.window_events and not mailbox.is_current_thread():
                    blockers.append("a consumer in this process")
        return blockers

    def wait(self, size: int, deadline: float | None, timeout: float | None) -> None:
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

    async def wait_async(self, size: int, deadline: float | None, timeout: float | None) -> None:
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
                self.ask_for_credit()
        self._asked = True
        endpoint.outgoing.write()
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()

    def _is_over(self, size: int, deadline: float | None, timeout: float | None) -> bool:
        endpoint = self._endpoint
        if self._publisher.refuses or self._stream.deleted or endpoint.broken or endpoint.closed:
            return True
        blockers = ["a change of modulators"] if self._publisher.is_halted else self.blockers(size)
        if blockers and deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"no room for the event on channel {self._stream.channel!r} within {timeout} s: "
                f"{', '.join(map(str, blockers))}"
            )
        return not blockers

    def ask_for_credit(self) -> None:
        """Have those who are behind report as soon as they have handled what was sent."""
        for outlet in self._publisher.outlets():
            self._ask_for_credit_of(outlet.stream)

    def _ask_for_credit_of(self, stream: SenderStream) -> None:
        endpoint = self._endpoint
        for recipient in stream.recipients.values():
            mark = recipient.sent[-1].mark if recipient.sent else stream.published_bytes
            if recipient.handled_mark < mark or recipient.sent:
                fixed = frames.CREDIT_WANTED_FIXED.pack(
                    recipient.node, recipient.endpoint, endpoint.node, endpoint.id,
                    stream.number, recipient.subscription, mark,
                )  # fmt: skip
                endpoint.outgoing.put(frames.frame(frames.CREDIT_WANTED, fixed))


class _Consumer:
    """A recipient, as errors name it."""

    def __init__(self, recipient: Recipient) -> None:
        self._recipient = recipient

    def __str__(self) -> str:
        return f"consumer {self._recipient.endpoint:016x}.{self._recipient.subscription}"


def _earlier(moment: float, deadline: float | None) -> float:
    return moment if deadline is None else min(moment, deadline)
