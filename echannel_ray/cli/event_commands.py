"""The commands that move events: from channels to the shell, and from the shell to channels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from echannel_ray.cli.common_options import Address, AsJson, ChannelName, Gateway, Namespace, check_names, gateway_of
from echannel_ray.cli.exit_codes import exit_codes
from echannel_ray.overview import ray_connection


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
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="N", help="N events a second at most; no others leave their producers."),
    ] = None,
    namespace: Namespace = "default",
    address: Address = None,
    gateway: Gateway = None,
    as_json: AsJson = False,
) -> None:
    """Print the events of a channel as they come, until Ctrl-C.

    A tap is a consumer like any other: it gets every event from now on, and a producer waits for one that reads too
    slowly. Each line has the producer, the sequence number and the event. With --json each line is a document: what
    JSON has no form for is its repr, bytes are in base 64. What --where rejects never leaves its producer, nor does
    what --rate leaves out, which is counted at the end: each producer gets an equal share, and chooses in a sandbox.
    By a --gateway, --namespace is that of the gateway, and --where needs the right to derive.
    """
    from echannel_ray.cli.lines import TapRequest

    wanted = TapRequest(count, timeout, where, rate, as_json)
    endpoint = gateway_of(gateway, address)
    if endpoint is not None and rate is not None:
        raise typer.BadParameter(
            "--rate samples by a modulator, and clients of a gateway may ship E-code only: --where"
        )
    with exit_codes():
        check_names(namespace, channel)
        out = sys.stdout
        if endpoint is not None:
            from echannel_ray.cli import outside

            with outside.client_of(endpoint) as client:
                outside.tap(client, channel, wanted, out)
            return
        with ray_connection.running_ray(address):
            from echannel_ray.cli import inside

            with inside.joined(namespace):
                inside.tap(channel, wanted, out)


def publish(
    channel: ChannelName,
    events: Annotated[
        list[str],
        typer.Argument(metavar="JSON...", help="The events; '-' reads standard input, a document on each line."),
    ],
    namespace: Namespace = "default",
    address: Address = None,
    gateway: Gateway = None,
    as_json: AsJson = False,
) -> None:
    """Publish events, each of them a document of JSON; on a typed channel an object with its fields.

    Returns when every consumer's process has them; by a --gateway, when that has acknowledged them. Negative numbers
    come after `--`: echannel publish heat -- -5
    """
    from echannel_ray.cli.documents import NoDocument

    endpoint = gateway_of(gateway, address)
    with exit_codes():
        check_names(namespace, channel)
        try:
            done = _publish(channel, _documents(events), namespace, address, endpoint)
        except NoDocument as error:
            raise typer.BadParameter(str(error), param_hint="JSON") from None
        if as_json:
            import json

            print(json.dumps(done))
        elif done["consumers"] is None:
            print(f"published {done['published']} on {channel}")
        else:
            from echannel_ray.overview.phrases import counted

            print(f"published {done['published']} on {channel}, which has {counted(done['consumers'], 'consumer')}")


def _publish(
    channel: str, events: Iterator[Any], namespace: str, address: str | None, endpoint: str | None
) -> dict[str, Any]:
    if endpoint is not None:
        from echannel_ray.cli import outside

        with outside.client_of(endpoint) as client:
            return outside.publish(client, channel, events)
    with ray_connection.running_ray(address):
        from echannel_ray.cli import inside

        with inside.joined(namespace):
            return inside.publish(channel, events)


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
