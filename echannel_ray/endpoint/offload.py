"""Blocking calls for coroutines: each on a daemon thread of its own.

Not an executor: a call that waits for a consumer that hangs would keep the process from ending, as the threads of
executors are joined at exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
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
            _tell(loop, _fail, future, error)
            return
        if not _tell(loop, resolve, result) and undo is not None:
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


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False  # that loop is closed: nobody waits there any more
    return True
