"""Options that several commands have, and the check of names, which needs nothing that takes long to import."""

from __future__ import annotations

from typing import Annotated

import typer

Namespace = Annotated[str, typer.Option(help="The namespace of the channels.")]
Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a running Ray; without it RAY_ADDRESS, else the Ray of this machine."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name within its namespace.")]


def check_names(namespace: str, channel: str | None = None) -> None:
    """`InvalidName` where one of them can't be one."""
    from echannel_ray.ids import check_channel_name, check_namespace

    check_namespace(namespace)
    if channel is not None:
        check_channel_name(channel)
