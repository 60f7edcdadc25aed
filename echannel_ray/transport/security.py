"""Who may link to whom: one authority per namespace signs a certificate for each node, and links show them both ways.

The name server keeps the authority. It hands `Credentials` out through Ray, so whoever may call actors of the cluster
may link, and nobody else. A certificate names its node, not its host: addresses change and several nodes may share one,
so host names are not compared; the node's number is (`peer_node`).
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from echannel_ray.errors import NotAuthorised

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

# `cryptography` is imported where certificates are made and nowhere else: only the name server makes any, and every
# concentrator would pay several megabytes for it.

CERTIFICATE_LIFE = timedelta(days=30)
_AUTHORITY_LIFE = timedelta(days=3650)
# The clocks of a cluster differ: a certificate counts from a day before it was made.
_CLOCK_SKEW = timedelta(days=1)
_NODE = re.compile(r"[0-9a-f]{16}\Z")


@dataclass(frozen=True)
class AuthoritySecret:
    """All that an authority is: kept among its actor's arguments, so that a restart rebuilds the same one."""

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes


@dataclass(frozen=True)
class Credentials:
    """What one node shows to its peers and checks theirs against."""

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes
    authority_pem: bytes
    not_after: datetime


class Authority:
    """Signs the certificates of all nodes of a namespace; it runs in the name server, one per namespace."""

    def __init__(self, secret: AuthoritySecret) -> None:
        self._secret = secret

    @staticmethod
    def generate() -> AuthoritySecret:
        """A new authority's key and certificate, made once in the life of a namespace."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("echannel_ray authority")
        builder = _builder(name, name, key, datetime.now(timezone.utc) + _AUTHORITY_LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return AuthoritySecret(_key_pem(key), _sign(builder, key))

    def issue(self, node_number: int, hosts: Sequence[str], life: timedelta = CERTIFICATE_LIFE) -> Credentials:
        """A key and a certificate for one node; `hosts`, its names and addresses, are for whoever reads it."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority = x509.load_pem_x509_certificate(self._secret.certificate_pem)
        authority_key = serialization.load_pem_private_key(self._secret.key_pem, None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        not_after = datetime.now(timezone.utc) + life
        builder = _builder(_name(f"{node_number:016x}"), authority.subject, key, not_after)
        # Each node is a client of some of its peers and a server to the others.
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(both, critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate_pem = _sign(builder, authority_key)
        return Credentials(_key_pem(key), certificate_pem, self._secret.certificate_pem, not_after)


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """For the side that listens: TLS 1.3, and a client without a certificate of our authority is refused."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    # Links live long and are never resumed; a client that closes before it has read its tickets would reset the link.
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """For the side that connects: TLS 1.3, and a server without a certificate of our authority is refused."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def peer_node(tls: ssl.SSLObject) -> int:
    """The number of the node at the other side, from its certificate, which the handshake has verified."""
    # typeshed can't know that this key's value is a tuple of tuples of pairs.
    subject: Any = (tls.getpeercert() or {}).get("subject", ())
    for relative_name in subject:
        for key, value in relative_name:
            if key == "commonName" and _NODE.match(value):
                return int(value, 16)
    raise NotAuthorised("the peer's certificate names no node: it was not made by `Authority.issue`")


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    # Only our authority counts: the system's are never loaded.
    context.load_verify_locations(cadata=credentials.authority_pem.decode("ascii"))
    # `ssl` reads keys from files only. This one is in memory, and gone when it is closed: a key never reaches a disk.
    descriptor = os.memfd_create("echannel_ray", os.MFD_CLOEXEC)
    with open(descriptor, "wb") as file:
        file.write(credentials.key_pem + credentials.certificate_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    return context


def _name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _alternative_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, not_after: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A life of zero or less makes an expired certificate, not an error about the order of two dates.
        .not_valid_before(min(datetime.now(timezone.utc), not_after) - _CLOCK_SKEW)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
