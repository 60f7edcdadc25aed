"""What this process asks of managers, through its concentrator: such that asking twice does no harm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.endpoint.calls import Call
from echannel_ray.endpoint.deadlines import deadline_of
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint


class Requests:
    """The requests of one endpoint to managers, as its calls have them."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint

    def ask(self, message: object, timeout_seconds: float | None = None, what: str = "the answer") -> Any:
        """Ask, and wait for the answer."""
        return self.ask_all([message], timeout_seconds, what)[0]

    def ask_all(
        self, messages: Iterable[object], timeout_seconds: float | None = None, what: str = "the answers"
    ) -> list[Any]:
        """Ask several things at once, and wait for all the answers."""
        endpoint = self._endpoint
        encoded = [wire.encode(message) for message in messages]
        with endpoint.lock:
            endpoint.check_usable()
            asked = [endpoint.calls.request(payload) for payload in encoded]
        endpoint.outgoing.write()
        deadline = deadline_of(timeout_seconds)
        try:
            for call in asked:
                if not endpoint.crew.wait(call, deadline):
                    raise TimeoutError(f"{what} did not come within {timeout_seconds} s")
        finally:
            endpoint.calls.forget(asked)
        return [self._answer(call) for call in asked]

    def _answer(self, call: Call) -> Any:
        answer = call.result()
        if answer is None:
            self._endpoint.check_usable()
            raise errors.Disconnected("this process left its namespace while it waited for an answer")
        return wire.decode(answer)

    def tell(self, message: object) -> None:
        """Ask without waiting. The answer only ends that it is asked again."""
        payload = wire.encode(message)
        with self._endpoint.lock:
            self._endpoint.calls.request(payload)
        self._endpoint.outgoing.write()

    def tell_once(self, message: object) -> None:
        """Say what must not be said twice: it may be lost with the link."""
        payload = frames.REQUEST_ID.pack(0) + wire.encode(message)
        with self._endpoint.lock:
            self._endpoint.outgoing.put(frames.frame(frames.REQUEST, payload))
        self._endpoint.outgoing.write()
