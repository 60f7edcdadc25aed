"""The server, without Ray: who gets what."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from echannel_ray.errors import Disconnected
from echannel_ray.page import looker_frames, namespace_watch, web_server
from echannel_ray.page.access import Access
from echannel_ray.page.web_server import HEADERS, Page
from tests.clusters import wait_until
from tests.page.made import FakeTelescope, line, painted

TOKEN = "a token that nobody guesses"
PRIVATE = ("/api/feed", "/api/history?channel=trades", "/api/tap?channel=trades&rate=5")


@pytest.fixture
def telescope(monkeypatch):
    monkeypatch.setattr(namespace_watch, "_EVERY_SECONDS", 0.05)
    telescope = FakeTelescope()
    telescope.seen = [painted([line("trades", events_published=7)])]
    return telescope


@pytest.fixture
async def client(telescope):
    page = Page(Access(TOKEN, ["page.example"]), telescope)
    async with TestClient(TestServer(page.application())) as client:
        yield client


@pytest.fixture
async def known(client):
    """The same client, with its cookie."""
    answer = await client.get("/", params={"token": TOKEN})
    assert answer.status == 200
    return client


async def told(answer, count):
    """Documents of a stream."""
    documents: list[dict[str, Any]] = []
    while len(documents) < count:
        text = (await answer.content.readline()).decode()
        if text.startswith("data: "):
            documents.append(json.loads(text[6:]))
    return documents


async def test_without_a_token_there_is_a_form_and_nothing_else(client):
    answer = await client.get("/")
    assert answer.status == 401
    assert 'action="/login"' in await answer.text()
    for path in PRIVATE:
        answer = await client.get(path)
        assert (answer.status, await answer.text()) == (401, "log in first\n")


async def test_a_wrong_token(client):
    for answer in (await client.get("/?token=wrong"), await client.post("/login", data={"token": "wrong"})):
        assert answer.status == 401
        assert "That is not the token." in await answer.text()
        assert not answer.cookies
    assert (await client.post("/login")).status == 401
    assert (await client.get("/api/feed", cookies={"echannel-page": TOKEN})).status == 401


async def test_the_token_becomes_a_cookie_and_leaves_the_address_bar(client):
    for asked in (client.get("/", params={"token": TOKEN}, allow_redirects=False),
                  client.post("/login", data={"token": f" {TOKEN}\n"}, allow_redirects=False)):  # fmt: skip
        answer = await asked
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        (cookie,) = answer.cookies.values()
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
        assert TOKEN not in cookie.value
        assert str(client.port) in cookie.key  # two servers of a machine have two cookies
    answer = await client.get("/")
    assert answer.status == 200
    assert "main.js" in await answer.text()


async def test_cookies_of_tls_are_not_sent_without(telescope):
    page = Page(Access(TOKEN), telescope, is_secure=True)
    async with TestClient(TestServer(page.application())) as client:
        answer = await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        (cookie,) = answer.cookies.values()
        assert cookie["secure"] is True


async def test_a_token_that_is_too_long_is_not_read(client):
    assert (await client.post("/login", data={"token": "x" * 100_000})).status == 413


async def test_every_answer_has_the_headers(known):
    for path in ("/", "/healthz", "/readyz", "/static/main.js", "/static/none.js", "/none", "/login", *PRIVATE):
        answer = await known.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "Server" not in answer.headers
        answer.close()


async def test_the_policy_allows_no_inline_scripts_and_the_page_has_none(known):
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("index.html", "login.html"):
        text = (web_server._STATIC / name).read_text()
        assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", text) == []


async def test_static_files_and_no_others(client):
    for each in web_server._STATIC.iterdir():
        answer = await client.get(f"/static/{each.name}")
        assert answer.status == (404 if each.name.endswith(".html") else 200), each.name
    for path in ("/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static/", "/static/.js"):
        assert (await client.get(path)).status == 404
    assert (await client.get("/static/main.js")).content_type == "text/javascript"


@pytest.mark.parametrize("path", ["/", "/?token=" + TOKEN, "/static/main.js", *PRIVATE])
async def test_names_that_were_rebound_get_nothing(known, path):
    answer = await known.get(path, headers={"Host": "evil.example"}, allow_redirects=False)
    assert answer.status == 421
    assert "--allow-host" in await answer.text()
    assert not answer.cookies


async def test_names_that_were_allowed(known):
    assert (await known.get("/static/main.js", headers={"Host": "page.example"})).status == 200


@pytest.mark.parametrize("path", PRIVATE)
async def test_other_pages_of_this_machine_get_nothing(known, telescope, path):
    answer = await known.get(path, headers={"Sec-Fetch-Site": "same-site"})
    assert answer.status == 403
    assert telescope.taps == []


async def test_probes_need_no_token_and_say_little(client, telescope):
    for path in ("/healthz", "/readyz"):
        answer = await client.get(path, headers={"Host": "evil.example"})  # a kubelet may call it anything
        assert (answer.status, await answer.text()) == (200, "ok\n")
    telescope.has_joined = False
    assert (await client.get("/readyz")).status == 503
    assert (await client.get("/healthz")).status == 200


async def test_the_feed(known, telescope):
    telescope.seen = [
        painted([line("trades", events_published=7)]),
        Disconnected("no running Ray"),
        painted([line("quotes")]),
    ]
    answer = await known.get("/api/feed")
    assert answer.content_type == "text/event-stream"
    first, problem, last = await told(answer, 3)
    assert [(row["channel"], row["published"]) for row in first["changed"]] == [("trades", 7)]
    assert [part["kind"] for part in first["parts"]] == ["name server", "manager", "concentrator", "concentrator"]
    assert problem["problem"] == "no running Ray"
    assert ([row["channel"] for row in last["changed"]], last["gone"]) == (["quotes"], ["trades"])
    answer.close()


async def test_the_history_is_there_for_who_comes_later(known):
    answer = await known.get("/api/feed")
    await told(answer, 3)
    history = await (await known.get("/api/history", params={"channel": "trades"})).json()
    assert history["fields"][0] == "published_rate"
    assert len(history["points"]) >= 3
    assert (await (await known.get("/api/history", params={"channel": "none"})).json())["points"] == []
    answer.close()


async def test_who_leaves_is_noticed(known, telescope):
    answer = await known.get("/api/feed")
    await told(answer, 1)
    answer.close()
    await asyncio.to_thread(wait_until, lambda: _is_still(telescope))


def _is_still(telescope):
    looks = len(telescope.looks)
    import time

    time.sleep(0.3)
    return len(telescope.looks) == looks


async def test_a_tap(known, telescope):
    hostile = "<script>alert(1)</script>\u2028\ndata: x"
    telescope.tapped = [looker_frames.Tapped(1), looker_frames.Tapped(1, "p.1", 4, 1.5, hostile, 2)]
    answer = await known.get("/api/tap", params={"channel": "a/<b>&", "rate": "5"})
    opened, event = await told(answer, 2)
    assert telescope.taps == [("a/<b>&", 5.0)]
    assert opened["producer"] == ""
    assert (event["producer"], event["sequence"], event["text"], event["missed"]) == ("p.1", 4, hostile, 2)
    answer.close()
    await asyncio.to_thread(wait_until, lambda: telescope.open_taps == 0)


@pytest.mark.parametrize(
    "query", ["", "?channel=a", "?rate=5", "?channel=a&rate=x", "?channel=a&rate=1000", "?channel=a&rate=nan"]
)
async def test_taps_that_can_not_be(known, telescope, query):
    assert (await known.get(f"/api/tap{query}")).status == 400
    assert telescope.taps == []


async def test_taps_are_few(known, telescope, monkeypatch):
    monkeypatch.setattr(web_server, "MAX_TAPS", 1)
    telescope.tapped = [looker_frames.Tapped(1)]
    answer = await known.get(PRIVATE[2])
    await told(answer, 1)
    (refused,) = await told(await known.get(PRIVATE[2]), 1)
    assert "taps are open already" in refused["ended"]
    answer.close()


async def test_viewers_are_bounded(known, monkeypatch):
    monkeypatch.setattr(web_server, "MAX_VIEWERS", 1)
    answer = await known.get("/api/feed")
    await told(answer, 1)
    assert (await known.get("/api/feed")).status == 503
    answer.close()
