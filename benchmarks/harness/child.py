"""A child process that answers requests over a pipe: the processes of the baselines.

Started by `spawn`: the driver has Ray's threads, which don't survive a fork.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from echannel_ray.benchmarks.harness.closing import Closing

ANSWER_SECONDS = 60.0
EXIT_SECONDS = 5.0

_spawn = multiprocessing.get_context("spawn")


class Child(Closing):
    """Runs `main(pipe, *arguments)` in a process of its own; closing the pipe ends it."""

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_run, args=(main, theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def tell(self, request: Any) -> None:
        """Send a request; `answer` fetches what comes of it."""
        self._pipe.send(request)

    def answer(self) -> Any:
        """What the child sends next."""
        if not self._pipe.poll(ANSWER_SECONDS):
            raise TimeoutError(f"{self._process.name} gave no answer for {ANSWER_SECONDS:.0f} s")
        return self._pipe.recv()

    def ask(self, request: Any) -> Any:
        """`tell` and `answer`."""
        self.tell(request)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(EXIT_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(main: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends us
    # The parent closes the pipe to end a child, whatever the child is waiting for.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        main(pipe, *arguments)


def requests(pipe: Connection) -> Iterator[Any]:
    """The requests that arrive at a child, until its parent closes the pipe."""
    while True:
        yield pipe.recv()
