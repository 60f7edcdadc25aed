"""Credentials that somebody else renews, as files: `tls.crt`, `tls.key` and `ca.crt`, as cert-manager lays them out.

`ca.crt` may hold several authorities, one after the other: while one takes the place of another, both count. `ca.crl`
may lie beside them: then every authority needs its list of what it has revoked in there.

What is read is proved by a handshake with itself, in memory: so the key fits, nothing has expired, the certificate may
be shown by clients and servers, and peers that have the same authority accept it. Links would find the same faults, but
one peer at a time, and after the good credentials were let go.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.security import Credentials, client_context, names_of, reason_of, server_context

DIRECTORY_VARIABLE = "ECHANNEL_TLS_DIR"
_KEY, _CERTIFICATE, _AUTHORITY, _REVOKED = _FILES = ("tls.key", "tls.crt", "ca.crt", "ca.crl")
_ADVICE = {
    "expired": "renew it (and the list of what is revoked), and see that this node's clock is right",
    "not_yet_valid": "see that this node's clock is right",
    "unknown_authority": f"put the authority that signed {_CERTIFICATE} into {_AUTHORITY}",
    "wrong_usage": 'a node is client and server: request the usages "client auth" and "server auth"',
    "revoked": "request another",
    "no_revocation_list": f"{_REVOKED} must hold a list of every authority in {_AUTHORITY}, in force, or be away",
    "no_name": "request a dnsName that the certificates of all nodes have in common: peers know each other by it",
}
_PLAIN_ADVICE = (
    f"{_CERTIFICATE} and {_AUTHORITY} must be certificates, and {_KEY} the key of the first, unencrypted, all as PEM"
)

Contents = dict[str, bytes | None]


def mounted_directory() -> Path | None:
    """Where this node's credentials are mounted, if they are."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return Path(named) if named else None


class MountedCredentials:
    """The files of one directory, and what was last good in them; one per concentrator."""

    def __init__(self, directory: Path) -> None:
        """Read them; `NotAuthorised` if they can't be used."""
        self._directory = directory
        self._taken = self._seen = _contents(directory)
        self.current = _checked(directory, self._taken)

    def changed(self) -> bool:
        """Whether there are other files now than before, and they are whole: take them, or raise why they are no good.

        Who writes them may be in the middle of it, or exchange the directory between two of our reads: so only what was
        seen twice counts. What is no good is raised once, and the former credentials stay.
        """
        before, self._seen = self._seen, _contents(self._directory)
        if self._seen == self._taken or self._seen != before:
            return False
        self._taken = self._seen
        self.current = _checked(self._directory, self._taken)
        return True


def _contents(directory: Path) -> Contents:
    """The contents of the files, not their times: Kubernetes exchanges a link above them, others write in place."""
    found: Contents = {}
    for name in _FILES:
        found[name] = None
        with contextlib.suppress(OSError):  # which of them can't be read is said where they are checked
            found[name] = (directory / name).read_bytes()
    return found


def _checked(directory: Path, contents: Contents) -> Credentials:
    for name in (_KEY, _CERTIFICATE, _AUTHORITY):
        if not contents[name]:
            raise NotAuthorised(
                f"{directory / name} {_problem(directory / name)}: {DIRECTORY_VARIABLE} names a directory with "
                f"{_CERTIFICATE}, {_KEY} and {_AUTHORITY} that user {os.geteuid()} can read; without that variable, "
                "credentials come from the namespace itself",
                path=str(directory / name),
                reason="no_file",
            )
    unproved = Credentials(
        key_pem=contents[_KEY] or b"",
        certificate_pem=contents[_CERTIFICATE] or b"",
        authority_pem=contents[_AUTHORITY] or b"",
        not_after=datetime.max.replace(tzinfo=timezone.utc),
        revocation_list_pem=contents[_REVOKED] or b"",
    )
    try:
        certificate = _shown_to_itself(unproved)
    except (ssl.SSLError, NotAuthorised, ValueError, UnicodeDecodeError) as error:
        raise _refused(directory, error) from None
    names = names_of(certificate)
    if not names:
        raise _refused(directory, NotAuthorised("the certificate has no name", reason="no_name"))
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), timezone.utc)
    return replace(unproved, not_after=until, names=names)


def _shown_to_itself(credentials: Credentials) -> dict[str, Any]:
    """The certificate, as a peer with the same authority gets it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(credentials).wrap_bio(to_server, to_client, server_side=True)
    client = client_context(credentials).wrap_bio(to_client, to_server)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return server.getpeercert() or {}


def _problem(path: Path) -> str:
    try:
        return "is empty" if not path.read_bytes() else "was not there a moment ago"
    except OSError as error:
        return f"can't be read ({error.strerror})"


def _refused(directory: Path, error: Exception) -> NotAuthorised:
    reason = reason_of(error) if isinstance(error, NotAuthorised | ssl.SSLCertVerificationError) else "bad_file"
    said = str(error) if isinstance(error, NotAuthorised) else getattr(error, "verify_message", None) or str(error)
    return NotAuthorised(
        f"the credentials in {directory} ({DIRECTORY_VARIABLE}) are of no use: {said}. What to do: "
        f"{_ADVICE.get(reason, _PLAIN_ADVICE)}",
        path=str(directory),
        reason=reason,
    )
