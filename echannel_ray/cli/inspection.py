"""The commands that look at a namespace: they start nothing, and join nothing."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer

from echannel_ray.cli.common_options import Address, AsJson, ChannelName, Namespace, check_names
from echannel_ray.cli.exit_codes import FAILED, exit_codes
from echannel_ray.cli.terminal_text import print_json
from echannel_ray.overview import ray_connection


def status(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """Show the parts of a namespace: name server, managers, concentrators, nodes.

    Asks the parts themselves: it starts nothing, and joins nothing. With --json, one document with the fields of
    `ec.status()`.
    """
    with exit_codes():
        check_names(namespace)
        with ray_connection.running_ray(address):
            from echannel_ray.overview.readings import read_status

            found = read_status(namespace)
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            from echannel_ray.cli.tables import print_status

            print_status(found)


def channels(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """List the channels of a namespace: type, producers, consumers, events published and delivered.

    With --json, one list with the fields of `channel.stats()` and `event_type` (null is untyped).
    """
    with exit_codes():
        check_names(namespace)
        with ray_connection.running_ray(address):
            from echannel_ray.overview.readings import read_channels

            found = read_channels(namespace)
        if as_json:
            print_json([line.model_dump(mode="json") for line in found])
        else:
            from echannel_ray.cli.tables import print_channels

            print_channels(found, namespace)


def info(
    channel: ChannelName, namespace: Namespace = "default", address: Address = None, as_json: AsJson = False
) -> None:
    """Show all there is to know of a channel.

    Its type and options, what was published, delivered and dropped, latency, lag, who is at which node, groups, and
    what is derived. With --json, one document with the fields of `channel.stats()`, and event_type, fields, packing,
    retention, logs and groups.
    """
    with exit_codes():
        check_names(namespace, channel)
        with ray_connection.running_ray(address):
            from echannel_ray.overview.readings import read_details

            found = read_details(namespace, channel)
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            from echannel_ray.cli.channel_screen import print_details

            print_details(found)


class Order(str, enum.Enum):
    """What channels are ranked by."""

    RATE = "rate"
    LAG = "lag"
    DROPS = "drops"


def top(
    sort: Annotated[Order, typer.Option(help="What is most by this comes first.")] = Order.RATE,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Measure for so long each time.")] = 2.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many intervals.")] = None,
    once: Annotated[bool, typer.Option("--once", help="As --count 1.")] = False,
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Show the busiest channels live, until Ctrl-C: rates, lag, drops.

    On a terminal they take the screen, elsewhere tables follow each other. Yellow is a channel whose producers wait for
    a consumer. With --json, a line with a document for each interval: rates and latency are of that interval (null is
    unknown: a channel is new, or did not tell all), lag_events and dropped_events are what there is at its end.
    """
    with exit_codes():
        check_names(namespace)
        out = sys.stdout
        with ray_connection.running_ray(address):
            from echannel_ray.cli import ranking

            ranking.top(namespace, sort.value, interval, 1 if once else count, as_json, out)


def graph(
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
    as_dot: Annotated[
        bool, typer.Option("--dot", help="Print it for Graphviz: echannel graph --dot | dot -Tsvg.")
    ] = False,
) -> None:
    """Show who is connected with whom: nodes, channels, producers, consumers, what is derived.

    With --json, one document with nodes, channels and edges; an edge has so many `ends` (producers or consumers of a
    node on a channel) and `events`.
    """
    with exit_codes():
        check_names(namespace)
        if as_json and as_dot:
            raise typer.BadParameter("--json or --dot, not both")
        with ray_connection.running_ray(address):
            from echannel_ray.overview.topology import read_topology

            found = read_topology(namespace)
        if as_json:
            print_json(found.model_dump(mode="json"))
            return
        from echannel_ray.cli import pictures

        if as_dot:
            print(pictures.dot(found))
        else:
            pictures.print_graph(found)


def tree(
    channel: Annotated[str | None, typer.Argument(metavar="[CHANNEL]", help="One channel; without it, all.")] = None,
    namespace: Namespace = "default",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Show what is derived from channels: by which modulators, events in and out, and the bytes that each has saved.

    With --json, a list with a document for each channel, each with what is `derived` from it, and so on.
    """
    with exit_codes():
        check_names(namespace, channel)
        with ray_connection.running_ray(address):
            from echannel_ray.overview.readings import read_channels, read_details
            from echannel_ray.overview.topology import derivation_of

            lines = read_channels(namespace) if channel is None else [read_details(namespace, channel)]
            found = [derivation_of(line) for line in lines]
        if as_json:
            print_json([each.model_dump(mode="json") for each in found])
        elif found:
            from echannel_ray.cli.pictures import print_trees

            print_trees(found)
        else:
            print(f"no channels in namespace {namespace}")


def doctor(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """Find what is wrong with an installation, and say what to do.

    Looks at this machine and, where a Ray runs, at each of its nodes (by a task that makes a sandbox there, and is
    waited for 45 seconds at most) and at a namespace. The exit code is 1 if there is a problem, 0 also with warnings.
    With --json, one document: each finding has check, state (ok, warning, problem, left out), says, advice and nodes.
    """
    with exit_codes():
        check_names(namespace)
        from echannel_ray.doctor.examination import examine

        report = examine(namespace, address)
        if as_json:
            print_json(report.model_dump(mode="json"))
        else:
            from echannel_ray.cli.tables import print_report

            print_report(report)
        if report.has_problem:
            raise typer.Exit(FAILED)
