"""Processes that reach a concentrator's port and have no good key: they get nothing, and are counted by reason."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from datetime import datetime, timezone

import psutil
import pytest
from ray._private.node import Node

from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.core import frames
from echannel_ray.ids import node_number
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.security import Credentials, client_context
from echannel_ray.transport.tcp import MAX_HANDSHAKES, connect_tcp
from echannel_ray.transport.unix import SocketDirectory
from tests.clusters import wait_until
from tests.core.reading import first_of
from tests.faults.intruder import ANSWER_SECONDS, read_all
from tests.faults.scene import Scene
from tests.security.conftest import MountedCluster
from tests.transport.issuer import DAY, NAME, Files, Issuer
from tests.transport.links import HOST, receive, recorded, send_all
from tests.transport.test_mounted_credentials import read

CROWD = 300


class Target:
    """A node's concentrator, as it is attacked."""

    def __init__(self, scene: Scene, mounted: MountedCluster) -> None:
        self.scene = scene
        self.node: Node = scene.cluster.nodes[0]
        self.mount = mounted.mounts[0]
        self.issuer = mounted.issuer
        self.port: int = scene.describe(self.node)["info"].port

    def counted(self, reason: str) -> int:
        return self.scene.concentrator(self.node).refused.get(reason, 0)

    def trusted_by(self, files: Files) -> Credentials:
        """What a client with this key has that trusts the concentrator, and did not look at its own key."""
        never = datetime.max.replace(tzinfo=timezone.utc)
        return Credentials(files["tls.key"], files["tls.crt"], self.issuer.certificate, never, names=frozenset({NAME}))

    def mount_now(self, files: Files) -> None:
        self.mount.put(files)
        wanted = read(files).fingerprint
        wait_until(lambda: self.scene.concentrator(self.node).certificate.sha256 == wanted)


@pytest.fixture(scope="module")
def target(scene: Scene, mounted: MountedCluster, undisturbed: None) -> Target:
    """It serves others all the while."""
    return Target(scene, mounted)


def got(port: int, context: ssl.SSLContext) -> bytes:
    """All that a concentrator says to who greets it."""
    with socket.create_connection((HOST, port), ANSWER_SECONDS) as sock:
        try:
            with context.wrap_socket(sock) as tls:
                tls.sendall(frames.frame(frames.HELLO, b"."))
                return read_all(tls)
        except (ssl.SSLError, ConnectionError):
            return b""


KEYS: dict[str, Callable[[Issuer], Files]] = {
    "unknown_authority": lambda _: Issuer().issue(),
    "expired": lambda issuer: issuer.issue(life=-DAY),
    "revoked": lambda issuer: issuer.issue(),
    "no_member": lambda issuer: issuer.issue(["redis.example.svc"]),
}


@pytest.mark.parametrize("reason", ["no_certificate", *KEYS])
def test_a_process_without_a_good_key_gets_nothing(target: Target, reason: str):
    if reason == "no_certificate":
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    else:
        files = KEYS[reason](target.issuer)
        stranger = client_context(target.trusted_by(files))
        if reason == "revoked":
            target.mount_now({**target.issuer.issue(), "ca.crl": target.issuer.revocation_list([files])})
    before = target.counted(reason)
    # TLS itself says why; that a certificate is for something else, it can't: one byte does.
    assert got(target.port, stranger) == (b"\x00" if reason == "no_member" else b"")
    wait_until(lambda: target.counted(reason) == before + 1)
    target.mount_now(target.issuer.issue())


def test_a_recorded_greeting_that_is_sent_again_gets_nothing(target: Target):
    member = target.trusted_by(target.issuer.issue())

    def connect(port: int) -> Connection:
        link = connect_tcp(HOST, port, member, ANSWER_SECONDS)
        send_all(link, [frames.frame(frames.HELLO, wire.encode(wire.Hello("another namespace", 7, 0, 1)))])
        answer = receive(link)
        assert first_of(answer).kind == frames.REFUSED
        return link

    sent = recorded(target.port, connect)
    before = target.counted("bad_handshake")
    with socket.create_connection((HOST, target.port), ANSWER_SECONDS) as attacker:
        attacker.sendall(sent)
        said = read_all(attacker)
    # The server's half of a handshake is for everybody to see; what follows it needs keys that were never sent.
    assert wire.encode(wire.Refusal("NotAuthorised", "", {}))[:10] not in said
    wait_until(lambda: target.counted("bad_handshake") == before + 1)


def test_who_connects_and_says_nothing_is_dropped(target: Target):
    path = SocketDirectory(target.scene.namespace, node_number(target.node.node_id)).socket_path(SOCKET_NAME)
    before = target.counted("silent")
    member = connect_tcp(HOST, target.port, target.trusted_by(target.issuer.issue()), ANSWER_SECONDS)
    with (
        socket.create_connection((HOST, target.port), ANSWER_SECONDS) as by_tcp,
        socket.socket(socket.AF_UNIX) as by_unix,
    ):
        by_unix.settimeout(ANSWER_SECONDS)
        by_unix.connect(path)
        assert by_tcp.recv(1) == by_unix.recv(1) == b""
        assert receive(member) == b""
    wait_until(lambda: target.counted("silent") == before + 3)


def test_a_crowd_that_says_nothing_keeps_nobody_out(target: Target):
    process = psutil.Process(target.scene.concentrator(target.node).pid)
    before = process.num_fds()
    crowded_out = target.counted("crowded_out")
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            stack.enter_context(socket.create_connection((HOST, target.port), ANSWER_SECONDS))
        key = target.trusted_by(target.issuer.issue())
        connect_tcp(HOST, target.port, key, ANSWER_SECONDS).close()
        assert process.num_fds() <= before + MAX_HANDSHAKES + 10
        wait_until(lambda: target.counted("crowded_out") >= crowded_out + CROWD - MAX_HANDSHAKES)


def test_who_holds_a_members_key_is_believed_about_its_node(target: Target):
    """What a mounted key is worth, if it is stolen: a certificate that names no node is good for any."""
    link = connect_tcp(HOST, target.port, target.trusted_by(target.issuer.issue()), ANSWER_SECONDS)
    send_all(link, [frames.frame(frames.HELLO, wire.encode(wire.Hello(target.scene.namespace, 0xBAD, 0, 1)))])
    _, kind, _, _ = frames.HEADER.unpack(receive(link, frames.HEADER_BYTES))
    assert kind == frames.WELCOME
    link.close()
    own = wire.Hello(target.scene.namespace, node_number(target.node.node_id), 0, 1)
    link = connect_tcp(HOST, target.port, target.trusted_by(target.issuer.issue()), ANSWER_SECONDS)
    send_all(link, [frames.frame(frames.HELLO, wire.encode(own))])
    found = receive(link)
    assert first_of(found).kind == frames.REFUSED
