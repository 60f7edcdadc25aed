"""An authority that is not ours, as cert-manager runs one, and the directories in which Kubernetes mounts its files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
# What begins now has not begun for OpenSSL in the first milliseconds of a second: its clock goes by the kernel's ticks.
MINUTE = timedelta(minutes=1)
NAME = "echannel.example.svc"
BOTH = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)

Files = dict[str, bytes]


class Issuer:
    """One authority."""

    def __init__(self, name: str = "an issuer") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(timezone.utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 365 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        names: Sequence[str] = (NAME,),
        life: timedelta = 90 * DAY,
        usages: Iterable[x509.ObjectIdentifier] = BOTH,
        begins: timedelta = -MINUTE,
        common_name: str | None = None,
    ) -> Files:
        """A Secret of type kubernetes.io/tls."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        now = datetime.now(timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now + begins, now + life - DAY))
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(alternative, critical=not subject)
        certificate = builder.sign(self._key, hashes.SHA256())
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "tls.key": key_pem,
            "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
            "ca.crt": self.certificate,
        }

    def revocation_list(self, revoked: Iterable[Files] = (), life: timedelta = DAY) -> bytes:
        """A `ca.crl`."""
        now = datetime.now(timezone.utc)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(min(now, now + life) - DAY).next_update(now + life)
        key = self._key.public_key()
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key), critical=False)
        builder = builder.add_extension(x509.CRLNumber(secrets.randbits(64)), critical=False)
        for files in revoked:
            serial = x509.load_pem_x509_certificate(files["tls.crt"]).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - DAY).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Mount:
    """A volume of a Secret: its files are links through `..data`, which is exchanged as a whole."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        path.mkdir(mode=0o700, exist_ok=True)
        self.files: Files = {}
        self.put(files)

    def put(self, files: Files) -> None:
        """As the kubelet does: a new directory, a link to it beside the old one, and a rename."""
        self.files = files
        fresh = self.path / f"..{secrets.token_hex(4)}"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        link = self.path / "..data_tmp"
        link.symlink_to(fresh.name)
        old = os.readlink(self.path / "..data") if (self.path / "..data").is_symlink() else None
        link.rename(self.path / "..data")
        there = {each.name for each in self.path.iterdir() if not each.name.startswith("..")}
        for name in there - files.keys():
            (self.path / name).unlink()
        for name in files.keys() - there:
            (self.path / name).symlink_to(f"..data/{name}")
        if old is not None:
            for file in (self.path / old).iterdir():
                file.unlink()
            (self.path / old).rmdir()

    def change(self, **files: bytes) -> None:
        """Some of them: `tls_crt=…` is `tls.crt`."""
        self.put({**self.files, **{name.replace("_", "."): content for name, content in files.items()}})


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_encipherment=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
