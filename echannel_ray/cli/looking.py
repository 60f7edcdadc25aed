"""The commands that look at a namespace: they start nothing, and join nothing."""

from __future__ import annotations

from echannel_ray.cli.options import Address, AsJson, Namespace, check_names
from echannel_ray.cli.outcomes import exit_codes


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
