"""Between threads and event loops: blocking calls for coroutines, and what other threads tell a loop.

Each such call has a daemon thread of its own. An executor would keep the process from ending while a call waits for a
consumer that hangs, as the threads of executors are joined at exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(action: Callable[[], T], undo: Callable[[T], Any] | None = None) -> T:
    """Await a blocking call. If the caller is cancelled, the call goes on, and `undo` gets its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = action()
        except BaseException as error:
            call_in_loop(loop, _fail, future, error)
            return
        if not call_in_loop(loop, resolve, result) and undo is not None:
            undo(result)

    def resolve(result: T) -> None:
        if not future.cancelled():
            future.set_result(result)
        elif undo is not None:
            _start(lambda: undo(result))

    _start(run)
    return await future


def _start(target: Callable[[], Any]) -> None:
    threading.Thread(target=target, name="echannel-call", daemon=True).start()


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)


@contextmanager
def meanwhile(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Have this called each so many seconds while what is within runs, by a thread, and once more at its end."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(seconds):
            call()

    thread = threading.Thread(target=run, name="echannel-meanwhile", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        call()


def wake(future: asyncio.Future[None]) -> None:
    """Have a future of any loop be done, if somebody waits for it still."""
    call_in_loop(future.get_loop(), _be_done, future)


def _be_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> bool:
    """Have a loop call this soon; False where it is closed, so that nobody waits there any more."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True
