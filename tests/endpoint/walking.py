"""A producer's endpoint, a concentrator's loop and a consumer's endpoint in one thread, for who follows an event."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from typing_extensions import override

import echannel_ray
from echannel_ray.actors import log_host
from echannel_ray.actors.hub import Hub, HubLink
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.core.frames import MAX_FRAME_BYTES
from echannel_ray.core.messages import Consumer, LogAddress, Membership
from echannel_ray.core.packing import Packing
from echannel_ray.core.relay import Relay
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.logs.entries import LogBounds
from echannel_ray.logs.store import Store
from echannel_ray.producers.publisher import Publisher
from echannel_ray.retained import log_calls
from echannel_ray.retained.log_reader import LogReader
from echannel_ray.retained.log_server import LogServer
from echannel_ray.retained.log_sink import LogSink

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
        taken, self.to_read = self.to_read[: len(view)], self.to_read[len(view) :]
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


class Processes:
    """The endpoints of some processes of one node, and its concentrator's loop. All happens when a test says so."""

    def __init__(self, count: int) -> None:
        self.seen: list[Any] = []
        self.endpoints = [self._endpoint() for _ in range(count)]
        owner: Any = SimpleNamespace()
        self.hub = Hub("default", 1, 1, Relay(1), owner)
        self.hub._now = 0.0
        self.links = {each: self._link(each) for each in self.endpoints}

    def _endpoint(self) -> ProcessEndpoint:
        wire: Any = Wire()
        made: Any = ProcessEndpoint("default", 1, lambda endpoint: wire)
        made.connection = wire
        made.crew.ticking = True
        made.crew.depart_at = lambda due_at: None
        made.ready = []
        made.crew.submit = made.ready.append
        made.incoming._wait = lambda timeout_seconds: [made.incoming._main]
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

    def inbox(self, endpoint: ProcessEndpoint) -> Inbox:
        inbox = Inbox(endpoint, 1, "c", None, "", partial(FunctionDriver, self.seen.append))
        inbox.add_version(0, None)
        endpoint.open_inbox(inbox)
        return inbox

    def pass_on(self) -> None:
        """All that is written is read, until nothing is."""
        both: list[tuple[Any, Any]] = [*self.links.items()]
        for _ in range(4):
            for endpoint, link in both:
                link.connection.to_read = endpoint.connection.take()
                while link.connection.to_read:
                    self.hub._readable(link)
            for endpoint, link in both:
                endpoint.connection.to_read = link.connection.take()
                while endpoint.connection.to_read:
                    endpoint.incoming.read(endpoint.connection, 0)
                self.work(endpoint)
                endpoint.outgoing.write()

    def work(self, endpoint: Any) -> None:
        """What the threads of a process do."""
        while endpoint.ready:
            endpoint.ready.pop(0).run()


class Line(Processes):
    """A producer, and a consumer in another process of its node."""

    def __init__(self) -> None:
        super().__init__(2)
        self.producing, consuming = self.endpoints
        inbox = self.inbox(consuming)
        packing = Packing(degree=FULL_PACK)
        self.publisher = Publisher(self.producing, "c", 1, "block", WINDOW_BYTES, packing)
        consumer = Consumer(1, consuming.id, inbox.number, None)
        self.publisher.apply(Membership("c", 1, 1, (consumer,), False, 1))
        for _ in range(2):  # then it is frequent, and armed
            self.producing.crew.ticks += 1
            self.publisher.publish(b"earlier")
        self.publish(b"earlier")
        self.deliver(b"earlier")
        assert self.publisher.sink._plain_room > 1

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


class LoggedLine(Processes):
    """A producer, its node's log, and a consumer that reads it, each in a process of its own."""

    def __init__(self, packing: Packing = Packing()) -> None:  # noqa: B008 (it is frozen)
        super().__init__(3)
        producing, self.keeping, consuming = self.endpoints
        with mock.patch("threading.Thread"):
            self.log_server = LogServer("c", Store(None, LogBounds(WINDOW_BYTES, None)))
        self.log_server._thread = threading.current_thread()
        handlers = dict.fromkeys(log_host._QUESTIONS, self.log_server.ask)
        self.keeping.calls.serve(handlers, log_calls.ANSWERS, at_once=True)
        for each in (producing, consuming):
            each.calls.serve({}, log_calls.ANSWERS)
        address = LogAddress(1, self.keeping.id, self.log_server.store.log)
        self.publisher = Publisher(producing, "c", 1, "block", WINDOW_BYTES, packing, sink=LogSink)
        requests: Any = producing.requests
        requests.ask = lambda *about: address
        self.publisher.sink.begin(Membership("c", 1, 1, (), False, 1))
        inbox = self.inbox(consuming)
        reader = inbox.supply = LogReader(consuming, inbox, "new")
        reader.begin(Membership("c", 1, 1, (), False, 1), None)
        reader.logs_are([address])
        self.work(consuming)
        self.pass_on()
        self.publish(b"earlier")

    def publish(self, event: bytes) -> None:
        """Up to the report that it was handled."""
        self.publisher.publish(event)
        self.pass_on()

    @override
    def work(self, endpoint: Any) -> None:
        super().work(endpoint)
        jobs = self.log_server._jobs
        while endpoint is self.keeping and not jobs.empty():
            job: Any = jobs.get()
            self.log_server._perform(*job)


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
