"""The commands that run a program of their own: measurements, and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from echannel_ray.cli.common_options import AsJson
from echannel_ray.cli.exit_codes import FAILED, exit_codes


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


def demo() -> None:
    """Watch it work: a local Ray of two nodes, a producer, five consumers, and a part that is killed.

    Takes half a minute. It starts everything that it needs, and ends it. The exit code is 0 if no event was lost.
    """
    from echannel_ray.demo import run

    raise typer.Exit(run())
