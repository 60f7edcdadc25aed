"""The server's side of the process that looks at the namespace: starts it, asks it, and starts it anew when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from echannel_ray.errors import Disconnected
from echannel_ray.page import looker_frames
from echannel_ray.page.picture import Picture

logger = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 30.0  # a round of thousands of channels takes some; then it hangs, and is ended
_LEAVE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
_MAX_WAITING: Final = 200  # events of one tap


class Telescope:
    """The looking process of one server. Whatever it is asked raises `Disconnected` while there is nobody to answer."""

    def __init__(self, namespace: str, address: str | None) -> None:
        self._command = [sys.executable, "-m", "echannel_ray.page.looker"]
        self._arguments = [namespace, *([address] if address else [])]
        self._calls = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[looker_frames.Answer]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.problem = "joining Ray"  # why there is nobody to answer
        self.has_joined = False  # at least once

    @property
    def pid(self) -> int:
        """The id of the process that looks; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def run(self) -> None:
        """Keep a process running that looks, until cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            joined = False
            try:
                joined = await self._run_once()
            finally:
                self._lost()
            pause = _FIRST_PAUSE_SECONDS if joined else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def look(self, afresh: bool) -> Picture:
        """A picture of the namespace now."""
        call = next(self._calls)
        with self._asked(call, looker_frames.LookAround(call, afresh)) as answers:
            try:
                answer = await asyncio.wait_for(answers.get(), _ANSWER_SECONDS)
            except (asyncio.TimeoutError, TimeoutError):
                answer = looker_frames.LookFailed(call, f"no answer within {_ANSWER_SECONDS:g} s")
            if isinstance(answer, looker_frames.PictureSeen):
                return answer.picture
            # Its Ray may be gone without its knowing: a driver waits for a minute. Another one finds what there is now.
            self._end_process()
            self.problem = (
                answer.reason if isinstance(answer, looker_frames.LookFailed) else "an answer to something else"
            )
            raise Disconnected(self.problem)

    async def tap(self, channel: str, rate: float) -> AsyncGenerator[looker_frames.Tapped, None]:
        """Events as they come; the first has no text, and says that it is open."""
        call = next(self._calls)
        with self._asked(call, looker_frames.OpenTap(call, channel, rate)) as answers:
            try:
                while isinstance(answer := await answers.get(), looker_frames.Tapped):
                    yield answer
                raise Disconnected(answer.reason if isinstance(answer, looker_frames.LookFailed) else "it has ended")
            finally:
                self._ask(looker_frames.CloseTap(call))

    # ---- the process ----

    async def _run_once(self) -> bool:
        """Run one process that looks, until it ends; whether it had joined."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno()), *self._arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # Ray's own complaints; what there is to say comes as `Failed`
                start_new_session=True,  # Ctrl-C is for the server, which ends it
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        joined = False
        try:
            while True:
                head = await reader.readexactly(looker_frames.LENGTH_BYTES)
                answer = looker_frames.answer(await reader.readexactly(looker_frames.length_of(head)))
                if isinstance(answer, looker_frames.LookerJoined):
                    self._writer, joined, self.has_joined, self.problem = writer, True, True, ""
                elif isinstance(answer, looker_frames.LookFailed) and answer.call == 0:
                    self.problem = answer.reason
                elif (
                    not isinstance(answer, looker_frames.LookerJoined)
                    and (queue := self._waiting.get(answer.call)) is not None
                ):
                    _put(queue, answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            if joined and not self.problem:
                self.problem = "the Ray that was looked at has ended"
            return joined
        finally:
            self._writer = None
            writer.close()  # at which it leaves
            await asyncio.shield(asyncio.to_thread(self._wait_for_process))

    def _wait_for_process(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                self._end_process()
                self._process.wait()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()  # it keeps nothing: it is a consumer at most, and is let go of

    def _lost(self) -> None:
        logger.debug("nobody looks at the namespace: %s", self.problem)
        for call, queue in self._waiting.items():
            _put(queue, looker_frames.LookFailed(call, self.problem))

    # ---- asking ----

    @contextlib.contextmanager
    def _asked(self, call: int, question: looker_frames.Question) -> Iterator[asyncio.Queue[looker_frames.Answer]]:
        if self._writer is None:
            raise Disconnected(self.problem)
        answers = self._waiting[call] = asyncio.Queue[looker_frames.Answer](_MAX_WAITING)
        try:
            self._ask(question)
            yield answers
        finally:
            del self._waiting[call]

    def _ask(self, question: looker_frames.Question) -> None:
        if self._writer is not None:
            self._writer.write(looker_frames.packed(question))


def _put(queue: asyncio.Queue[looker_frames.Answer], answer: looker_frames.Answer) -> None:
    """What is too much for a viewer who reads slowly is left out; that it is over is told."""
    if queue.full():
        if isinstance(answer, looker_frames.Tapped):
            return
        queue.get_nowait()
    queue.put_nowait(answer)
