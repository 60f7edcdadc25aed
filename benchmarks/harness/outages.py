"""Parties that notice an outage: moments are those of the monotonic clock, which all processes of a machine share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import echannel_ray as ec
from echannel_ray.benchmarks.harness.parties import Party

STAMP_SECONDS = 0.002  # between two events: no figure is finer
LOOK_SECONDS = 0.02  # between two looks at all parts, which take as long
BLOCKED_SECONDS = 0.1  # a `publish` that takes longer has waited for somebody
GIVE_UP_SECONDS = 60.0
EVENT = bytes(1000)


class Source(Party):
    """Publishes when it publishes; fills the window of a consumer that handles nothing; waits for one that does not."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._pool = ThreadPoolExecutor()
        self._waiting: list[Future[float]] = []
        self._publishing_since = 0.0

    def publish_moments(self, name: str) -> None:
        """Publish the moment again and again, from now on."""
        publish, pause = ec.channel(name).producer().publish, threading.Event().wait

        def run() -> None:
            while True:
                publish(time.monotonic())
                pause(STAMP_SECONDS)

        threading.Thread(target=run, daemon=True).start()

    def wait_for_one_that_hangs(self, full: str, delivered: str) -> None:
        """Publish on the one channel until that blocks, and deliver on the other; both go on when it is let go of."""
        self._publishing_since = time.monotonic()
        self._waiting = [self._pool.submit(self._fill, full), self._pool.submit(self._deliver, delivered)]
        while time.monotonic() - self._publishing_since < BLOCKED_SECONDS:
            time.sleep(STAMP_SECONDS)

    def moments_of_release(self) -> list[float]:
        """When `publish` went on, and when the delivery had failed."""
        return [each.result(GIVE_UP_SECONDS) for each in self._waiting]

    def _fill(self, name: str) -> float:
        with ec.channel(name).producer() as producer:
            publish, clock = producer.publish, time.monotonic
            while True:
                self._publishing_since = clock()
                publish(EVENT)
                now = clock()
                if now - self._publishing_since > BLOCKED_SECONDS:
                    return now

    @staticmethod
    def _deliver(name: str) -> float:
        with ec.channel(name).producer() as producer:
            try:
                producer.deliver(EVENT).result(timeout=GIVE_UP_SECONDS)
            except ec.DeliveryFailed:
                return time.monotonic()
        raise AssertionError(f"a delivery on {name} came back, although nobody has handled it")


class Sink(Party):
    """Takes moments, or takes events and never comes back from them."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._arrived = threading.Condition()
        self._published_at = self._arrived_at = 0.0

    def take(self, name: str) -> None:
        """Handle the moments of a channel."""
        ec.channel(name).subscribe(self._handle)

    def hang(self, names: list[str]) -> None:
        """Handle nothing of what comes on these channels."""
        for name in names:
            ec.channel(name).subscribe(lambda _: threading.Event().wait())

    def let_pass(self, names: list[str]) -> None:
        """Handle all that comes on these channels at once."""
        for name in names:
            ec.channel(name).subscribe(lambda _: None)

    def flows_at(self, moment: float) -> float:
        """When the first event was handled that was published after this moment."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._published_at > moment, GIVE_UP_SECONDS):
                raise TimeoutError(f"nothing came for {GIVE_UP_SECONDS:.0f} s")
            return self._arrived_at

    def _handle(self, moment: float) -> None:
        with self._arrived:
            self._published_at, self._arrived_at = moment, time.monotonic()
            self._arrived.notify_all()


class Client(Party):
    """Asks for service while a part is away."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._pool = ThreadPoolExecutor(3)

    def serves_at(self, known: str, new: str) -> list[float]:
        """When `subscribe` had returned on a channel that is produced, when a new channel was open, and when all parts
        were there.
        """
        asked = [self._pool.submit(ask, name) for ask, name in ((_subscribe, known), (_open, new), (self._all, known))]
        return [each.result(GIVE_UP_SECONDS) for each in asked]

    def parts(self, known: str) -> dict[str, int]:
        """The processes of the parts, when all are there: the manager is that of this channel, concentrators have the
        ids of their nodes.
        """
        end = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            with suppress(ec.EChannelError, StopIteration):
                if found := self._parts(known):
                    return found
            time.sleep(LOOK_SECONDS)
        raise TimeoutError(f"after {GIVE_UP_SECONDS:.0f} s there is a part that does not answer")

    @staticmethod
    def _parts(known: str) -> dict[str, int] | None:
        status = ec.status()
        parts: list[Any] = [status.name_server, *status.managers, *status.concentrators]
        if any(part.error for part in parts) or any(each.state != "serving" for each in parts[1:]):
            return None
        manager = next(each for each in status.managers if known in each.channels)
        concentrators = {each.node_id: each.pid for each in status.concentrators}
        return {"name server": status.name_server.pid, "manager": manager.pid, **concentrators}

    def _all(self, known: str) -> float:
        self.parts(known)
        return time.monotonic()


def _subscribe(name: str) -> float:
    with ec.channel(name).subscribe():
        return time.monotonic()


def _open(name: str) -> float:
    ec.channel(name)
    return time.monotonic()
