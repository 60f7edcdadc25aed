"""Which node is meant."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from echannel_ray.errors import EChannelError
from echannel_ray.models import Certificate, ConcentratorPart, Node, Part, Status
from echannel_ray.overview.revocation import node_meant

FIRST, SECOND, GONE = "a1" * 28, "a2" * 28, "b" * 56


def status(*concentrators):
    nodes = [Node(node_id=node, alive=True, joined=True, suspected=False) for node in (FIRST, SECOND)]
    server = Part(name="n:name-server")
    return Status(
        namespace="n", name_server=server, managers=[], concentrators=list(concentrators), channels=[], nodes=nodes
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [("a1", FIRST), ("A2A2", SECOND), (FIRST, FIRST), (FIRST[:16], FIRST), (GONE, GONE), (GONE[:16], GONE[:16])],
)
def test_a_node_by_its_first_digits_or_all(given, meant):
    assert node_meant(given, status()) == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [("a", "2 nodes begin with 'a'"), ("b", f"there is no node 'b': Ray knows {FIRST[:16]}"), ("", "there is no node")],
)
def test_none_or_several(given, told):
    with pytest.raises(EChannelError, match=told):
        node_meant(given, status())


def test_mounted_certificates_are_revoked_by_others():
    mounted = Certificate(source="mounted", until=datetime(2030, 1, 1, tzinfo=timezone.utc), sha256="")
    part = ConcentratorPart(name="n:concentrator", node_id=FIRST, certificate=mounted)
    with pytest.raises(EChannelError, match=r"ca\.crl"):
        node_meant("a1", status(part))
    assert node_meant("a2", status(part)) == SECOND
