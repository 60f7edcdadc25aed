"""The command `echannel`: what a namespace runs, and events from and to the shell.

Ray, and what else takes long to import, is imported by the commands that need it: `--help` is quick.
"""

from __future__ import annotations

import typer

from echannel_ray.cli.event_commands import publish, tap
from echannel_ray.cli.inspection import channels, doctor, graph, info, status, top, tree
from echannel_ray.cli.programs import bench, demo, serve
from echannel_ray.cli.revoke_command import revoke

app = typer.Typer(
    name="echannel",
    help="Event channels for Ray: look at them, listen to them, publish on them.",
    epilog="Exit codes: 0 done, 1 failed (the reason is on standard error), 2 called wrongly, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (status, channels, info, tap, publish, top, graph, tree, doctor, revoke, bench, serve, demo):
    app.command()(command)


def main() -> None:
    """The entry point of `echannel`."""
    app(prog_name="echannel")
