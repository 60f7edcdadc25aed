"""What `status` and `channels` found, for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from echannel_ray.models import ConcentratorPart, Manager, Part, Status
from echannel_ray.overview.reading import ChannelLine


def print_status(status: Status) -> None:
    """The parts, and the nodes."""
    console = Console(highlight=False)
    if status.name_server.error and not status.managers:
        console.print(f"namespace {status.namespace}: {escape(status.name_server.error)}")
        return
    parts = Table(title=f"namespace {status.namespace}", title_justify="left", box=None, pad_edge=False)
    for heading in ("part", "node", "pid", "restarts", "what it has"):
        parts.add_column(heading, justify="right" if heading in ("pid", "restarts") else "left")
    _add(parts, "name server", status.name_server, counted(len(status.channels), "channel"))
    for number, manager in enumerate(status.managers):
        _add(parts, f"manager {number}", manager, _duty(manager))
    for concentrator in status.concentrators:
        _add(parts, "concentrator", concentrator, _traffic(concentrator))
    console.print(parts)
    alive = [node for node in status.nodes if node.alive]
    console.print(f"\n{counted(len(alive), 'node')} alive, {sum(node.joined for node in alive)} with a concentrator")
    for node in status.nodes:
        if node.suspected:
            console.print(f"node {_short(node.node_id)} is suspected: it has been silent for more than a second")


def print_channels(channels: list[ChannelLine], namespace: str) -> None:
    """One line for each channel."""
    console = Console(highlight=False)
    if not channels:
        console.print(f"no channels in namespace {namespace}")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("channel", overflow="fold")
    table.add_column("type", overflow="fold")
    for heading in ("producers", "consumers", "published", "delivered"):
        table.add_column(heading, justify="right")
    for line in channels:
        numbers = (line.producers, line.consumers, line.events_published, line.events_delivered)
        event_type = (line.event_type or "untyped").rpartition(":")[2]
        table.add_row(escape(line.channel), escape(event_type), *(f"{number:,}" for number in numbers))
    console.print(table)


def counted(number: int, what: str, plural: str = "s") -> str:
    """`1 channel`, `2 channels`."""
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _add(table: Table, kind: str, part: Part, duty: str) -> None:
    if part.error is not None:
        table.add_row(kind, "", "", "", f"[red]does not answer:[/] {escape(part.error)}")
    else:
        table.add_row(kind, _short(part.node_id), str(part.pid), str(part.restarts), duty)


def _duty(manager: Manager) -> str:
    return counted(len(manager.channels), "channel") + (f" ({manager.state})" if manager.state != "serving" else "")


def _traffic(concentrator: ConcentratorPart) -> str:
    facts = [counted(concentrator.endpoints, "process", "es"), counted(concentrator.peers, "peer")]
    if concentrator.suspected_endpoints:
        facts.append(f"{len(concentrator.suspected_endpoints)} suspected")
    if concentrator.queued_bytes:
        facts.append(f"{concentrator.queued_bytes:,} B queued")
    return ", ".join(facts)


def _short(node_id: str) -> str:
    return node_id[:8]
