"""Endpoints and identities as text and bytes."""

from __future__ import annotations

import pytest

from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.identity import Identity


@pytest.fixture(scope="module")
def identity():
    return Identity.generate(["node-1.example", "10.0.0.1"])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "node-1.example"])
@pytest.mark.parametrize("namespace", ["default", "a b/c?d=e&f#g@h"])
def test_the_text_of_an_endpoint_is_all_of_it(identity, host, namespace):
    endpoint = Endpoint(host, 41234, namespace, identity.token, identity.certificate_der, 41235)
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert Endpoint.parse(f" {endpoint}\n") == endpoint


def test_only_the_text_tells_the_token(identity):
    endpoint = Endpoint("127.0.0.1", 1, "default", identity.token, identity.certificate_der, 41235)
    assert identity.token in str(endpoint)
    assert identity.token not in repr(endpoint)
    assert identity.token not in repr(identity)
    assert "PRIVATE" not in repr(identity)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "begin with"),
        (lambda text: text.replace("echannel+tls", "https"), "begin with"),
        (lambda text: text.replace(":41234", ""), "no host with a port"),
        (lambda text: text.replace(":41234", ":port"), "no host with a port"),
        (lambda text: text.replace("://", "://x"), "token"),
        (lambda text: text.replace("@", "?@"), "no host with a port"),
        (lambda text: text.replace("/default", "/"), "namespace"),
        (lambda text: text[:-9], "cut"),
        (lambda text: text.split("?")[0], "cut"),
        (lambda text: text + "é", "base64"),
    ],
)
def test_what_is_no_endpoint_is_refused_with_the_reason(identity, change, reason):
    text = change(str(Endpoint("127.0.0.1", 41234, "default", identity.token, identity.certificate_der, 41235)))
    with pytest.raises(ValueError, match=reason) as refused:
        Endpoint.parse(text)
    assert identity.token not in str(refused.value)


def test_an_identity_is_kept_as_bytes(identity):
    assert Identity.parse(bytes(identity)) == identity
    with pytest.raises(ValueError, match="identity"):
        Identity.parse(b"something else")


def test_each_identity_is_another(identity):
    other = Identity.generate(["10.0.0.1"])
    assert other.token != identity.token
    assert other.certificate_pem != identity.certificate_pem
