"""The authority: what it makes, and what survives its actor."""

from __future__ import annotations

import os
import pickle
import ssl
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.authority import Authority
from echannel_ray.transport.security import Credentials, client_context, identify, server_context
from tests.transport.links import HOST, authority, credentials


def shake_hands(server: Credentials, client: Credentials) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server_context(server).wrap_bio(to_server, to_client, server_side=True),
        client_context(client).wrap_bio(to_client, to_server),
    )
    for end in (ends[1], ends[0], ends[1], ends[0]):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ends


def test_both_sides_learn_the_number_of_the_others_node():
    server, client = shake_hands(credentials(2**64 - 1), credentials(1))
    assert (identify(server, credentials(1)).node, identify(client, credentials(1)).node) == (1, 2**64 - 1)
    # No ticket is on its way, which a client that closes now would leave unread.
    with pytest.raises(ssl.SSLWantReadError):
        client.read(1)
    assert client.session is None or not client.session.has_ticket
    assert server.version() == client.version() == "TLSv1.3"


def test_an_authority_that_was_restarted_is_the_same():
    secret = Authority.generate()
    old = secret.issue(1, [HOST])
    new = pickle.loads(pickle.dumps(secret)).issue(2, [HOST])
    assert identify(shake_hands(old, new)[0], old).node == 2


def test_another_authority_is_not():
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(credentials(1), Authority.generate().issue(2, [HOST]))


def test_the_authoritys_own_certificate_is_no_nodes():
    secret = Authority.generate()
    node = secret.issue(1, [])
    own = Credentials(secret.key_pem, secret.certificate_pem, secret.certificate_pem, node.not_after)
    with pytest.raises((ssl.SSLError, NotAuthorised)):
        identify(shake_hands(node, own)[0], node)


def test_an_end_without_a_certificate_names_nobody():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(credentials(1)).wrap_bio(to_server, to_client, server_side=True)
    client = context.wrap_bio(to_client, to_server)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    with pytest.raises(NotAuthorised):
        identify(client, credentials(1))
    with pytest.raises(ssl.SSLError):
        server.do_handshake()


def test_a_certificate_says_what_it_is_for():
    x509 = pytest.importorskip("cryptography.x509")
    made = authority().issue(5, [HOST, "::1", "node-5.local"], timedelta(days=2))
    certificate = x509.load_pem_x509_certificate(made.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-5.local"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [HOST, "::1"]
    assert certificate.subject.rfc4514_string() == "CN=0000000000000005"
    assert timedelta(days=1, hours=23) < made.not_after - datetime.now(timezone.utc) <= timedelta(days=2)
    assert abs(credentials(1).not_after - datetime.now(timezone.utc) - timedelta(days=30)) < timedelta(hours=1)


def test_keys_are_not_shown_and_leave_no_file_behind():
    secret, made = Authority.generate(), credentials(1)
    assert "PRIVATE" not in repr(secret) + repr(made)
    assert pickle.loads(pickle.dumps(made)) == made
    before = os.listdir("/proc/self/fd")
    server_context(made)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_concentrators_do_not_pay_for_cryptography(tmp_path):
    file = tmp_path / "credentials"
    file.write_bytes(pickle.dumps(credentials(1)))
    program = f"""
import pickle, sys
import echannel_ray.transport.tcp, echannel_ray.transport.unix
from echannel_ray.transport.security import client_context
client_context(pickle.load(open({str(file)!r}, "rb")))
assert not [name for name in sys.modules if name.startswith("cryptography")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
