"""The commands that run a program of their own: measurements, the live page, and the demonstration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from echannel_ray.cli.common_options import Address, AsJson, Namespace, check_names
from echannel_ray.cli.exit_codes import FAILED, complain, exit_codes
from echannel_ray.errors import EChannelError


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="The experiments; without names, round_trip and publish_rate."),
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Say what the experiments ask, and run nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="More and longer rounds: the form of the kept results.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", file_okay=False, help="Keep RESULTS.md, JSON and plots in this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure event channels on this machine, beside what else one could use.

    On a Ray of its own, which it starts and ends; other running Rays only disturb the figures. Takes about a minute.
    The exit code is 0 whether or not goals were met. With --json, one list with a document for each experiment.
    """
    with exit_codes():
        from echannel_ray.benchmarks.table import UnknownExperiment
        from echannel_ray.cli import bench_command

        if list_them:
            bench_command.show_list(as_json)
            return
        try:
            is_sound = bench_command.bench(names or bench_command.KEY_EXPERIMENTS, full, out, as_json)
        except UnknownExperiment as error:
            raise typer.BadParameter(str(error), param_hint="NAME") from None
        if not is_sound:
            raise typer.Exit(FAILED)


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
            from echannel_ray.page import runner
        except ModuleNotFoundError as error:
            raise EChannelError(f"the page needs {error.name}: pip install 'echannel-ray[serve]'") from error

        def started(url: str, is_open: bool) -> None:
            print(json.dumps({"url": url}) if as_json else f"live page of namespace {namespace}: {url}", flush=True)
            if is_open:
                complain("others on the network can read along: use --tls-cert, or a proxy with TLS before it")

        page = runner.PageSettings(namespace, address, host, port, allow_host or (), tls_cert, tls_key)
        runner.serve(page, started)


def demo() -> None:
    """Watch it work: a local Ray of two nodes, a producer, five consumers, and a part that is killed.

    Takes half a minute. It starts everything that it needs, and ends it. The exit code is 0 if no event was lost.
    """
    from echannel_ray.demo import run

    raise typer.Exit(run())
