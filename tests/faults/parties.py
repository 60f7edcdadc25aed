"""Actors that publish numbered events under load, and actors that check that each arrives once and in order."""

from __future__ import annotations

import gc
import os
import signal
import struct
import threading
import time
from typing import Any

import psutil
import ray

import echannel_ray as ec

_EVENT = struct.Struct("<IQ")  # the producer's number, the event's number
_EVENT_BYTES = 100
_MAX_NOTED_FAULTS = 20


def numbered(producer: int, number: int, size_bytes: int = _EVENT_BYTES) -> bytes:
    """An event that says whose it is and which."""
    return _EVENT.pack(producer, number).ljust(size_bytes, b".")


class Checker:
    """Takes the events of any number of producers, and notes each that is not the next of its producer."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}
        self.numbers: list[int] | None = None  # all of them, for a member of a group, who sees only some
        self.faults: list[str] = []

    def __call__(self, event: bytes) -> None:
        producer, number = _EVENT.unpack_from(event)
        if self.numbers is not None:
            self.numbers.append(number)
            return
        before = self.last.get(producer, 0)
        if number != before + 1 and len(self.faults) < _MAX_NOTED_FAULTS:
            kind = "repeated or late" if number <= before else "missing before it"
            self.faults.append(f"producer {producer}: {number} after {before} ({kind})")
        self.last[producer] = max(number, before)


class Process:
    """What tests ask of any actor: its pid, and what it holds."""

    def pid(self) -> int:
        return os.getpid()

    def holdings(self) -> dict[str, int]:
        """What this process has of others: counted, to see that it is freed."""
        from echannel_ray.session import endpoint_for

        endpoint = endpoint_for(None)
        receiver, sender = endpoint.core.receiver, endpoint.core.sender
        return {
            "received_flows": len(receiver.flows),
            "received_streams": len(receiver.streams),
            "received_routes": len(receiver.routes),
            "assemblies": len(receiver.assemblies),
            "sent_flows": len(sender.flows),
            "kept_bytes": sum(flow.kept_bytes for flow in sender.flows.values()),
            "recipients": sum(len(stream.recipients) for stream in sender.streams.values()),
        }

    def endpoint(self) -> tuple[int, int]:
        """Node and number of this process's endpoint."""
        from echannel_ray.session import endpoint_for

        endpoint = endpoint_for(None)
        return endpoint.node, endpoint.id

    def neighbours(self) -> list[int]:
        """The endpoints to which this process has direct links."""
        from echannel_ray.session import endpoint_for

        return sorted(link.endpoint for link in endpoint_for(None).direct.all)

    def end_direct_links(self) -> int:
        """End them, with whatever is in them; how many there were."""
        from echannel_ray.session import endpoint_for

        direct = endpoint_for(None).direct
        links = direct.all
        for link in links:
            direct.end(link)
        return len(links)

    def may_link_again(self) -> None:
        """Do not wait for a while after a direct link has ended."""
        from echannel_ray.session import endpoint_for

        endpoint_for(None).direct._not_before.clear()

    def limit_direct_links(self, most: int, idle_seconds: float = 10.0) -> None:
        """Have fewer of them, and give them up earlier."""
        from echannel_ray.endpoint import direct_links
        from echannel_ray.session import endpoint_for

        direct_links.MAX_DIRECT_LINKS = most
        direct_links.IDLE_SECONDS = direct_links.MOST_IDLE_SECONDS = idle_seconds
        endpoint_for(None).direct._due_look = 0.0

    def malformed(self) -> int:
        """How many frames and packs its endpoint has skipped, as they made no sense."""
        from echannel_ray.session import endpoint_for

        return endpoint_for(None).incoming.malformed

    def fork(self) -> int:
        """A child that does nothing until it is killed; its pid."""
        child = os.fork()
        if not child:
            while True:
                signal.pause()
        return child

    def rss(self) -> int:
        gc.collect()
        return int(psutil.Process().memory_info().rss)


class Consumer(Process):
    """Subscribes, and checks what arrives. `pause_seconds` makes it slow; `hold` makes it never return."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self._checkers: dict[str, Checker] = {}
        self._subscriptions: dict[str, ec.Subscription] = {}
        self._released = threading.Event()

    def subscribe(self, channel: str, pause_seconds: float = 0.0, hold: bool = False, group: str | None = None) -> None:
        checker = self._checkers[channel] = Checker()
        if group is not None:
            checker.numbers = []
        released = self._released

        def handle(event: bytes) -> None:
            if hold:
                released.wait()
            if pause_seconds:
                released.wait(pause_seconds)
            checker(event)

        self._subscriptions[channel] = ec.channel(channel).subscribe(
            handle if hold or pause_seconds else checker, group=group, on_error=self._gaps(channel).append
        )

    def _gaps(self, channel: str) -> list[Any]:
        gaps: list[Any] = []
        setattr(self, f"gaps_{channel}", gaps)
        return gaps

    def gaps(self, channel: str) -> list[Any]:
        return list(getattr(self, f"gaps_{channel}"))

    def leave(self) -> None:
        """Leave at once, without waiting for anything."""
        from echannel_ray.session import session_for

        session_for(None)._end()

    def release(self) -> None:
        self._released.set()

    def progress(self, channel: str) -> dict[int, int]:
        return dict(self._checkers[channel].last)

    def numbers(self, channel: str) -> list[int]:
        return list(self._checkers[channel].numbers or ())

    def faults(self, channel: str) -> list[str]:
        return self._checkers[channel].faults

    def stats(self, channel: str) -> Any:
        return self._subscriptions[channel].stats()

    def publish_numbered(self, channel: str, count: int) -> None:
        """Publish so many, as fast as can be, in a thread."""

        def publish() -> None:
            with ec.channel(channel).producer() as producer:
                for number in range(1, count + 1):
                    producer.deliver(numbered(1, number)).result(timeout=30)

        threading.Thread(target=publish, daemon=True).start()


class Load(Process):
    """Publishes numbered events on a thread of its own until it is told to stop."""

    def __init__(self, namespace: str, number: int) -> None:
        ec.connect(namespace=namespace)
        self._number = number
        self.published = 0
        self.longest_wait = 0.0
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer: ec.Producer | None = None

    def start(
        self, channel: str, burst: int = 50, pause_seconds: float = 0.005, size_bytes: int = _EVENT_BYTES,
        overflow: str = "block",
    ) -> None:  # fmt: skip
        self._producer = ec.channel(channel).producer(overflow=overflow)
        self._thread = threading.Thread(target=self._run, args=(burst, pause_seconds, size_bytes), daemon=True)
        self._thread.start()

    def _run(self, burst: int, pause_seconds: float, size_bytes: int) -> None:
        assert self._producer is not None
        publish = self._producer.publish
        try:
            while not self._stopping.wait(pause_seconds):
                began = time.monotonic()
                for _ in range(burst):
                    publish(numbered(self._number, self.published + 1, size_bytes))
                    self.published += 1
                self.longest_wait = max(self.longest_wait, time.monotonic() - began)
        except BaseException as error:
            self._error = error

    def start_another(self, channel: str) -> None:
        """Publish on another channel too, as producer 2."""
        self._stopping_another = threading.Event()
        producer = ec.channel(channel).producer()

        def publish() -> None:
            number = 0
            while not self._stopping_another.wait(0.0005):
                for _ in range(5):
                    number += 1
                    producer.publish(numbered(2, number))
            producer.close()

        self._another = threading.Thread(target=publish, daemon=True)
        self._another.start()

    def stop_another(self) -> None:
        self._stopping_another.set()
        self._another.join(30)

    def progress(self) -> int:
        if self._error is not None:
            raise self._error
        return self.published

    def waited(self) -> float:
        return self.longest_wait

    def stop(self, timeout: float = 30) -> int:
        """How many there were; all of them are acknowledged then."""
        self._stopping.set()
        assert self._thread is not None
        assert self._producer is not None
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"publish() still waits after {self.published} events")
        if self._error is not None:
            raise self._error
        self._producer.drain(timeout)
        return self.published


ConsumerActor = ray.remote(Consumer)
LoadActor = ray.remote(Load)
