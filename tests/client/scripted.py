"""An endpoint whose concentrator is a script: what it asks is kept, and answered at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from echannel_ray import errors
from echannel_ray.core import frames, messages
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Peer, PlainConnection

NODE = 7


class Script:
    """The far end of the link. `refusals` are raised where such a request comes, `held` ones are not answered. Channels
    have what is `derived`; `at` such a request something is done before it is answered.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.asked: list[Any] = []
        self.refusals: dict[type, Exception] = {}
        self.held: set[type] = set()
        self.derived: tuple[messages.Derived, ...] = ()
        self.at: dict[type, Callable[[], object]] = {}
        self.definition = messages.Definition("c", None, {}, incarnation=3)
        self._version = 0
        self._endpoint = 0
        self._consumers: dict[int, messages.Consumer] = {}
        self._changed = threading.Condition()
        self._socket = sock
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, endpoint: ProcessEndpoint) -> None:
        """Answer this endpoint."""
        self._endpoint = endpoint.id
        self._thread.start()

    def end(self) -> None:
        """When the endpoint is closed."""
        self._thread.join(20)
        self._socket.close()

    def of(self, kind: type, count: int = 1) -> list[Any]:
        """What was asked of this kind, as soon as it is so much."""

        def found() -> list[Any]:
            return [each for each in self.asked if isinstance(each, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, 20), self.asked
            return found()

    @property
    def kinds(self) -> list[type]:
        """What was asked, in order."""
        return [type(each) for each in self.asked]

    def _run(self) -> None:
        # An endpoint may end with answers unread.
        with contextlib.suppress(ConnectionError), self._socket.makefile("rb") as link:
            while header := link.read(frames.HEADER_BYTES):
                length, kind, _, _ = frames.HEADER.unpack(header)
                body = link.read(length)
                if kind == frames.REQUEST:
                    self._take(body)

    def _take(self, body: bytes) -> None:
        (number,) = frames.REQUEST_ID.unpack_from(body)
        message = wire.decode(body[frames.REQUEST_ID.size :])
        if isinstance(message, wire.Registered | wire.Told):
            return
        with self._changed:
            self.asked.append(message)
            self._changed.notify_all()
        if type(message) in self.held:
            return
        self.at.pop(type(message), int)()
        refusal = self.refusals.get(type(message))
        if isinstance(refusal, errors.EChannelError):
            answer = wire.encode_error(refusal)
        else:
            answer = wire.encode(self._answer(message))
        self._socket.sendall(frames.frame(frames.REPLY, frames.REQUEST_ID.pack(number) + answer))

    def _answer(self, message: Any) -> Any:
        match message:
            case messages.OpenChannel() | messages.LookUpChannel():
                return self.definition
            case messages.Derive():
                return messages.Derived(f"{message.handle:040x}", message.parent, message.shipment, self._endpoint)
            case messages.Subscribe():
                number = message.subscription
                consumer = messages.Consumer(NODE, self._endpoint, number, message.group, message.parent)
                self._consumers[number] = consumer
                self._version += 1
            case messages.Unsubscribe():
                self._consumers.pop(message.subscription, None)
                return None
            case messages.GetModulator():
                return self.derived[0]
            case messages.RegisterProducer():
                self._version = max(self._version, 1)
            case _:
                return None
        return self.membership()

    def membership(self) -> messages.Membership:
        """The newest; the code of what is derived has to be asked for."""
        derived = tuple(replace(each, shipment=replace(each.shipment, code=b"")) for each in self.derived)
        consumers = tuple(self._consumers.values())
        return messages.Membership(
            "c", 1, self._version, consumers, incarnation=self.definition.incarnation, derived=derived
        )


def scripted(decide: Callable[[Script], None] = lambda script: None) -> tuple[ProcessEndpoint, Script]:
    """An endpoint, at work, and its script."""
    near, far = socket.socketpair()
    script = Script(far)
    decide(script)
    endpoint = ProcessEndpoint("default", NODE, lambda _: PlainConnection(near, Peer("memory")))
    script.begin(endpoint)
    endpoint.start()
    return endpoint, script
