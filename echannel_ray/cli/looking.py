"""The commands that look at a namespace: they start nothing, and join nothing."""

from __future__ import annotations

import typer

from echannel_ray.cli.options import Address, AsJson, Namespace, check_names
from echannel_ray.cli.outcomes import FAILED, exit_codes


def status(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """Show the parts of a namespace: name server, managers, concentrators, nodes.

    Asks the parts themselves: it starts nothing, and joins nothing. With --json, one document with the fields of
    `ec.status()`.
    """
    with exit_codes():
        check_names(namespace)
        from echannel_ray.overview.joining import running_ray

        with running_ray(address):
            from echannel_ray.overview.reading import read_status

            found = read_status(namespace)
        if as_json:
            print(found.model_dump_json(indent=2))
        else:
            from echannel_ray.cli.tables import print_status

            print_status(found)


def channels(namespace: Namespace = "default", address: Address = None, as_json: AsJson = False) -> None:
    """List the channels of a namespace: type, producers, consumers, events published and delivered.

    With --json, one list with the fields of `channel.stats()` and `event_type` (null is untyped).
    """
    with exit_codes():
        check_names(namespace)
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
            from echannel_ray.cli.texts import print_json

            print_json(report.model_dump(mode="json"))
        else:
            from echannel_ray.cli.tables import print_report

            print_report(report)
        if report.has_problem:
            raise typer.Exit(FAILED)
