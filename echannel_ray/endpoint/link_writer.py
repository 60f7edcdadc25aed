"""What the core has for the link, written to it; and what sending a pack costs, which packing policies want to know."""

from __future__ import annotations

import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core.frames import Buffer
from echannel_ray.core.gather import Gather
from echannel_ray.core.packing import Policy
from echannel_ray.core.streams import Route, SenderStream
from echannel_ray.endpoint.run_delay import RunDelay

if TYPE_CHECKING:
    from echannel_ray.core.mixtures import Mixture
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

_MAX_PARTS = 256


class LinkWriter:
    """What leaves by the link of one endpoint; all but `write` is called under the endpoint's lock."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._core = endpoint.core
        self._outbox = endpoint.core.out
        self.put = self._outbox.append  # a frame to be written
        self.put_parts = self._outbox.extend  # one in parts
        self._write_seconds = 0.0  # that the last write took for each pack
        self._run_delay = RunDelay()

    # ---- packs ----

    def see_off(self, stream: SenderStream, route: Route) -> bool:
        """Something was gathered: the pack leaves now, or when its time has come. Whether it has left."""
        began = time.monotonic()
        has_left = self._core.see_off(stream, route, began)
        if has_left:
            self.sent(began)
            return True
        self.wait_for_departure(stream, route)
        return False

    def see_off_mixed(self, mixture: Mixture) -> bool:
        """Do as `see_off` for events of a mixture."""
        began = time.monotonic()
        has_left = self._core.see_off_mixed(mixture, began)
        if has_left:
            self.sent(began)
            return True
        self._wait(mixture.gather, mixture.policy)
        return False

    def wait_for_departure(self, stream: SenderStream, route: Route) -> None:
        """Have what was gathered leave when its time has come."""
        self._wait(route.gather, stream.policy_on(route.gather))

    def _wait(self, gather: Gather, policy: Policy) -> None:
        crew = self._endpoint.crew
        if not crew.ticking and policy.unasked:
            crew.wake_ticker()  # there is so much to do that the producer may be armed
        crew.depart_at(gather.due_at)

    def sent(self, began: float) -> None:
        """Packs have left since then: say what that cost, and carry out what follows from it."""
        if self._core.departed:
            now = time.monotonic()
            self._core.left(now, now - began, self._write_seconds, self._run_delay.look())
        if self._core.instructions:
            self._endpoint.carry_out()

    def end_measuring(self) -> None:
        """This process leaves, or is the child of a fork: what is still sent need not be measured."""
        self._run_delay.close()

    # ---- the link ----

    def write(self) -> None:
        """Write what there is, unless another thread is at it: that one takes ours too. Without the endpoint's lock."""
        outbox = self._outbox
        endpoint = self._endpoint
        for link in endpoint.direct.all:
            if link.out and not link.is_full:
                began = time.monotonic()
                parts = link.write()
                if parts:
                    self._write_seconds = 2 * (time.monotonic() - began) / parts
                if link.out:
                    endpoint.incoming.links_changed()  # it is full: who reads is to be told when it takes more
        while outbox:
            if not endpoint.write_lock.acquire(blocking=False):
                return
            try:
                connection = endpoint.connection
                if connection is None:
                    return
                self._write_all(connection, outbox)
            except (ConnectionError, errors.Closed):
                return  # the reading thread sees the end of the link, and begins another
            finally:
                endpoint.write_lock.release()

    def _write_all(self, connection: Any, outbox: deque[Buffer]) -> None:
        while outbox:
            parts: list[Buffer] = []
            size = 0
            while outbox and len(parts) < _MAX_PARTS:
                try:
                    part = outbox.popleft()
                except IndexError:
                    break  # cleared meanwhile
                parts.append(part)
                size += len(part)
            began = time.monotonic()
            taken = connection.send(parts)
            # A pack has two parts, as a rule.
            self._write_seconds = 2 * (time.monotonic() - began) / len(parts)
            while taken < size:
                size -= taken
                parts = _behind(parts, taken)
                if not taken:
                    self._wait_writable(connection)
                taken = connection.send(parts)

    def _wait_writable(self, connection: Any) -> None:
        descriptor = connection.fileno()
        if descriptor < 0:
            raise ConnectionResetError("the link was closed")
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll(1000)


def _behind(parts: list[Buffer], taken: int) -> list[Buffer]:
    """The parts without so many bytes at their beginning."""
    for i, part in enumerate(parts):
        if taken < len(part):
            return [memoryview(part)[taken:], *parts[i + 1 :]]
        taken -= len(part)
    return []
