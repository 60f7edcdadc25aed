"""What a head takes with it when another one takes its place, and the rest of the cluster goes on (the state of Ray's
control service is in Redis): Ray gives up the actors that were pinned to it, and the concentrators have them made anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from echannel_ray.actors import startup

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class Restoration:
    """Has actors made anew that were lost with a head; one per concentrator, used on its actor's loop."""

    def __init__(
        self, namespace: str, managers: Callable[[], Sequence[str]], renew: Callable[[], Awaitable[Any]]
    ) -> None:
        """`renew` joins again, when the name server is another one: it has to know us, and signs with another key."""
        self._namespace = namespace
        self._managers = managers
        self._renew = renew
        self._name_server = ""  # that we have joined

    async def about_to_join(self) -> None:
        """Note which name server that is. One that takes its place meanwhile is joined again: that does no harm."""
        try:
            self._name_server = await _identity(startup.name_server_name(self._namespace))
        except Exception as error:  # as below
            logger.debug("namespace %r: its name server can't be looked up now: %s", self._namespace, error)

    async def run(self) -> None:
        """Look every now and then, for as long as this concentrator serves."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
            except Exception as error:  # without a control service nothing can be looked up, or made
                logger.debug("namespace %r: what is missing can't be made now: %s", self._namespace, error)

    async def _look(self) -> None:
        missing = [name for name in self._managers() if not await _identity(name)]
        known = await _identity(startup.name_server_name(self._namespace))
        if missing or not known:
            logger.warning(
                "namespace %r: Ray has given up its name server or managers: they are made anew", self._namespace
            )
            await asyncio.to_thread(startup.ensure_managers, self._namespace, len(self._managers()))
            known = await _identity(startup.name_server_name(self._namespace))
        if known and known != self._name_server:
            await self._renew()
            self._name_server = known


async def _identity(name: str) -> str:
    """The id of the actor that has this name; nothing where there is none."""
    try:
        handle = await asyncio.to_thread(startup.find, name)
    except LookupError:
        return ""
    return str(handle._actor_id.hex())
