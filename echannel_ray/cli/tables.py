"""What `status`, `channels` and `doctor` found, for people."""

from __future__ import annotations

from collections import Counter

from rich.table import Table
from rich.text import Text

from echannel_ray.cli.terminal_text import cell, console, plain_table
from echannel_ray.doctor.findings import Report
from echannel_ray.models import ConcentratorPart, Manager, Part, Status
from echannel_ray.overview.phrases import counted
from echannel_ray.overview.readings import ChannelLine

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red"}
NODE_DIGITS = 8  # of a node's id: enough to tell them apart


def print_status(status: Status) -> None:
    """Print the parts of a namespace, and the nodes."""
    out = console()
    if status.name_server.error and not status.managers:
        out.print(cell(f"namespace {status.namespace}: {status.name_server.error}"))
        return
    parts = plain_table("part", "node", ">pid", ">restarts", "what it has", title=f"namespace {status.namespace}")
    _add(parts, "name server", status.name_server, counted(len(status.channels), "channel"))
    for number, manager in enumerate(status.managers):
        _add(parts, f"manager {number}", manager, _duty(manager))
    for concentrator in status.concentrators:
        _add(parts, "concentrator", concentrator, _traffic(concentrator))
    out.print(parts)
    alive = [node for node in status.nodes if node.alive]
    out.print(f"\n{counted(len(alive), 'node')} alive, {sum(node.joined for node in alive)} with a concentrator")
    there = [each for each in (status.name_server, *status.managers, *status.concentrators) if each.error is None]
    compiled = sum(each.compiled for each in there)
    if there and compiled in (0, len(there)):
        out.print("all parts run compiled" if compiled else "all parts run as pure Python")
    elif there:
        out.print(f"{compiled} of {counted(len(there), 'part')} run compiled, the others as pure Python")
    for node in status.nodes:
        if node.suspected:
            out.print(f"node {short(node.node_id)} is suspected: it has been silent for more than a second")
    for each in status.concentrators:
        if each.refused:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(each.refused.items()))
            out.print(
                cell(f"node {short(each.node_id)} refused {counted(sum(each.refused.values()), 'link')}: {reasons}")
            )


def print_channels(channels: list[ChannelLine], namespace: str) -> None:
    """Print one line for each channel."""
    if not channels:
        console().print(f"no channels in namespace {namespace}")
        return
    table = plain_table("channel", "type", ">producers", ">consumers", ">published", ">delivered")
    for line in channels:
        numbers = (line.producers, line.consumers, line.events_published, line.events_delivered)
        table.add_row(cell(line.channel), cell(type_name(line.event_type)), *(f"{number:,}" for number in numbers))
    console().print(table)


def print_report(report: Report) -> None:
    """Print what the doctor found, and what to do."""
    table = plain_table("", "check", "what was found")
    left_out = [each for each in report.findings if each.state == "left out"]
    for each in report.findings:
        if each.state != "left out":
            says = cell(each.says if not each.nodes else f"{', '.join(each.nodes)}: {each.says}")
            if each.advice is not None:
                says += Text("\n→ ", "cyan") + cell(each.advice, "cyan")
            table.add_row(Text(each.state, _COLOURS[each.state]), cell(each.check), says)
    for why in dict.fromkeys(each.says for each in left_out):
        checks = ", ".join(each.check for each in left_out if each.says == why)
        table.add_row(Text("left out", "dim"), "", cell(f"{checks}: {why}"))
    out = console()
    out.print(table)
    states = Counter(each.state for each in report.findings)
    out.print(f"\n{counted(states['problem'], 'problem')}, {counted(states['warning'], 'warning')}")


def short(node_id: str) -> str:
    """The beginning of a node's id, enough to tell nodes apart."""
    return node_id[:NODE_DIGITS]


def type_name(event_type: str | None) -> str:
    """The class of a channel's events, without its module."""
    return (event_type or "untyped").rpartition(":")[2]


def _add(table: Table, kind: str, part: Part, duty: str) -> None:
    if part.error is not None:
        table.add_row(kind, "", "", "", Text("does not answer: ", "red") + cell(part.error))
    else:
        table.add_row(kind, short(part.node_id), str(part.pid), str(part.restarts), duty)


def _duty(manager: Manager) -> str:
    return counted(len(manager.channels), "channel") + (f" ({manager.state})" if manager.state != "serving" else "")


def _traffic(concentrator: ConcentratorPart) -> str:
    facts = [counted(concentrator.endpoints, "process", "es"), counted(concentrator.peers, "peer")]
    if concentrator.suspected_endpoints:
        facts.append(f"{len(concentrator.suspected_endpoints)} suspected")
    if concentrator.queued_bytes:
        facts.append(f"{concentrator.queued_bytes:,} B queued")
    return ", ".join(facts)
