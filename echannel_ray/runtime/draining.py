"""Waiting until all that was published is acknowledged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from echannel_ray.core import frames
from echannel_ray.runtime.room import ASK_AGAIN_SECONDS
from echannel_ray.runtime.waiting import deadline_of

if TYPE_CHECKING:
    from echannel_ray.runtime.publisher import Publisher


class Drain:
    """One call of `drain`: what it waits for is what had been published when it began."""

    def __init__(self, publisher: Publisher, timeout: float | None) -> None:
        self._publisher = publisher
        self._endpoint = publisher.endpoint
        self._outlets = [publisher.outlet]
        self._streams = [publisher.stream]
        self._timeout = timeout
        self._deadline = deadline_of(timeout)
        self._was_held_back = False

    def run(self) -> None:
        """Wait; `TimeoutError` where it takes too long."""
        endpoint = self._endpoint
        endpoint.crew.step_aside()
        if self._publisher.branches:
            self._publisher.check_open()
            with endpoint.lock:
                self._publisher.absorb()
            if not self._publisher.branches.settle(self._deadline):
                raise TimeoutError(
                    f"modulators have not done with all of channel {self._publisher.channel!r} within {self._timeout} s"
                )
        with endpoint.lock:
            self.begin()
            endpoint.draining += 1
        try:
            while not self._is_done():
                pass  # and ask again
        finally:
            with endpoint.lock:
                endpoint.draining -= 1

    def begin(self) -> None:
        """What has gone out until now is what it is about; under the lock."""
        self._publisher.check_open()
        self._outlets = [*self._publisher.outlets()]
        self._streams = [outlet.stream for outlet in self._outlets]
        self._publisher.absorb()  # what this thread appended at the moment when we were disarmed
        self._endpoint.flush_all()
        self._note_marks()

    def has_ended(self) -> bool:
        """Without waiting: whether all of it is acknowledged. Where it is not, that is asked for."""
        with self._endpoint.lock:
            if self._is_acknowledged():
                return True
            self._endpoint.flush_all()
            self._ask()
        self._endpoint.outgoing.write()
        return False

    def _note_marks(self) -> None:
        self._marks = {flow: flow.last_sent for stream in self._streams for flow in stream.flows}
        self._grouped = {
            (stream, key): recipient.sent[-1].mark
            for stream in self._streams
            for key, recipient in stream.recipients.items()
            if recipient.sent
            and recipient.consumer.group is not None
            # A member's own handler can't wait until it has handled what it is handling.
            and not self._endpoint.is_in_handler_of(recipient.endpoint, recipient.subscription)
        }

    def _is_done(self) -> bool:
        endpoint = self._endpoint
        if self.has_ended():
            return True
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(
                f"not all of channel {self._publisher.channel!r} was acknowledged within {self._timeout} s"
            )
        if not endpoint.crew.ticking:
            endpoint.crew.wake_ticker()
        ask_again_at = time.monotonic() + ASK_AGAIN_SECONDS
        until = ask_again_at if self._deadline is None else min(ask_again_at, self._deadline)
        with endpoint.lock:
            while not self._is_acknowledged():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                endpoint.room.wait(left)
            return True

    def _is_acknowledged(self) -> bool:
        self._endpoint.check_usable()
        streams = self._streams
        if any(outlet.held for outlet in self._outlets) or any(
            s.chunks or any(recipient.backlog for recipient in s.laggards) for s in streams
        ):
            self._was_held_back = True
            return False
        if self._was_held_back:
            self._note_marks()  # what was held back until now has its place in a flow
            self._was_held_back = False
        for (stream, key), mark in self._grouped.items():
            recipient = stream.recipients.get(key)
            if recipient is not None and any(unhandled.mark <= mark for unhandled in recipient.sent):
                return False
        if any(any(stream.undelivered.values()) for stream in streams):
            return False
        return all(flow.lowest_acked >= mark for flow, mark in self._marks.items())

    def _ask(self) -> None:
        now = time.monotonic()
        for flow in {flow for stream in self._streams for flow in stream.flows}:
            for node in flow.nodes_to_probe(now, at_once=True):
                self._endpoint.outgoing.put(frames.probe(self._endpoint.id, flow.number, flow.last_sent, node))
        if any(stream.groups or stream.laggards for stream in self._streams):
            self._publisher.room.ask_for_credit()
