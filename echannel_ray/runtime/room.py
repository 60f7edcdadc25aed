"""Room for an event: who has none, and waiting until they have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from echannel_ray.protocol import frames
from echannel_ray.protocol.streams import BLOCK, RAISE, Recipient

if TYPE_CHECKING:
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

    def blockers(self, size: int) -> list[Any]:
        """Who has no room for an event of this size; empty where the policy drops."""
        stream = self._stream
        blockers: list[Any] = ["a large event that is leaving"] if stream.chunks else []
        if stream.overflow in (BLOCK, RAISE):
            if stream.route is not None and not stream.fits(size):
                blockers += [_Consumer(r) for r in stream.full_recipients(size)]
            if stream.groups:
                blockers += [f"group {name!r}" for name in self._endpoint.sender.full_groups(stream, size)]
            for mailbox in self._publisher.local:
                # A handler may publish into its own channel: it can't wait for itself.
                if mailbox.local_pending >= mailbox.window_events and not mailbox.is_current_thread():
                    blockers.append("a consumer in this process")
        return blockers

    def wait(self, size: int, deadline: float | None, timeout: float | None) -> None:
        """Wait until nobody is in the way of an event of this size, or somebody has to look again."""
        began = time.monotonic()
        with self._endpoint.lock:
            self.waiting += 1
        try:
            # Consumers report each quarter of a window by themselves. To ask is for an event that needs more room than
            # that, and for a report that was lost.
            ask = size > self._stream.window_bytes // 4
            while not self._has_come(size, deadline, timeout, ask):
                ask = True
        finally:
            with self._endpoint.lock:
                self.waiting -= 1
                self.blocked_milliseconds += int(1000 * (time.monotonic() - began))

    def _has_come(self, size: int, deadline: float | None, timeout: float | None, ask: bool) -> bool:
        endpoint = self._endpoint
        with self._endpoint.lock:
            endpoint.blocked_publishers += 1
            endpoint.flush_all()
            if ask:
                self.ask_for_credit()
        try:
            endpoint.outgoing.write()
            endpoint.crew.step_aside()
            asked_at = time.monotonic()
            if not endpoint.crew.ticking:
                endpoint.crew.wake_ticker()
            with self._endpoint.lock:
                while self.blockers(size) and not (self._stream.closed or self._stream.deleted or endpoint.broken):
                    now = time.monotonic()
                    if deadline is not None and now >= deadline:
                        raise TimeoutError(
                            f"no room for the event on channel {self._stream.channel!r} within {timeout} s: "
                            f"{', '.join(map(str, self.blockers(size)))}"
                        )
                    if now - asked_at >= ASK_AGAIN_SECONDS:
                        return False
                    left = ASK_AGAIN_SECONDS if deadline is None else min(ASK_AGAIN_SECONDS, deadline - now)
                    endpoint.room.wait(left)
            return True
        finally:
            with self._endpoint.lock:
                endpoint.blocked_publishers -= 1

    def ask_for_credit(self) -> None:
        """Have those who are behind report as soon as they have handled what was sent."""
        stream = self._stream
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
