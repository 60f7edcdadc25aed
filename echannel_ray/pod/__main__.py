"""`python -m echannel_ray.pod`: what the containers of a pod with Ray run."""

from __future__ import annotations

import argparse  # not typer, which takes 20 MB: this process is one more in each pod
import sys

from echannel_ray.pod.settings import CommandRefused
from echannel_ray.pod.start_command import drain, start


def main() -> int:
    """Run the pod's command; its exit code, or 2 where there is no command."""
    parser = argparse.ArgumentParser(prog="python -m echannel_ray.pod", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="run Ray in this container, answer probes, drain the node at its end")
    starting.add_argument(
        "arguments", nargs="*", metavar="-- COMMAND", help="what to run; by default, what KubeRay says"
    )
    commands.add_parser("drain", help="drain this node, for preStop; returns when that is done")
    chosen = parser.parse_args()
    try:
        return start(chosen.arguments) if chosen.command == "start" else drain()
    except CommandRefused as error:
        print(f"echannel_ray.pod: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
