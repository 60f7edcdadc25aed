"""The authority of a namespace: it signs a certificate for each node, and lives in the name server.

A certificate names its node, not its host: addresses change and several nodes may share one, so host names are not
compared; the node's number is (`security.identify`).

Only who makes certificates imports this module: `cryptography` costs several megabytes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from echannel_ray.transport.security import CLOCK_SKEW, Credentials

CERTIFICATE_LIFE = timedelta(days=30)
_AUTHORITY_LIFE = timedelta(days=3650)


@dataclass(frozen=True)
class Authority:
    """Signs the certificates of all nodes of a namespace; one per namespace, in the name server. It is a secret, and
    kept among its actor's arguments, so that a restart has the same one.
    """

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes

    @staticmethod
    def generate() -> Authority:
        """A new authority's key and certificate, made once in the life of a namespace."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = named("echannel_ray authority")
        now = datetime.now(timezone.utc)
        builder = builder_of(name, name, key, now + _AUTHORITY_LIFE, now)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return Authority(key_pem_of(key), signed(builder, key))

    def issue(
        self, node_number: int, hosts: Sequence[str], life: timedelta = CERTIFICATE_LIFE, *, not_revoked_at: int = 0
    ) -> Credentials:
        """A key and a certificate for one node; `hosts`, its names and addresses, are for whoever reads it.

        `not_revoked_at`: what was issued to this node before then (a time in seconds) counts no more; this does.
        """
        authority = x509.load_pem_x509_certificate(self.certificate_pem)
        authority_key = serialization.load_pem_private_key(self.key_pem, None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        now = max(datetime.now(timezone.utc), datetime.fromtimestamp(not_revoked_at, timezone.utc))
        not_after = now + life
        builder = builder_of(named(f"{node_number:016x}"), authority.subject, key, not_after, now)
        # Each node is a client of some of its peers and a server to the others.
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(both, critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        if hosts:
            builder = builder.add_extension(alternative_names(hosts), critical=False)
        certificate_pem = signed(builder, authority_key)
        return Credentials(key_pem_of(key), certificate_pem, self.certificate_pem, not_after)


def named(common_name: str) -> x509.Name:
    """The subject or the issuer of a certificate."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def alternative_names(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    """The names and addresses of whom a certificate is for."""
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def builder_of(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, not_after: datetime, now: datetime
) -> x509.CertificateBuilder:
    """What all certificates of ours have; extensions may be added before it is signed."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A life of zero or less makes an expired certificate, not an error about the order of two dates.
        .not_valid_before(min(now, not_after) - CLOCK_SKEW)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    """The certificate as PEM."""
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PEM, unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
