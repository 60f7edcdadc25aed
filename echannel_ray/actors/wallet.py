"""The credentials of a concentrator: where they come from, and when others take their place."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.mounted_credentials import MountedCredentials, mounted_directory
from echannel_ray.transport.security import Credentials

logger = logging.getLogger(__name__)

# Files have to be seen twice before they count: what was mounted is in use after two of these.
LOOK_SECONDS = 0.5


class Wallet:
    """The credentials of one concentrator; used on its actor's loop."""

    def __init__(
        self, node: int, ask_for_others: Callable[[], Awaitable[Credentials]], changed: Callable[[Credentials], None]
    ) -> None:
        """`changed` is told of the first credentials too."""
        self._node = node
        self._ask_for_others = ask_for_others
        self._changed = changed
        directory = mounted_directory()
        self._mounted = None if directory is None else MountedCredentials(directory)
        self._renew_at = datetime.max.replace(tzinfo=timezone.utc)
        self.current: Credentials | None = None
        self.failures = 0  # files that took the place of good ones, and were no good

    def take(self, issued: Credentials) -> None:
        """What the name server has issued: of use where nothing is mounted."""
        credentials = issued if self._mounted is None else self._mounted.current
        now = datetime.now(timezone.utc)
        self._renew_at = now + (issued.not_after - now) / 2
        self._use(credentials)

    def take_revoked(self, revoked: tuple[tuple[int, int], ...]) -> bool:
        """What was revoked of all that the name server has issued; whether ours was, so that others are to be had."""
        if self.current is None or self._mounted is not None or revoked == self.current.revoked:
            return False
        before = dict(self.current.revoked)
        self._use(dataclasses.replace(self.current, revoked=revoked))
        return before.get(self._node) != dict(revoked).get(self._node)

    async def look(self) -> None:
        """Every now and then: are there other files, or is it time for another certificate?"""
        if self._mounted is not None:
            await self._look_at_files(self._mounted)
        elif datetime.now(timezone.utc) > self._renew_at:
            await self.renew()

    async def renew(self) -> None:
        """Get a certificate, or another one, from the name server."""
        self.take(await self._ask_for_others())

    async def _look_at_files(self, mounted: MountedCredentials) -> None:
        try:
            if not await asyncio.to_thread(mounted.changed):
                return
        except NotAuthorised as error:
            self.failures += 1
            logger.warning("the credentials that were read before stay in use: %s", error)
            return
        logger.info("other credentials were mounted; they are good until %s", mounted.current.not_after)
        self._use(mounted.current)

    def _use(self, credentials: Credentials) -> None:
        self.current = credentials
        self._changed(credentials)

    def describe(self) -> dict[str, Any] | None:
        """What who watches is told of the credentials; nothing of it is secret."""
        if self.current is None:
            return None
        return {
            "source": "issued" if self._mounted is None else "mounted",
            "until": self.current.not_after.isoformat(),
            "sha256": self.current.fingerprint,
            "failures": self.failures,
        }
