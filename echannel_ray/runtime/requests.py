"""What this process asks of managers, through its concentrator; asked again after the link was lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.runtime.crew import Waiter
from echannel_ray.runtime.waiting import deadline_of
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint


class Request(Waiter):
    """A question to a manager; requests are such that asking twice does no harm."""

    __slots__ = ("answer", "is_awaited", "payload")

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self.payload = payload
        self.answer: bytes | errors.EChannelError | None = None
        self.is_awaited = True


class Requests:
    """The requests of one endpoint to managers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._open: dict[int, Request] = {}
        self._next = 1

    def ask(self, message: object, timeout_seconds: float | None = None, what: str = "the answer") -> Any:
        """Ask, and wait for the answer."""
        return self.ask_all([message], timeout_seconds, what)[0]

    def ask_all(
        self, messages: Iterable[object], timeout_seconds: float | None = None, what: str = "the answers"
    ) -> list[Any]:
        """Ask several things at once, and wait for all the answers."""
        endpoint = self._endpoint
        asked: dict[int, Request] = {}
        encoded = [wire.encode(message) for message in messages]
        with endpoint.lock:
            endpoint.check_usable()
            for payload in encoded:
                number = self._next
                self._next += 1
                request = asked[number] = self._open[number] = Request(payload)
                self._put(number, request)
        endpoint.outgoing.write()
        deadline = deadline_of(timeout_seconds)
        try:
            for request in asked.values():
                if not endpoint.crew.wait(request, deadline):
                    raise TimeoutError(f"{what} did not come within {timeout_seconds} s")
        finally:
            for number in asked:
                self._open.pop(number, None)
        return [self._answer(request) for request in asked.values()]

    def _answer(self, request: Request) -> Any:
        if isinstance(request.answer, errors.EChannelError):
            raise request.answer
        if request.answer is None:
            self._endpoint.check_usable()
            raise errors.Disconnected("this process left its namespace while it waited for an answer")
        return wire.decode(request.answer)

    def tell(self, message: object) -> None:
        """Ask without waiting. The answer only ends that it is asked again."""
        request = Request(wire.encode(message))
        request.is_awaited = False
        with self._endpoint.lock:
            number = self._next
            self._next += 1
            self._open[number] = request
            self._put(number, request)
        self._endpoint.outgoing.write()

    def tell_once(self, message: object) -> None:
        """Say what must not be said twice: it may be lost with the link."""
        with self._endpoint.lock:
            self._put(0, Request(wire.encode(message)))
        self._endpoint.outgoing.write()

    def answered(self, number: int, payload: bytes) -> None:
        """Take in an answer."""
        request = self._open.get(number)
        if request is not None:
            request.answer = payload
            request.set()
            if not request.is_awaited:
                del self._open[number]

    def repeat(self) -> None:
        """Ask again what was not answered: the link is a new one. Under the endpoint's lock."""
        for number, request in [*self._open.items()]:
            if not request.done:
                self._put(number, request)

    def fail(self, error: errors.EChannelError) -> None:
        """End all requests: no answer will come any more."""
        for request in [*self._open.values()]:
            request.answer = error
            request.set()

    def _put(self, number: int, request: Request) -> None:
        self._endpoint.outgoing.put(frames.frame(frames.REQUEST, frames.REQUEST_ID.pack(number) + request.payload))
