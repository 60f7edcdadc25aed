"""Taking a node's certificates back: for an administrator who has reason to think that a key was seen by others."""

from __future__ import annotations

import re
from functools import partial

from echannel_ray.actors import startup
from echannel_ray.errors import Disconnected, EChannelError
from echannel_ray.ids import node_number
from echannel_ray.models import Status

_ANSWER_SECONDS = 60.0
_WHOLE = re.compile("[0-9a-f]{16}|[0-9a-f]{56}")


def node_meant(digits: str, status: Status) -> str:
    """The id of the node that begins so. A whole one (or the 16 digits of it that certificates have) is taken as it is:
    Ray forgets nodes in the end, and their keys may be good for days.
    """
    known = [node.node_id for node in status.nodes]
    found = [node for node in known if digits and node.startswith(digits.lower())]
    if len(found) > 1:
        raise EChannelError(f"{len(found)} nodes begin with {digits!r}: give more digits of the one that is meant")
    if not found and not _WHOLE.fullmatch(digits.lower()):
        listed = ", ".join(node[:16] for node in known)
        raise EChannelError(
            f"there is no node {digits!r}: Ray knows {listed}; of one that it has forgotten, give 16 digits"
        )
    meant = found[0] if found else digits.lower()
    for each in status.concentrators:
        if each.node_id == meant and each.certificate is not None and each.certificate.source == "mounted":
            raise EChannelError(
                f"the certificate of node {meant[:16]} is mounted, not issued by the namespace: have whoever signed it "
                "revoke it, and put the new list on all nodes as ca.crl"
            )
    return meant


def revoke(namespace: str, ray_node_id: str) -> None:
    """All certificates that the namespace has issued to this node so far are void from now on, also for links that are.

    If its concentrator still runs, it gets another certificate, since Ray vouches for it; nothing is lost. Certificates
    that are mounted are not the namespace's: whoever signs them revokes them, by a new `ca.crl` on all nodes.
    `LookupError` where the namespace does not run, `Disconnected` where a concentrator could not be told.
    """
    name = startup.name_server_name(namespace)
    startup.find(name)
    node = node_number(ray_node_id)
    missed = startup.call(partial(startup.find, name), "revoke", node, timeout=_ANSWER_SECONDS)
    if missed:
        raise Disconnected(
            f"the certificates of node {node:016x} are revoked, but these were not told: {', '.join(missed)}. "
            "Revoke it again when they answer (`echannel status`)",
            parts=missed,
        )
