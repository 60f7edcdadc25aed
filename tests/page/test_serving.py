"""The command as a process, where there is no Ray: what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import ssl
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from echannel_ray.page.serving import _is_loopback
from tests.cli.commands import start

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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*encoding))
    return folder / "cert.pem", folder / "key.pem"


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


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("node7", False)],
)  # fmt: skip
def test_where_others_can_read_along(host, is_loopback):
    assert _is_loopback(host) is is_loopback
