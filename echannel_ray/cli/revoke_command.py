"""The command that takes a node's certificates back."""

from __future__ import annotations

from typing import Annotated

import typer

from echannel_ray.cli.common_options import Address, AsJson, Namespace, check_names
from echannel_ray.cli.exit_codes import exit_codes
from echannel_ray.cli.terminal_text import print_json
from echannel_ray.errors import EChannelError
from echannel_ray.overview import ray_connection


def revoke(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="The node's id, or its first digits, as `status` has them.")
    ],
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Take back all certificates that a namespace has issued to a node: somebody may have seen its key.

    They are void at once, also for links that are. If the node still runs it gets another one, and nothing is lost.
    With --json, one document with namespace and node_id.
    """
    with exit_codes():
        check_names(namespace)
        with ray_connection.running_ray(address):
            from echannel_ray.overview import revocation
            from echannel_ray.overview.readings import read_status

            meant = revocation.node_meant(node, read_status(namespace))
            try:
                revocation.revoke(namespace, meant)
            except LookupError:
                raise EChannelError(
                    f"no process has joined namespace {namespace!r} yet: is another one meant?"
                ) from None
        if as_json:
            print_json({"namespace": namespace, "node_id": meant})
        else:
            print(f"namespace {namespace}: what was issued to node {meant[:16]} until now is void")
