"""Credentials as files: what is taken, what is refused with which advice, and how others take their place."""

from __future__ import annotations

import select
import tempfile
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from echannel_ray.errors import NotAuthorised
from echannel_ray.transport.mounted_credentials import MountedCredentials, mounted_directory
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import TcpListener, connect_tcp
from tests.transport.issuer import DAY, NAME, Issuer, Mount
from tests.transport.links import HOST, NOBODY, SECONDS, as_root, credentials, in_child, in_thread

ISSUER = Issuer()


def read(files) -> Credentials:
    """As if they were mounted."""
    with tempfile.TemporaryDirectory() as folder:
        return MountedCredentials(Mount(Path(folder, "tls"), files).path).current


def refusal(server: Credentials, client: Credentials) -> str | None:
    """Why the listener refuses this client, if it does; the client itself trusts the listener, whoever that is."""
    client = replace(client, authority_pem=server.authority_pem, names=server.names, revocation_list_pem=b"")
    listener = TcpListener(HOST, 0, server)
    connecting = in_thread(lambda: connect_tcp(HOST, listener.port, client, SECONDS))
    accepted = None
    while not listener.refused and accepted is None:
        select.select([listener], [], [], 0.05)
        accepted = listener.accept()
    listener.close()
    if accepted is not None:
        assert connecting()
        accepted.close()
        return None
    with pytest.raises(NotAuthorised):
        connecting()
    (reason,) = listener.refused
    return reason


def twice(mounted: MountedCredentials) -> bool:
    """Files count when they were seen twice."""
    assert not mounted.changed()
    return mounted.changed()


def test_the_variable_names_the_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("ECHANNEL_TLS_DIR", raising=False)
    assert mounted_directory() is None
    monkeypatch.setenv("ECHANNEL_TLS_DIR", str(tmp_path))
    assert mounted_directory() == tmp_path


def test_what_is_mounted_is_used_and_not_shown(tmp_path):
    files = ISSUER.issue()
    credentials = MountedCredentials(Mount(tmp_path / "tls", files).path).current
    assert credentials.names == {NAME}
    assert abs(credentials.not_after - datetime.now(timezone.utc) - 90 * DAY) < timedelta(minutes=1)
    assert "PRIVATE" not in repr(credentials)
    assert refusal(credentials, read(ISSUER.issue())) is None


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("fault", ["missing", "empty"])
def test_a_directory_without_a_file(tmp_path, name, fault):
    files = ISSUER.issue()
    files[name] = b""
    mount = Mount(tmp_path / "tls", files)
    if fault == "missing":
        (mount.path / name).unlink()
    with pytest.raises(NotAuthorised, match="ECHANNEL_TLS_DIR names a directory with") as it:
        MountedCredentials(mount.path)
    assert it.value.facts["path"] == str(mount.path / name)
    assert ("is empty" if fault == "empty" else "No such file") in str(it.value)


def test_no_directory_at_all(tmp_path):
    with pytest.raises(NotAuthorised, match="No such file or directory"):
        MountedCredentials(tmp_path / "nowhere")


@as_root
def test_a_key_that_this_user_may_not_read():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are private
        mount = Mount(Path(folder, "tls"), ISSUER.issue())
        for path in (Path(folder), mount.path, (mount.path / "..data").resolve()):
            path.chmod(0o755)
        (mount.path / "tls.key").resolve().chmod(0o600)

        def read_it() -> int:
            try:
                MountedCredentials(mount.path)
            except NotAuthorised as error:
                return 7 if "Permission denied" in str(error) and f"user {NOBODY}" in str(error) else 8
            return 0

        assert in_child(read_it, NOBODY) == 7


def encrypted(files):
    key = serialization.load_pem_private_key(files["tls.key"], None)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret"))


FAULTS = {
    "another key": (lambda: {**ISSUER.issue(), "tls.key": ISSUER.issue()["tls.key"]}, "the key of the first"),
    "an encrypted key": (lambda: (files := ISSUER.issue()) | {"tls.key": encrypted(files)}, "without a password"),
    "no key": (lambda: {**ISSUER.issue(), "tls.key": b"something else"}, "unencrypted, all as PEM"),
    "no certificate": (lambda: {**ISSUER.issue(), "tls.crt": b"something else"}, "must be certificates"),
    "no authority": (lambda: {**ISSUER.issue(), "ca.crt": b"something else"}, "must be certificates"),
    "not text": (lambda: {**ISSUER.issue(), "ca.crt": b"\xff\xfe"}, "must be certificates"),
    "expired": (lambda: ISSUER.issue(life=-DAY), "expired.* renew it .* clock"),
    "not yet valid": (lambda: ISSUER.issue(begins=DAY), "not yet valid.* clock"),
    "of another authority": (lambda: {**ISSUER.issue(), "ca.crt": Issuer().certificate}, "put the authority"),
    "for servers only": (
        lambda: ISSUER.issue(usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
        'request the usages "client auth"',
    ),
    "without a name": (lambda: ISSUER.issue([], common_name="somebody"), "request a dnsName"),
    "revoked": (lambda: (files := ISSUER.issue()) | {"ca.crl": ISSUER.revocation_list([files])}, "request another"),
    "a list that is out of date": (
        lambda: {**ISSUER.issue(), "ca.crl": ISSUER.revocation_list(life=-DAY)},
        "ca.crl must hold a list",
    ),
    "a list of one authority of two": (
        lambda: {**(other := Issuer("another")).issue(), "ca.crt": ISSUER.certificate + other.certificate,
                 "ca.crl": ISSUER.revocation_list()},
        "of every authority",
    ),
    "no list": (lambda: {**ISSUER.issue(), "ca.crl": b"something else"}, "are of no use"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_of_no_use_is_refused_with_advice_and_the_former_stay(tmp_path, fault):
    make, says = FAULTS[fault]
    files = make()
    with pytest.raises(NotAuthorised, match=f"(?s)ECHANNEL_TLS_DIR.*{says}") as caught:
        MountedCredentials(Mount(tmp_path / "bad", files).path)
    assert "PRIVATE" not in str(caught.value)
    mount = Mount(tmp_path / "tls", ISSUER.issue())
    mounted = MountedCredentials(mount.path)
    former = mounted.current
    mount.put(files)
    with pytest.raises(NotAuthorised, match=f"(?s)ECHANNEL_TLS_DIR.*{says}"):
        twice(mounted)
    assert not mounted.changed(), "it is said once"
    assert mounted.current is former
    mount.put(ISSUER.issue())
    assert twice(mounted)
    assert mounted.current != former


def test_files_that_are_written_one_after_the_other_are_taken_when_all_are_there(tmp_path):
    first, second = ISSUER.issue(), ISSUER.issue()
    for name, content in first.items():
        (tmp_path / name).write_bytes(content)
    mounted = MountedCredentials(tmp_path)
    (tmp_path / "tls.crt").write_bytes(second["tls.crt"])
    assert not mounted.changed()
    (tmp_path / "tls.key").write_bytes(second["tls.key"])
    assert twice(mounted)
    assert mounted.current.certificate_pem == second["tls.crt"]


def test_two_authorities_in_one_bundle_both_count():
    old, new = Issuer("old"), Issuer("new")
    both = {"ca.crt": old.certificate + new.certificate}
    of_old, of_new = read(old.issue() | both), read(new.issue() | both)
    assert refusal(of_old, of_new) is None
    assert refusal(of_new, of_old) is None
    assert refusal(of_old, read(old.issue())) is None
    assert refusal(read(new.issue()), of_old) == "unknown_authority"


def test_what_the_same_authority_signs_for_other_programs_is_no_key():
    assert refusal(read(ISSUER.issue()), read(ISSUER.issue(["redis.example.svc"]))) == "no_member"
    assert refusal(read(ISSUER.issue()), read(ISSUER.issue(["worker-7", NAME]))) is None


def test_a_certificate_on_the_list_is_refused():
    bad = ISSUER.issue()
    careful = read({**ISSUER.issue(), "ca.crl": ISSUER.revocation_list([bad])})
    assert refusal(careful, read(bad)) == "revoked"
    assert refusal(careful, read(ISSUER.issue())) is None


def test_a_list_that_has_run_out_lets_nobody_in():
    late = replace(read(ISSUER.issue()), revocation_list_pem=ISSUER.revocation_list(life=-DAY))
    assert refusal(late, read(ISSUER.issue())) == "no_revocation_list"


def test_mounted_and_issued_certificates_do_not_mix():
    assert refusal(credentials(1), read(ISSUER.issue())) == "unknown_authority"
    assert refusal(read(ISSUER.issue()), credentials(1)) == "unknown_authority"
