"""A producer's endpoint, a concentrator's loop and a consumer's endpoint in one thread, for who follows an event."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import echannel_ray
from echannel_ray.actors.hub import Hub, HubLink
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.core.frames import MAX_FRAME_BYTES
from echannel_ray.core.messages import Consumer, Membership
from echannel_ray.core.packing import Packing
from echannel_ray.core.relay import Relay
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.producers.publisher import Publisher

PACKAGE = str(Path(echannel_ray.__file__).parent) + "/"
WINDOW_BYTES = 8 << 20
FULL_PACK = 64


class Wire:
    """A connection whose other end a test holds."""

    peer = SimpleNamespace(kind="unix")

    def __init__(self, number: int = -1) -> None:
        self._number = number
        self.written: list[bytes] = []
        self.to_read = b""

    def fileno(self) -> int:
        return self._number

    def send(self, parts: Any) -> int:
        self.written += [bytes(part) for part in parts]
        return sum(map(len, parts))

    def recv_into(self, view: memoryview) -> int | None:
        taken, self.to_read = self.to_read, b""
        view[: len(taken)] = taken
        return len(taken) or None

    def take(self) -> bytes:
        taken = b"".join(self.written)
        self.written.clear()
        return taken

    def setblocking(self, blocking: bool) -> None:
        pass

    def wants_write(self) -> bool:
        return False

    def pending(self) -> int:
        return 0


class Line:
    """A producer, and a consumer in another process of its node. All happens when a test says so."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.producing, self.consuming = (self._endpoint() for _ in range(2))
        owner: Any = SimpleNamespace()
        self.hub = Hub("default", 1, 1, Relay(1), owner)
        self.hub._now = 0.0
        self.links = {each: self._link(each) for each in (self.producing, self.consuming)}
        inbox = Inbox(self.consuming, 1, "c", None, "", partial(FunctionDriver, self.seen.append))
        inbox.add_version(0, None)
        self.consuming.open_inbox(inbox)
        packing = Packing(degree=FULL_PACK)
        self.publisher = Publisher(self.producing, "c", 1, "block", WINDOW_BYTES, packing)
        consumer = Consumer(1, self.consuming.id, inbox.number, None)
        self.publisher.apply(Membership("c", 1, 1, (consumer,), False, 1))
        for _ in range(2):  # then it is frequent, and armed
            self.producing.crew.ticks += 1
            self.publisher.publish(b"earlier")
        self.publish(b"earlier")
        self.deliver(b"earlier")
        assert self.publisher.sink._plain_room > 1

    def _endpoint(self) -> ProcessEndpoint:
        wire: Any = Wire()
        made: Any = ProcessEndpoint("default", 1, lambda endpoint: wire)
        made.connection = wire
        made.crew.ticking = True
        made.crew.depart_at = lambda due_at: None
        made.ready = []
        made.crew.submit = made.ready.append
        made.incoming._wait = lambda connection, timeout_seconds: True
        endpoint: ProcessEndpoint = made
        return endpoint

    def _link(self, endpoint: ProcessEndpoint) -> HubLink:
        number = 1000 + len(self.hub._links)
        wire: Any = Wire(number)
        link = HubLink(wire, 0.0)
        greeting: Any = SimpleNamespace()
        link.hello = greeting
        link.endpoint = endpoint.id
        link.framer.max_bytes = MAX_FRAME_BYTES
        self.hub._links[number] = link
        self.hub.relay.endpoint_attached(endpoint.id, link)
        return link

    def publish(self, event: bytes) -> None:
        """By the short way, and up to the report that it was handled."""
        self.publisher.publish(event)
        self.tick()

    def tick(self) -> None:
        with self.producing.lock:
            self.producing._absorb(time.monotonic())
            self.producing.flush_all()
        self.producing.outgoing.write()
        self.pass_on()

    def deliver(self, event: bytes) -> int:
        delivery = self.publisher.deliver(event)
        self.pass_on()
        return delivery.result(0).consumers

    def pass_on(self) -> None:
        """All that is written is read, until nothing is."""
        both: list[tuple[Any, Any]] = [*self.links.items()]
        for _ in range(4):
            for endpoint, link in both:
                link.connection.to_read = endpoint.connection.take()
                if link.connection.to_read:
                    self.hub._readable(link)
            for endpoint, link in both:
                endpoint.connection.to_read = link.connection.take()
                if endpoint.connection.to_read:
                    endpoint.incoming.read(endpoint.connection, 0)
                while endpoint.ready:
                    endpoint.ready.pop(0).run()
                endpoint.outgoing.write()


def functions_of(act: Callable[[], object]) -> list[str]:
    """The functions of the package that are called, as "file:function", in order, each as often as it is called."""
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            owner = frame.f_locals.get("self")
            name = f"{_class_of(owner, code)}.{code.co_name}" if owner is not None else code.co_name
            called.append(f"{code.co_filename[len(PACKAGE) :]}:{name}")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return called


def _class_of(owner: Any, code: Any) -> str:
    """The class in which a method stands: `co_qualname` says so from Python 3.11 on only."""
    for each in type(owner).__mro__:
        found = vars(each).get(code.co_name)
        found = getattr(found, "fget", found)
        if getattr(found, "__code__", None) is code:
            return each.__name__
    return type(owner).__name__
