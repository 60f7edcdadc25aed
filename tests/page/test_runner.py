"""The command as a process, where there is no Ray: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import ssl
from urllib.parse import parse_qs, urlsplit

import pytest

from echannel_ray.page import certificate as certificates
from echannel_ray.page.runner import PageSettings, _is_loopback, _serve
from tests.cli.commands import start
from tests.clusters import wait_until
from tests.page.certificates import write

NOBODY = ("--address", "127.0.0.1:1", "--port", "0")


@contextlib.contextmanager
def serving(*arguments):
    process = start("serve", *NOBODY, *arguments)
    try:
        yield process, process.stdout.readline()
        process.terminate()
        assert process.wait(timeout=30) == 0
        out, errors = process.communicate()
        assert out == ""
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    write(files, "localhost")
    return files


def get(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer


def test_it_prints_a_token_that_opens_the_page():
    with serving() as (_, line):
        url = urlsplit(line.split()[-1])
        (token,) = parse_qs(url.query)["token"]
        assert url.hostname == "127.0.0.1"
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        assert get(connection, "/").status == 401
        assert get(connection, f"/?token={token}x").status == 401
        assert get(connection, f"/?{url.query}").status == 303
        assert get(connection, "/healthz").status == 200
        assert get(connection, "/readyz").status == 503  # there is no Ray to be found


def test_a_token_that_was_given_is_not_printed(monkeypatch):
    monkeypatch.setenv("ECHANNEL_PAGE_TOKEN", "a token that nobody guesses")
    with serving("--json") as (_, line):
        assert "token" not in line


def test_tls(certificate):
    chain, key = certificate
    with serving("--tls-cert", str(chain), "--tls-key", str(key)) as (_, line):
        url = urlsplit(line.split()[-1])
        assert url.scheme == "https"
        trusting = ssl.create_default_context(cafile=chain)
        connection = http.client.HTTPSConnection("localhost", url.port, context=trusting, timeout=30)
        assert "Secure" in get(connection, f"/?{url.query}").headers["Set-Cookie"]


def test_a_certificate_that_is_renewed_is_taken_up_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "_LOOK_SECONDS", 0.05)
    monkeypatch.setenv("ECHANNEL_PAGE_TOKEN", "a token that nobody guesses")
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    write(files, "localhost")

    async def run():
        url = asyncio.get_running_loop().create_future()
        wanted = PageSettings("default", "127.0.0.1:1", "127.0.0.1", 0, (), *files)
        serving = asyncio.create_task(_serve(wanted, lambda at, _: url.set_result(at)))
        address = ("127.0.0.1", urlsplit(await url).port)
        try:
            first = await asyncio.to_thread(ssl.get_server_certificate, address)
            write(files, "localhost")
            await asyncio.to_thread(wait_until, lambda: ssl.get_server_certificate(address) != first)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await serving == signal.SIGTERM

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("node7", False)],
)  # fmt: skip
def test_where_others_can_read_along(host, is_loopback):
    assert _is_loopback(host) is is_loopback
