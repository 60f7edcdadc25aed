"""The links of a concentrator to the managers, which dial it: endpoints' requests go up by them, pushes come down.

All of it is on the hub's thread, as what is passed on between endpoints is: each change of threads takes as long as a
hop, and an installation has six of them. No Ray call is in the way either, which takes a millisecond or more.

Rules:

* A request that is open is asked again on each new link to its manager: so whoever dies, its endpoint need not know.
* An answer goes back by the link that brought the question: another one may lead to a successor, which counts anew.
* A push to an endpoint that is expected back goes out when it is back. What is not confirmed in time is `Unconfirmed`:
  the manager pushes again, if it still wants that.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echannel_ray.core import frames
from echannel_ray.core.messages import ManagerRequest, Unconfirmed
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.actors.hub import Hub, HubLink

# What an endpoint has not confirmed in this time is pushed to it again, if the manager still wants that: the link to it
# may have been lost, or it takes its time to make a modulator ready. Shorter than the time after which a manager takes
# this node for suspect.
CONFIRM_SECONDS: Final = 1.0
# What stands in for the answer of an endpoint that is not here any more, and of one that takes its time.
_GONE: Final = wire.encode(None)
_UNCONFIRMED: Final = wire.encode(Unconfirmed())

Answered = Callable[[int, ManagerRequest, bytes], object]
Confirmed = Callable[[list[bytes]], object]


class _OpenRequest(NamedTuple):
    slot: int
    endpoint: int
    request: int  # its number at the endpoint; 0 where that waits for no answer
    message: ManagerRequest
    frame: bytes


class _OpenPush:
    """One push, to several endpoints."""

    def __init__(self, endpoints: Iterable[int], confirmed: Confirmed) -> None:
        self.answers: list[bytes | None] = [None for _ in endpoints]
        self.missing = len(self.answers)
        self.give_up_at = time.monotonic() + CONFIRM_SECONDS
        self._confirmed = confirmed

    def answer(self, place: int, answer: bytes) -> None:
        if self.answers[place] is None:
            self.answers[place] = answer
            self.missing -= 1

    def end_if_complete(self) -> bool:
        if not self.missing:
            self._confirmed([each for each in self.answers if each is not None])
        return not self.missing


class ManagerLinks:
    """What one concentrator and the managers say to each other; one per concentrator, on the thread of its hub."""

    def __init__(self, hub: Hub, answered: Answered) -> None:
        """`answered` is told of each answer of a manager, after the endpoint that asked."""
        self._hub = hub
        self._answered = answered
        self._numbers = itertools.count(1)
        self._requests: dict[int, _OpenRequest] = {}
        self._pushes: list[_OpenPush] = []
        # What an endpoint has not confirmed, by endpoint and number: the push, its place there, and its frame.
        self._unconfirmed: dict[tuple[int, int], tuple[_OpenPush, int, bytes]] = {}

    # ---- requests ----

    def forward(self, slot: int, endpoint: int, request: int, message: ManagerRequest, payload: bytes) -> None:
        """Have a manager answer an endpoint's request, when there is a link to it."""
        number = next(self._numbers)
        asked = frames.REQUEST_ID.pack(number) + wire.encode(wire.Asked(endpoint, payload))
        opened = _OpenRequest(slot, endpoint, request, message, frames.frame(frames.REQUEST, asked))
        self._requests[number] = opened
        link = self._hub.managers.get(slot)
        if link is not None:
            self._hub.send(link, opened.frame)

    def attached(self, slot: int, link: HubLink) -> None:
        """A manager has linked up: for the first time, or again."""
        for each in self._requests.values():
            if each.slot == slot:
                self._hub.send(link, each.frame)

    def replied(self, body: bytes) -> None:
        """A manager has answered a request."""
        (number,) = frames.REQUEST_ID.unpack_from(body)
        answer = body[frames.REQUEST_ID.size :]
        opened = self._requests.pop(number, None)
        if opened is None:  # it came by two links
            return
        if opened.request:
            reply = frames.frame(frames.REPLY, frames.REQUEST_ID.pack(opened.request) + answer)
            self._hub.send_to_endpoint(opened.endpoint, reply)
        self._answered(opened.endpoint, opened.message, answer)

    # ---- pushes ----

    def pushed(self, link: HubLink, body: bytes) -> None:
        """A manager has something for endpoints of this node."""
        message: Any = wire.decode(body[frames.REQUEST_ID.size :])
        if not isinstance(message, wire.ToBePushed):
            raise frames.MalformedFrame(f"a manager pushes to endpoints, and is not told {type(message).__name__}")
        self.push(message.endpoints, message.push, partial(self._confirm, link, body[: frames.REQUEST_ID.size]))

    def _confirm(self, link: HubLink, number: bytes, answers: list[bytes]) -> None:
        self._hub.send(link, frames.frame(frames.PUSHED, number + wire.encode(wire.Confirmations(tuple(answers)))))

    def push(self, endpoints: Iterable[int], message: bytes, confirmed: Confirmed) -> None:
        """Have endpoints of this node take something in; `confirmed` is told, once, what each of them answers."""
        endpoints = tuple(endpoints)
        relay = self._hub.relay
        opened = _OpenPush(endpoints, confirmed)
        for place, endpoint in enumerate(endpoints):
            if endpoint not in relay.endpoints and endpoint not in relay.expected:
                opened.answer(place, _GONE)
                continue
            number = next(self._numbers)
            frame = frames.frame(frames.PUSH, frames.REQUEST_ID.pack(number) + message)
            self._unconfirmed[endpoint, number] = opened, place, frame
            self._hub.send_to_endpoint(endpoint, frame)
        if not opened.end_if_complete():
            self._pushes.append(opened)

    def confirmed(self, endpoint: int, number: int, answer: bytes) -> None:
        """An endpoint has confirmed a push."""
        found = self._unconfirmed.pop((endpoint, number), None)
        if found is not None:
            self._take_answer(*found[:2], answer)

    def endpoint_attached(self, endpoint: int) -> None:
        """A process of this node has linked up: it may have been waited for."""
        for (owner, _), (_, _, frame) in [*self._unconfirmed.items()]:
            if owner == endpoint:
                self._hub.send_to_endpoint(endpoint, frame)

    def endpoint_gone(self, endpoint: int) -> None:
        """A process of this node has died or left."""
        for key in [key for key in self._unconfirmed if key[0] == endpoint]:
            self._take_answer(*self._unconfirmed.pop(key)[:2], _GONE)

    def _take_answer(self, opened: _OpenPush, place: int, answer: bytes) -> None:
        opened.answer(place, answer)
        if opened.end_if_complete():
            self._pushes.remove(opened)

    def tick(self, now: float) -> None:
        """Every now and then: wait no longer for who takes its time."""
        late = {each for each in self._pushes if each.give_up_at <= now}
        for key, (opened, place, _) in [*self._unconfirmed.items()] if late else ():
            if opened in late:
                del self._unconfirmed[key]
                self._take_answer(opened, place, _UNCONFIRMED)
