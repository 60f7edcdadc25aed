"""Mounted certificates that change under load: every event arrives, once and in order, and nobody keeps an old key."""

from __future__ import annotations

import time
from datetime import timedelta

import psutil
import pytest
import ray

import echannel_ray as ec
from tests.clusters import wait_until
from tests.faults.scene import Scene
from tests.security.conftest import MountedCluster
from tests.transport.issuer import Issuer
from tests.transport.links import certificate_at
from tests.transport.test_mounted_credentials import read

Link = tuple[int, int]


def shown(scene: Scene) -> list[str]:
    """The certificates that both concentrators show now."""
    parts = [scene.concentrator(node) for node in scene.cluster.nodes]
    return [part.certificate.sha256 for part in parts if part.certificate is not None]


def link(scene: Scene) -> Link | None:
    """The ports of the TCP connection between the two nodes; another link has others."""
    first, second = (scene.describe(node) for node in scene.cluster.nodes)
    ports = {first["info"].port, second["info"].port}
    found = [
        (connection.laddr.port, connection.raddr.port)
        for connection in psutil.Process(first["pid"]).net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED and {connection.laddr.port, connection.raddr.port} & ports
    ]
    return found[0] if len(found) == 1 else None


def refused(scene: Scene) -> dict[str, int]:
    """By both concentrators."""
    counts: dict[str, int] = {}
    for node in scene.cluster.nodes:
        for reason, count in scene.concentrator(node).refused.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def test_certificates_and_then_their_authority_are_exchanged(scene: Scene, mounted: MountedCluster, undisturbed: None):
    old, new = mounted.issuer, Issuer("its successor")
    both = old.certificate + new.certificate
    before = link(scene)
    for _ in range(2):  # another certificate; links stay as they are
        mounted.settle()
        wait_until(lambda: shown(scene) == [read(mount.files).fingerprint for mount in mounted.mounts])
    assert link(scene) == before is not None
    for mount in mounted.mounts:  # the order in which an authority is replaced, node after node
        mount.change(ca_crt=both)
    wait_until(lambda: link(scene) not in (before, None))
    for mount in mounted.mounts:
        mount.put({**new.issue(), "ca.crt": both})
        wait_until(lambda: shown(scene) == [read(mount.files).fingerprint for mount in mounted.mounts])
    assert [certificate_at(scene.describe(node)["info"].port) for node in scene.cluster.nodes] == shown(scene)
    before = link(scene)
    for mount in mounted.mounts:
        mount.change(ca_crt=new.certificate)
    wait_until(lambda: link(scene) not in (before, None))
    assert not refused(scene).get("not_renewed")
    mounted.issuer = new
    assert [part.certificate.failures for part in ec.status(scene.namespace).concentrators] == [0, 0]


def test_a_link_is_made_anew_before_its_certificates_expire(scene: Scene, mounted: MountedCluster, undisturbed: None):
    before = link(scene)
    short = Issuer("a short one")
    both = mounted.issuer.certificate + short.certificate
    for mount in mounted.mounts:
        mount.put({**short.issue(life=timedelta(seconds=8)), "ca.crt": both})
    expired_at = time.time() + 8
    wait_until(lambda: link(scene) not in (before, None))  # others are trusted
    for mount in mounted.mounts:
        mount.put({**mounted.issuer.issue(), "ca.crt": both})
    wait_until(lambda: time.time() > expired_at + 1)
    assert not refused(scene).get("expired")
    assert not refused(scene).get("not_renewed")
    mounted.settle()


def test_a_certificate_that_is_revoked_ends_its_link(scene: Scene, mounted: MountedCluster, undisturbed: None):
    first, second = mounted.mounts
    wait_until(lambda: link(scene) is not None)
    stolen = second.files
    listed = mounted.issuer.revocation_list([stolen])
    before = refused(scene)
    first.change(ca_crl=listed)
    wait_until(lambda: scene.concentrator(scene.cluster.nodes[0]).peers == 0)
    after = refused(scene)
    assert sum(after.values()) > sum(before.values())
    assert after["not_renewed"] > before.get("not_renewed", 0)
    second.put({**mounted.issuer.issue(), "ca.crl": listed})
    wait_until(lambda: scene.concentrator(scene.cluster.nodes[0]).peers == 1)


def test_files_that_are_no_good_are_counted_and_change_nothing(
    scene: Scene, mounted: MountedCluster, undisturbed: None
):
    mount = mounted.mounts[0]
    node = scene.cluster.nodes[0]
    before = scene.concentrator(node).certificate
    assert before is not None
    good = mount.files
    mount.change(tls_key=mounted.issuer.issue()["tls.key"])
    wait_until(lambda: scene.concentrator(node).certificate.failures == before.failures + 1)
    mount.put({})
    wait_until(lambda: scene.concentrator(node).certificate.failures == before.failures + 2)
    assert scene.concentrator(node).certificate.sha256 == before.sha256
    mount.put(good)


def test_a_node_whose_files_are_no_good_says_what_to_do_and_starts_when_they_are(mounted: MountedCluster):
    mount = mounted.mounts[0]
    good = mount.files
    mount.put({**good, "tls.key": b""})
    try:
        with pytest.raises(ec.NotAuthorised, match=r"tls\.key is empty: ECHANNEL_TLS_DIR names a directory with"):
            ec.connect(namespace="mended")
        mount.put(good)
        session = ec.connect(namespace="mended")
        assert session.status().concentrators[0].certificate.source == "mounted"
    finally:
        mount.put(good)
        ec.shutdown("mended")
        assert ray.is_initialized()
