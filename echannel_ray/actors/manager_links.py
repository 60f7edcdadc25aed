"""The links of a concentrator to the managers, which dial it: endpoints' requests go up by them, pushes come down.

No Ray call is in the way of either: one takes a millisecond or more, and what installs a modulator needs three, one
inside the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from echannel_ray.actors.hub import Hub, HubLink
from echannel_ray.actors.open_questions import OpenQuestions
from echannel_ray.core import frames
from echannel_ray.transport import wire

Push = Callable[[int, bytes], Awaitable[bytes]]


class ManagerLinks:
    """What one concentrator and the managers say to each other; one per concentrator, used on its actor's loop."""

    def __init__(self, hub: Hub, push: Push, in_background: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        """`push` has an endpoint of this node take something in, and returns what it answers."""
        self._hub = hub
        self._push = push
        self._in_background = in_background
        self._loop = asyncio.get_running_loop()
        self._questions: dict[int, OpenQuestions] = {}

    async def ask(self, slot: int, endpoint: int, request: bytes) -> bytes:
        """What a manager answers to the request of an endpoint, as the endpoint gets it; when the manager is there."""
        return await self._to(slot).ask(wire.Asked(endpoint, request))

    def _to(self, slot: int) -> OpenQuestions:
        found = self._questions.get(slot)
        if found is None:
            found = self._questions[slot] = OpenQuestions(frames.REQUEST, partial(self._send, slot))
        return found

    def _send(self, slot: int, frame: bytes) -> None:
        self._hub.post(partial(self._hub.send_to_manager, slot, frame))

    # ---- what the hub tells; on its thread ----

    def attached(self, slot: int) -> None:
        """A manager has linked up: for the first time, or again."""
        self._loop.call_soon_threadsafe(lambda: self._to(slot).repeat())

    def replied(self, slot: int, body: bytes) -> None:
        """A manager has answered a request."""
        self._loop.call_soon_threadsafe(lambda: self._to(slot).answered(body))

    def pushed(self, link: HubLink, body: bytes) -> None:
        """A manager has something for endpoints of this node."""
        self._loop.call_soon_threadsafe(lambda: self._in_background(self._pass_on(link, body)))

    async def _pass_on(self, link: HubLink, body: bytes) -> None:
        number, message = body[: frames.REQUEST_ID.size], wire.decode(body[frames.REQUEST_ID.size :])
        if not isinstance(message, wire.ToBePushed):
            raise wire.MalformedMessage(f"a manager pushes to endpoints, and is not told {type(message).__name__}")
        answers = await asyncio.gather(*(self._push(endpoint, message.push) for endpoint in message.endpoints))
        frame = frames.frame(frames.PUSHED, number + wire.encode(wire.Confirmations(tuple(answers))))
        self._hub.post(partial(self._hub.send, link, frame))
