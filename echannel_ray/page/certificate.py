"""The certificate of the page, which somebody else renews in its place."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from echannel_ray.errors import EChannelError

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 60.0


class PageCertificate:
    """The certificate of one page. Connections that are open keep the certificate with which they began."""

    def __init__(self, chain: Path, key: Path | None) -> None:
        """Read the files; `EChannelError` if the certificate can't be used."""
        self._chain, self._key = chain, key
        self._seen = self._contents()
        self.context = self._loaded(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    def renew(self) -> bool:
        """Whether there is another one than before, and it is taken; `EChannelError`, once, if it can't be used: then
        the former one stays.
        """
        contents = self._contents()
        if contents == self._seen:
            return False
        self._seen = contents
        # First elsewhere: a context that is given a key which does not fit has neither the new pair nor the old one.
        self._loaded(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        self._loaded(self.context)
        return True

    async def stay(self) -> None:
        """Take up each renewed certificate, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                if self.renew():
                    logger.info("the certificate in %s is another one now", self._chain)
            except EChannelError as error:
                logger.warning("%s; the former one stays in use", error)

    def _contents(self) -> list[bytes | None]:
        """The contents of the files, and not their times: Kubernetes exchanges a symbolic link above them."""
        found: list[bytes | None] = []
        for path in (self._chain, self._key or self._chain):
            try:
                found.append(path.read_bytes())
            except OSError:  # what is the matter is said where it is loaded
                found.append(None)
        return found

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(self._chain, self._key)
        except (OSError, ssl.SSLError) as error:
            raise EChannelError(f"the certificate and key in {self._chain} can't be used: {error}") from error
        return context
