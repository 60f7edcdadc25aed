"""What all parts of a namespace that run as actors do alike: work that nobody waits for, and their version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from echannel_ray.ids import WIRE_VERSION

logger = logging.getLogger(__name__)


class NamespaceActor:
    """A part of a namespace that runs as a Ray actor, on the actor's loop."""

    def __init__(self, description: str) -> None:
        self._description = description  # for the log
        self._tasks: set[asyncio.Task[Any]] = set()

    async def wire_version(self) -> int:
        """The version of the protocol that this part speaks."""
        return WIRE_VERSION

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: %r", self._description, task.exception(), exc_info=task.exception())
