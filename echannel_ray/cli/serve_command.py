"""The command that serves the live page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from echannel_ray.cli.common_options import Address, AsJson, Namespace, check_names
from echannel_ray.cli.exit_codes import complain, exit_codes
from echannel_ray.errors import EChannelError


def serve(
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is for all who can reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any that is free.")] = 8269,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            envvar="ECHANNEL_PAGE_HOSTS",
            help="A name by which browsers reach the page, of an ingress, say; may be repeated.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate and its chain, for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, where that is another file.")] = None,
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Serve the live page: channels, rates, lag, back-pressure, health, and a tap; until Ctrl-C.

    Prints the address to open, with a token, that is exchanged for a cookie. ECHANNEL_PAGE_TOKEN, or
    ECHANNEL_PAGE_TOKEN_FILE, gives one that stays the same, and is not printed. Reads the namespace only while somebody
    looks. With --json, one document with the url.
    """
    with exit_codes():
        check_names(namespace)
        try:
            from echannel_ray.page.runner import PageSettings
            from echannel_ray.page.runner import serve as run
        except ModuleNotFoundError as error:
            raise EChannelError(f"the page needs {error.name}: pip install 'echannel-ray[serve]'") from error

        def started(url: str, is_open: bool) -> None:
            print(json.dumps({"url": url}) if as_json else f"live page of namespace {namespace}: {url}", flush=True)
            if is_open:
                complain("others on the network can read along: use --tls-cert, or a proxy with TLS before it")

        run(PageSettings(namespace, address, host, port, allow_host or (), tls_cert, tls_key), started)
