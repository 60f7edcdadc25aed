"""The command `echannel`: what a namespace runs, and events from and to the shell.

Ray, and what else takes long to import, is imported by the commands that need it: `--help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from echannel_ray.cli.outcomes import FAILED, exit_codes

Namespace = Annotated[str, typer.Option(help="The namespace of the channels.")]
Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a running Ray; without it RAY_ADDRESS, else the Ray of this machine."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name within its namespace.")]

app = typer.Typer(
    name="echannel",
    help="Event channels for Ray: look at them, listen to them, publish on them.",
    epilog="Exit codes: 0 done, 1 failed (the reason is on standard error), 2 called wrongly, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def status(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """Show the parts of a namespace: name server, managers, concentrators, nodes.

    Asks the parts themselves: it starts nothing, and joins nothing. With --json, one document with the fields of
    `ec.status()`.
    """
    with exit_codes():
        _check_names(namespace)
        from echannel_ray.overview.joining import running_ray

        with running_ray(address):
            from echannel_ray.overview.reading import read_status

            found = read_status(namespace)
        if as_json:
            print(found.model_dump_json(indent=2))
        else:
            from echannel_ray.cli.tables import print_status

            print_status(found)


@app.command()
def channels(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """List the channels of a namespace: type, producers, consumers, events published and delivered.

    With --json, one list with the fields of `channel.stats()` and `event_type` (null is untyped).
    """
    with exit_codes():
        _check_names(namespace)
        from echannel_ray.overview.joining import running_ray

        with running_ray(address):
            from echannel_ray.overview.reading import read_channels

            found = read_channels(namespace)
        if as_json:
            import json

            print(json.dumps([line.model_dump(mode="json") for line in found], indent=2))
        else:
            from echannel_ray.cli.tables import print_channels

            print_channels(found, namespace)


@app.command()
def tap(
    channel: ChannelName,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many events.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="End after this many seconds; an error if --count was not reached.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="ECODE", help="Only events for which this holds; of a typed channel: 'price > 75.5'."),
    ] = None,
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a channel as they come, until Ctrl-C.

    A tap is a consumer like any other: it gets every event from now on, and a producer waits for one that reads too
    slowly. Each line has the producer, the sequence number and the event. With --json each line is a document: what
    JSON has no form for is its repr, bytes are in base 64. What --where rejects never leaves its producer.
    """
    with exit_codes():
        _check_names(namespace, channel)
        from echannel_ray.overview.joining import running_ray

        out = sys.stdout
        with running_ray(address):
            from echannel_ray.cli import moving

            with moving.joined(namespace):
                moving.tap(channel, count, timeout, as_json, out, where)


@app.command()
def publish(
    channel: ChannelName,
    events: Annotated[
        list[str],
        typer.Argument(metavar="JSON...", help="The events; '-' reads standard input, a document on each line."),
    ],
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Publish events, each of them a document of JSON; on a typed channel an object with its fields.

    Returns when every consumer's process has them. Negative numbers come after `--`: echannel publish heat -- -5
    """
    from echannel_ray.cli.documents import NoDocument

    with exit_codes():
        _check_names(namespace, channel)
        try:
            wanted = _documents(events)
            from echannel_ray.overview.joining import running_ray

            with running_ray(address):
                from echannel_ray.cli import moving

                with moving.joined(namespace):
                    done = moving.publish(channel, wanted)
        except NoDocument as error:
            raise typer.BadParameter(str(error), param_hint="JSON") from None
        if as_json:
            import json

            print(json.dumps(done))
        else:
            from echannel_ray.cli.tables import counted

            print(f"published {done['published']} on {channel}, which has {counted(done['consumers'], 'consumer')}")


@app.command()
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
        from echannel_ray.cli import benching

        if list_them:
            benching.show_list(as_json)
            return
        try:
            is_sound = benching.bench(names or benching.KEY_EXPERIMENTS, full, out, as_json)
        except UnknownExperiment as error:
            raise typer.BadParameter(str(error), param_hint="NAME") from None
        if not is_sound:
            raise typer.Exit(FAILED)


@app.command()
def demo() -> None:
    """See it work: a local Ray of two nodes, a producer, five consumers, and a part that is killed.

    Takes half a minute. It starts everything that it needs, and ends it. The exit code is 0 if no event was lost.
    """
    from echannel_ray.demo import run

    raise typer.Exit(run())


def _check_names(namespace: str, channel: str | None = None) -> None:
    from echannel_ray.ids import check_channel_name, check_namespace

    check_namespace(namespace)
    if channel is not None:
        check_channel_name(channel)


def _documents(arguments: list[str]) -> Iterator[Any]:
    """The arguments as events: all are checked now, but for standard input, which is read when its turn comes."""
    from echannel_ray.cli.documents import document, documents

    known = [None if text == "-" else document(text, "an argument") for text in arguments]

    def each() -> Iterator[Any]:
        for text, event in zip(arguments, known, strict=True):
            if text == "-":
                yield from documents(sys.stdin)
            else:
                yield event

    return each()


def main() -> None:
    """The entry point of `echannel`."""
    app(prog_name="echannel")
