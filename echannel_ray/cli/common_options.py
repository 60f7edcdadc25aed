"""Options that several commands have, and the check of names, which needs nothing that takes long to import."""

from __future__ import annotations

import os
from typing import Annotated

import typer

Namespace = Annotated[str, typer.Option(help="The namespace of the channels.")]
Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a running Ray; without it RAY_ADDRESS, else the Ray of this machine."),
]
Gateway = Annotated[
    str | None,
    typer.Option(
        metavar="ENDPOINT",
        help="From outside the cluster, without Ray: what session.gateway() has given. Lists of processes show it to "
        "others, and it is a secret: put it into ECHANNEL_GATEWAY instead.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name within its namespace.")]


def gateway_of(given: str | None, address: str | None) -> str | None:
    """The gateway that is meant: an address says that there is none."""
    if given is not None and address is not None:
        raise typer.BadParameter("--gateway is for shells outside the cluster, --address for those in it: not both")
    return given or (os.environ.get("ECHANNEL_GATEWAY") or None if address is None else None)


def check_names(namespace: str, channel: str | None = None) -> None:
    """`InvalidName` where one of them can't be one."""
    from echannel_ray.ids import check_channel_name, check_namespace

    check_namespace(namespace)
    if channel is not None:
        check_channel_name(channel)
