"""The page's certificate, while somebody exchanges its files."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509

from echannel_ray.errors import EChannelError
from echannel_ray.page.certificate import PageCertificate
from tests.page.certificates import write


@pytest.fixture
def files(tmp_path):
    return tmp_path / "tls.crt", tmp_path / "tls.key"


def shown(context):
    """The name in what a client is shown; a whole handshake, in memory."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = {client, server}
    for _ in range(10):
        for side in [*waiting]:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.discard(side)
    assert not waiting
    binary = client.getpeercert(binary_form=True)
    assert binary is not None
    (name,) = x509.load_der_x509_certificate(binary).subject
    return name.value


def test_a_renewed_certificate_is_shown_to_who_comes_next(files):
    write(files, "first")
    certificate = PageCertificate(*files)
    assert not certificate.renew()
    assert shown(certificate.context) == "first"
    write(files, "second")
    assert certificate.renew()
    assert shown(certificate.context) == "second"
    assert not certificate.renew()


def test_what_can_not_be_used_is_said_once_and_the_former_one_stays(files):
    write(files, "first")
    certificate = PageCertificate(*files)
    write(files, "half", also_key=False)
    with pytest.raises(EChannelError, match="can't be used"):
        certificate.renew()
    assert not certificate.renew()
    assert shown(certificate.context) == "first"
    files[1].unlink()
    with pytest.raises(EChannelError, match="No such file"):
        certificate.renew()
    assert shown(certificate.context) == "first"
    write(files, "second")
    assert certificate.renew()
    assert shown(certificate.context) == "second"


def test_a_certificate_that_is_not_there_is_refused(files):
    with pytest.raises(EChannelError, match="No such file"):
        PageCertificate(*files)
