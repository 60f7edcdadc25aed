"""What an actor says of itself at its door, to the process that runs its pod (see `transport.door`).

All say their `state`, and which of those that they need are `silent`: so a pod without a manager knows of the managers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from echannel_ray.actors import startup
from echannel_ray.transport.door import Door, open_door

SERVING: Final = "serving"
_ANSWER_SECONDS: Final = 1.0


def open_actors_door(
    name: str,
    answers: Mapping[str, Callable[..., Coroutine[Any, Any, Any]]],
    answered: Callable[[str], Any] | None = None,
) -> Door | None:
    """A door whose questions are answered on the loop of this actor, so that one that is stuck is found silent."""
    loop = asyncio.get_running_loop()

    def on_loop(answer: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return lambda **arguments: asyncio.run_coroutine_threadsafe(answer(**arguments), loop).result()

    return open_door(name, {question: on_loop(answer) for question, answer in answers.items()}, answered)


async def silent_among(names: Iterable[str], awaited: Mapping[str, Awaitable[Any]] | None = None) -> list[str]:
    """Which of these actors do not say within a second that they serve, and what else does not come in that time."""
    looks = {name: startup.ask(name, "state", timeout=_ANSWER_SECONDS) for name in names}
    found = await asyncio.gather(*(_complaint(*look) for look in {**looks, **(awaited or {})}.items()))
    return [complaint for complaint in found if complaint]


async def _complaint(name: str, awaitable: Awaitable[Any]) -> str:
    try:
        state = await asyncio.wait_for(awaitable, _ANSWER_SECONDS)
    except Exception:  # Ray's own errors among them
        return f"{name} does not answer"
    return f"{name} is {state}" if isinstance(state, str) and state != SERVING else ""
