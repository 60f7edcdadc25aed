"""What a manager has asked a concentrator and was not answered yet.

The concentrator may be started again at any time, and the link with it. Who asks need not know: what is open is asked
again on each new link. So who answers has to bear that it comes twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from echannel_ray.core import frames
from echannel_ray.transport import wire


class OpenQuestions:
    """The questions to one concentrator; used on the loop of the manager's actor."""

    def __init__(self, kind: int, send: Callable[[bytes], object]) -> None:
        """`kind` is the type of their frames; `send` sends one by the link that there is, or drops it."""
        self._kind = kind
        self._send = send
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[bytes, asyncio.Future[bytes]]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._open)

    async def ask(self, message: object, timeout: float | None = None) -> bytes:
        """The answer, however many links that takes; `TimeoutError` where it does not come in time."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        frame = frames.frame(self._kind, frames.REQUEST_ID.pack(number) + wire.encode(message))
        self._open[number] = frame, answer
        self._send(frame)
        # Not `wait_for`, which takes a task and as long as a hop: nearly all answers come in time.
        timer = answer.get_loop().call_later(timeout, _give_up, answer) if timeout is not None else None
        try:
            return await answer
        finally:
            del self._open[number]
            if timer is not None:
                timer.cancel()

    def repeat(self) -> None:
        """Ask all of it again: there is a new link."""
        for frame, _ in [*self._open.values()]:
            self._send(frame)

    def answered(self, body: bytes) -> None:
        """Take in the body of a frame with an answer."""
        (number,) = frames.REQUEST_ID.unpack_from(body)
        if number in self._open:
            _, answer = self._open[number]
            if not answer.done():  # else it came by two links
                answer.set_result(body[frames.REQUEST_ID.size :])


def _give_up(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("it was not answered in time"))
