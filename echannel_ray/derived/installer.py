"""How a membership takes effect where modulators are concerned: they are made ready first, in a thread of their own,
and then all producers of the channel go over to it at one point of their order each.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from typing import TYPE_CHECKING

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.core.messages import Installed, Membership, RefusedModulator
from echannel_ray.derived.host import Host
from echannel_ray.endpoint.crew import Job
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

logger = logging.getLogger(__name__)


class Installer:
    """Makes modulators ready at one endpoint, and has its producers go over to them."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._mutex = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Membership, int | None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._queued = 0

    def learned(self, membership: Membership) -> None:
        """An answer to a request of ours has the newest membership, which may be pushed too."""
        with self._endpoint.lock:
            known = self._endpoint.memberships.get(membership.channel)
            if known is None or known.recency < membership.recency:
                self.pushed(membership, None)
        self._endpoint.outgoing.write()

    def pushed(self, membership: Membership, number: int | None) -> Installed | None:
        """A manager has sent a membership: the answer, or None where it comes later. Under the endpoint's lock."""
        endpoint = self._endpoint
        known = endpoint.memberships.get(membership.channel)
        concerns_modulators = membership.derived or (known is not None and known.derived)
        resets = any(consumer.handler_version for consumer in membership.consumers)
        if not (concerns_modulators or self._queued or resets):
            endpoint.membership_pushed(membership)
            return Installed()
        self._queued += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="echannel-installer", daemon=True)
            self._thread.start()
        self._queue.put((membership, number))
        return None

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            membership, number = job
            refused: tuple[RefusedModulator, ...] = ()
            try:
                refused = self.install(membership)
            except errors.EChannelError as error:
                logger.debug("channel %r: %s", membership.channel, error)  # this process has left meanwhile
            except Exception:
                logger.exception("channel %r: a change of its consumers failed", membership.channel)
                number = None  # it did not take effect: the manager asks again
            endpoint = self._endpoint
            with endpoint.lock:
                self._queued -= 1
                if number is None:
                    continue
                reply = frames.REQUEST_ID.pack(number) + wire.encode(Installed(refused))
                endpoint.outgoing.put(frames.frame(frames.PUSHED, reply))
            endpoint.outgoing.write()

    def install(self, membership: Membership) -> tuple[RefusedModulator, ...]:
        """Have a membership take effect for all producers of this process; what they refuse."""
        endpoint = self._endpoint
        with self._mutex:
            known = endpoint.memberships.get(membership.channel)
            if known is not None and known.recency > membership.recency:
                membership = known
            version = membership.recency
            with endpoint.lock:
                present = endpoint.publishers.on(membership.channel)
            for publisher in present:
                publisher.foresee(membership)  # with others, perhaps, that are made for it
            with endpoint.lock:
                sinks = [each for each in self._hosting(membership.channel) if each.stream.version < version]
            problems = {sink: sink.branches.prepare(membership) for sink in sinks}
            hosts = self._cut(membership, sinks)
            for host in hosts:
                endpoint.crew.submit(Job(host.close))  # nobody has to wait for the end of a process
            for sink, of_it in problems.items():
                sink.branches.report(of_it, membership)
            return self._refused(membership)

    def _hosting(self, channel: str) -> list[ConsumerSink]:
        sinks = (each.sink for each in self._endpoint.publishers.on(channel))
        return [each for each in sinks if isinstance(each, ConsumerSink) and each.hosts_modulators]

    def _refused(self, membership: Membership) -> tuple[RefusedModulator, ...]:
        """What is missing here, also since an earlier membership: its answer may not have been waited for."""
        with self._endpoint.lock:
            publishers = self._endpoint.publishers.on(membership.channel)
        present = {derived.key for derived in membership.derived}
        return tuple(
            RefusedModulator(branch.derived.key, publisher.stream.number, wire.encode_error(branch.error))
            for publisher in publishers
            for branch in publisher.sink.modulated()
            if branch.host is None and branch.error is not None and branch.derived.key in present
        )

    def _cut(self, membership: Membership, sinks: list[ConsumerSink]) -> list[Host]:
        endpoint = self._endpoint
        with contextlib.ExitStack() as stack:
            with endpoint.lock:
                moving = [sink for sink in sinks if sink.branches.moves(membership)]
            for sink in moving:
                stack.enter_context(sink.halted())
            for sink in moving:
                sink.branches.quiesce()
            hosts: list[Host] = []
            with endpoint.lock:
                unprepared = {*self._hosting(membership.channel)} - {*sinks}
                endpoint.membership_pushed(membership, unprepared)
                for sink in sinks:
                    if sink.stream.version < membership.recency:
                        sink.publisher.apply(membership)  # made after this membership came
                    hosts += sink.branches.ended(membership)
                endpoint.flush_all()
        endpoint.outgoing.write()
        return hosts

    def close(self) -> None:
        """End the thread: the endpoint leaves."""
        self._queue.put(None)
