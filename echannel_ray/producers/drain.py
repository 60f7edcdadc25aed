"""Waiting until all that was published is acknowledged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from echannel_ray.core.drain_point import DrainPoint
from echannel_ray.endpoint.deadlines import GivenTimeout, deadline_of
from echannel_ray.producers.room import ASK_AGAIN_SECONDS

if TYPE_CHECKING:
    from echannel_ray.producers.consumer_sink import ConsumerSink
    from echannel_ray.producers.outlet import Outlet


class Drain:
    """One call of `drain`: what it waits for is what had been published when it began."""

    def __init__(self, sink: ConsumerSink, timeout: GivenTimeout) -> None:
        self._sink = sink
        self._publisher = sink.publisher
        self._endpoint = sink.endpoint
        self._outlets: list[Outlet] = [sink.outlet]
        self._timeout = timeout
        self._deadline = deadline_of(timeout)

    def run(self) -> None:
        """Wait; `TimeoutError` where it takes too long."""
        endpoint = self._endpoint
        endpoint.crew.step_aside()
        if self._sink.branches:
            self._publisher.check_open()
            with endpoint.lock:
                self._sink.absorb()
            if not self._sink.branches.quiesce(self._deadline):
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
        self._outlets = [*self._sink.outlets()]
        self._sink.absorb()  # what this thread appended at the moment when we were disarmed
        self._endpoint.flush_all()
        self._point = DrainPoint([outlet.stream for outlet in self._outlets], self._endpoint.is_in_handler_of)

    def has_ended(self) -> bool:
        """Without waiting: whether all of it is acknowledged. Where it is not, that is asked for."""
        with self._endpoint.lock:
            if self._is_acknowledged():
                return True
            self._endpoint.flush_all()
            self._ask()
        self._endpoint.outgoing.write()
        return False

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
        return self._point.is_reached(any(outlet.held for outlet in self._outlets))

    def _ask(self) -> None:
        core = self._endpoint.core
        core.probe(self._point.flows, time.monotonic(), at_once=True)
        for stream in self._point.streams_that_need_credit:
            core.ask_for_credit(stream)
