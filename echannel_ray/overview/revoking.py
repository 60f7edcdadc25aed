"""Taking a node's certificates back: for an administrator who has reason to think that a key was seen by others."""

from __future__ import annotations

from functools import partial

from echannel_ray.actors import bootstrap
from echannel_ray.errors import Disconnected
from echannel_ray.ids import node_number

_ANSWER_SECONDS = 60.0


def revoke(namespace: str, ray_node_id: str) -> None:
    """All certificates that the namespace has issued to this node so far are void from now on, also for links that are.

    If its concentrator still runs, it gets another certificate, since Ray vouches for it; nothing is lost. Certificates
    that are mounted are not the namespace's: whoever signs them revokes them, by a new `ca.crl` on all nodes.
    `LookupError` where the namespace does not run, `Disconnected` where a concentrator could not be told.
    """
    name = bootstrap.name_server_name(namespace)
    bootstrap.find(name)
    node = node_number(ray_node_id)
    missed = bootstrap.call(partial(bootstrap.find, name), "revoke", node, timeout=_ANSWER_SECONDS)
    if missed:
        raise Disconnected(
            f"the certificates of node {node:016x} are revoked, but these were not told: {', '.join(missed)}. "
            "Revoke it again when they answer (`echannel status`)",
            parts=missed,
        )
