"""The server of the live page: who may ask, what there is to ask for, and streams of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import html
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

from echannel_ray.errors import Disconnected
from echannel_ray.page.access import COOKIE_SECONDS, Access, is_from_elsewhere
from echannel_ray.page.history import FIELDS
from echannel_ray.page.namespace_watch import NamespaceWatch
from echannel_ray.page.telescope import Telescope

MAX_VIEWERS: Final = 100
MAX_TAPS: Final = 8
_RATES: Final = (1.0, 5.0, 20.0)  # of a tap, in events a second from each producer
_HEARTBEAT_SECONDS: Final = 15.0
_PROBES: Final = ("/healthz", "/readyz")
_STATIC: Final = resources.files("echannel_ray.page") / "static"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS: Final = {
    # Nothing but what this server has sent itself, and no scripts within documents.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",  # no text becomes markup, not even by mistake
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    """The server of one live page."""

    def __init__(self, access: Access, telescope: Telescope, is_secure: bool = False) -> None:
        self._access = access
        self._telescope = telescope
        self._is_secure = is_secure  # served by TLS
        self._watch = NamespaceWatch(telescope.look)
        self._taps = 0

    def application(self) -> web.Application:
        """The application that aiohttp runs."""
        app = web.Application(middlewares=[self._guard], client_max_size=4096)
        app.on_response_prepare.append(_add_headers)
        app.cleanup_ctx.append(self._running)
        app.router.add_get("/", self._index)
        app.router.add_post("/login", self._log_in)
        app.router.add_get("/static/{name}", self._static)
        app.router.add_get("/api/feed", self._feed)
        app.router.add_get("/api/history", self._history)
        app.router.add_get("/api/tap", self._tap)
        app.router.add_get("/healthz", self._healthy)
        app.router.add_get("/readyz", self._ready)
        return app

    async def _running(self, app: web.Application) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._telescope.run()), asyncio.create_task(self._watch.run())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- who may ask ----

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _PROBES:
            return await handler(request)
        if not self._access.is_our_host(request.headers.get("Host", "")):
            raise web.HTTPMisdirectedRequest(
                text="this server is not known by that name: `echannel serve --allow-host NAME` lets it be\n"
            )
        if request.path.startswith("/api/"):
            if is_from_elsewhere(request.headers.get("Sec-Fetch-Site")):
                raise web.HTTPForbidden(text="asked for by another page\n")
            if not self._is_known(request):
                raise web.HTTPUnauthorized(text="log in first\n")
        return await handler(request)

    def _is_known(self, request: web.Request) -> bool:
        return self._access.is_cookie(request.cookies.get(_cookie_name(request), ""), time.time())

    async def _index(self, request: web.Request) -> web.StreamResponse:
        given = request.query.get("token")
        if given is not None:
            return self._welcome(request, given)
        if not self._is_known(request):
            return _form("")
        return web.Response(text=_text("index.html"), content_type="text/html")

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        given = (await request.post()).get("token", "")
        return self._welcome(request, given if isinstance(given, str) else "")

    def _welcome(self, request: web.Request, given: str) -> web.Response:
        if not self._access.is_token(given.strip()):
            return _form("That is not the token.")
        # Elsewhere, so that the token does not stay in the address bar.
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(
            _cookie_name(request),
            self._access.cookie(time.time()),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=self._is_secure,
        )
        return answer

    # ---- what there is to ask for ----

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        kind = _TYPES.get(name[name.rfind(".") :])
        if kind is None or name not in {each.name for each in _STATIC.iterdir()}:
            raise web.HTTPNotFound
        return web.Response(text=_text(name), content_type=kind)

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        # That Ray went away later does not count: the page is there to say so.
        ready = self._telescope.has_joined
        return web.Response(status=200 if ready else 503, text="ok\n" if ready else "not ready\n")

    async def _history(self, request: web.Request) -> web.Response:
        points = self._watch.history.of(request.query.get("channel", ""))
        return web.Response(
            body=msgspec.json.encode({"fields": FIELDS, "points": points}), content_type="application/json"
        )

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        if self._watch.viewers >= MAX_VIEWERS:
            raise web.HTTPServiceUnavailable(text=f"{MAX_VIEWERS} pages are open already\n")
        return await _stream(request, self._watch.changes())

    async def _tap(self, request: web.Request) -> web.StreamResponse:
        try:
            rate = float(request.query["rate"])
            channel = request.query["channel"]
        except (KeyError, ValueError):
            raise web.HTTPBadRequest(text="a tap has a channel and a rate\n") from None
        if rate not in _RATES:
            raise web.HTTPBadRequest(text=f"the rate of a tap is one of {', '.join(f'{each:g}' for each in _RATES)}\n")
        if self._taps >= MAX_TAPS:
            return await _stream(request, _told(f"{MAX_TAPS} taps are open already: close one"))
        self._taps += 1
        try:
            return await _stream(request, self._tapped(channel, rate))
        finally:
            self._taps -= 1

    async def _tapped(self, channel: str, rate: float) -> AsyncGenerator[Any, None]:
        try:
            async with contextlib.aclosing(self._telescope.tap(channel, rate)) as events:
                async for event in events:
                    yield event
        except Disconnected as error:
            yield {"ended": str(error)}


async def _told(reason: str) -> AsyncGenerator[Any, None]:
    yield {"ended": reason}


async def _stream(request: web.Request, documents: AsyncGenerator[Any, None]) -> web.StreamResponse:
    """Documents as server-sent events, and something now and then where there are none: else nobody would notice that
    the viewer has gone.
    """
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    following = asyncio.ensure_future(anext(documents))
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=_HEARTBEAT_SECONDS)
            if not done:
                await response.write(b": still here\n\n")
                continue
            try:
                document = following.result()
            except StopAsyncIteration:
                break
            await response.write(b"data: " + msgspec.json.encode(document) + b"\n\n")
            following = asyncio.ensure_future(anext(documents))
    except ConnectionError:
        pass  # the viewer has left
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await following
        await documents.aclose()
    return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.pop("Server", None)


def _form(complaint: str) -> web.Response:
    return web.Response(
        status=401, text=_text("login.html").replace("{complaint}", html.escape(complaint)), content_type="text/html"
    )


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _cookie_name(request: web.Request) -> str:
    # Cookies are of a host, whatever the port: two servers on one machine must not take each other's.
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return f"echannel-page-{name[1]}" if name else "echannel-page"
