"""Runs the server until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlencode

from aiohttp import web

from echannel_ray.errors import EChannelError
from echannel_ray.gateway.identity import new_token
from echannel_ray.page.access import Access, token_from
from echannel_ray.page.certificate import PageCertificate
from echannel_ray.page.telescope import Telescope
from echannel_ray.page.web_server import Page


@dataclass(frozen=True)
class PageSettings:
    """The page that was asked for on the command line."""

    namespace: str
    address: str | None
    host: str
    port: int
    allowed_hosts: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None


def serve(wanted: PageSettings, started: Callable[[str, bool], None]) -> None:
    """Serve the page until SIGTERM or Ctrl-C. `started` gets the URL when it can be opened, which has the token where
    nobody gave one, and whether others can read along.
    """
    if asyncio.run(_serve(wanted, started)) == signal.SIGINT:
        raise KeyboardInterrupt


async def _serve(wanted: PageSettings, started: Callable[[str, bool], None]) -> int:
    given = token_from(os.environ)
    token = given or new_token()
    certificate = PageCertificate(wanted.certificate, wanted.key) if wanted.certificate is not None else None
    tls = certificate.context if certificate is not None else None
    page = Page(
        Access(token, [*wanted.allowed_hosts, wanted.host]),
        Telescope(wanted.namespace, wanted.address),
        is_secure=tls is not None,
    )
    runner = web.AppRunner(page.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, wanted.host, wanted.port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise EChannelError(
                f"can't listen at {wanted.host}:{wanted.port} ({error.strerror}): choose another --port, or 0 for any"
            ) from error
        port = runner.addresses[0][1]
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        url = f"{'http' if tls is None else 'https'}://{host}:{port}/"
        ended = _ended()
        renewing = asyncio.create_task(certificate.stay()) if certificate is not None else None
        started(url if given else f"{url}?{urlencode({'token': token})}", tls is None and not _is_loopback(wanted.host))
        try:
            return await ended
        finally:
            if renewing is not None:
                renewing.cancel()
    finally:
        await runner.cleanup()


def _ended() -> asyncio.Future[int]:
    """A future of the signal that ends the server."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    return ended


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
