"""Who may link to whom: each node has a key and a certificate, and links show them both ways.

Credentials come from one of two places. By default the name server's authority makes them, and hands them out through
Ray: whoever may call actors of the cluster may link, and nobody else (`authority.py`). Or they are files that somebody
else renews, as cert-manager does (`mounted_credentials.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.connection import Peer

# The clocks of a cluster differ: a certificate of our authority counts from a day before it was made.
CLOCK_SKEW = timedelta(days=1)
_NODE = re.compile(r"[0-9a-f]{16}\Z")
# Why OpenSSL refuses a certificate, by its numbers (X509_V_ERR_…), in words that a counter can be named by.
_REFUSED_CERTIFICATES = {
    **dict.fromkeys((2, 7, 18, 19, 20, 21), "unknown_authority"),
    9: "not_yet_valid",
    10: "expired",
    23: "revoked",
    26: "wrong_usage",
    **dict.fromkeys((3, 12), "no_revocation_list"),
}


@dataclass(frozen=True)
class Credentials:
    """What one node shows to its peers and checks theirs against."""

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes
    authority_pem: bytes  # of several authorities, while one takes the place of another
    not_after: datetime
    revoked: tuple[tuple[int, int], ...] = ()  # node: what was issued to it before this time, in seconds, is void
    revocation_list_pem: bytes = b""  # of mounted credentials: what their authority has revoked
    names: frozenset[str] = frozenset()  # of mounted credentials: a peer's certificate has one of these names, too

    @property
    def trust(self) -> tuple[Any, ...]:
        """What handshakes judge peers by: when it changes, links that were made before are to be made again.

        (What `revoked` says of a link can be seen without another handshake.)
        """
        return self.authority_pem, self.revocation_list_pem, self.names

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of this node's certificate, as `openssl x509 -fingerprint` and its peers see it."""
        first = self.certificate_pem.split(b"-----END CERTIFICATE-----")[0] + b"-----END CERTIFICATE-----\n"
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first.decode("ascii").strip())).hexdigest()

    def has_revoked(self, peer: Peer) -> bool:
        """Whether what this peer has shown counts no more."""
        return any(node == peer.node and (peer.issued_at or 0) < before for node, before in self.revoked)


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """The TLS of the side that listens: 1.3, and a client without a certificate of our authority is refused."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    # Links live long and are never resumed; a client that closes before it has read its tickets would reset the link.
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """The TLS of the side that connects: 1.3, and a server without a certificate of our authority is refused."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def identify(tls: ssl.SSLObject, credentials: Credentials) -> Peer:
    """Who is at the other side, by its certificate, which the handshake has verified; `NotAuthorised` if no peer is.

    A certificate of our authority names its node. One that was mounted need not: then it has to have a name that ours
    has too, so that what the same authority has signed for other programs is no key to our links.
    """
    certificate: Any = tls.getpeercert() or {}
    node = _node_of(certificate)
    if credentials.names:
        if not names_of(certificate) & credentials.names:
            raise NotAuthorised(
                f"the peer's certificate has none of the names {sorted(credentials.names)}, so it is not for these "
                "links: give the certificates of all nodes one dnsName in common",
                reason="no_member",
            )
    elif node is None:
        raise NotAuthorised(
            "the peer's certificate names no node: it was not made by `Authority.issue`", reason="no_member"
        )
    peer = Peer(
        "tcp",
        node=node,
        issued_at=int(ssl.cert_time_to_seconds(certificate["notBefore"]) + CLOCK_SKEW.total_seconds()),
        expires_at=int(ssl.cert_time_to_seconds(certificate["notAfter"])),
    )
    if credentials.has_revoked(peer):
        raise NotAuthorised(f"the certificate of node {node:016x} was revoked", reason="revoked")
    return peer


def names_of(certificate: dict[str, Any]) -> frozenset[str]:
    """The names by which a certificate says what it is for (not addresses, which say where it is used)."""
    return frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI"))


def reason_of(error: Exception) -> str:
    """Why a handshake failed, in a word: the refused are counted by it."""
    if isinstance(error, NotAuthorised):
        return str(error.facts["reason"])
    if isinstance(error, ssl.SSLCertVerificationError):
        return _REFUSED_CERTIFICATES.get(error.verify_code, "bad_certificate")
    reason = getattr(error, "reason", None) or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no_certificate"
    return "by_the_peer" if "ALERT" in reason else "bad_handshake"


def _node_of(certificate: dict[str, Any]) -> int | None:
    for relative_name in certificate.get("subject", ()):
        for key, value in relative_name:
            if key == "commonName" and _NODE.match(value):
                return int(value, 16)
    return None


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    # Only our authority counts: the system's are never loaded.
    context.load_verify_locations(cadata=credentials.authority_pem.decode("ascii"))
    if credentials.revocation_list_pem:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        with file_in_memory(credentials.revocation_list_pem) as path:
            context.load_verify_locations(cafile=path)
    with file_in_memory(credentials.key_pem + b"\n" + credentials.certificate_pem) as path:
        context.load_cert_chain(path, password=_no_password)
    return context


@contextlib.contextmanager
def file_in_memory(content: bytes) -> Iterator[str]:
    """`ssl` reads keys from files only. This one is gone when it is closed: a key never reaches a disk."""
    descriptor = os.memfd_create("echannel_ray", os.MFD_CLOEXEC)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def _no_password() -> str:
    # OpenSSL would ask for it at the terminal, and wait.
    raise NotAuthorised("the key is encrypted: links need it without a password", reason="bad_file")
