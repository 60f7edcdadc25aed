"""`info`: one channel, on one screen."""

from __future__ import annotations

from collections.abc import Iterator

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from echannel_ray.cli.tables import short, type_name
from echannel_ray.cli.terminal_text import UNKNOWN, cell, console, plain_table
from echannel_ray.overview.phrases import counted
from echannel_ray.overview.readings import ChannelDetails


def print_details(details: ChannelDetails) -> None:
    """Print what a channel is, what it has done, and who is there."""
    out = console()
    out.print(cell(f"{details.namespace}/{details.channel}", "bold"))
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in (*_is(details), *_has_done(details), *_has_to_do(details)):
        facts.add_row(name, cell(value))
    out.print(facts)
    for table in (_nodes(details), _groups(details), _derived(details)):
        if table.row_count:
            out.print()
            out.print(table)


def seconds_text(seconds: float | None) -> str:
    """A latency for people."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _is(details: ChannelDetails) -> Iterator[tuple[str, str]]:
    yield "type", type_name(details.event_type)
    if details.fields is not None:
        yield "fields", ", ".join(f"{name}: {kind}" for name, kind in details.fields.items())
    degree, interval = details.packing["degree"], details.packing["interval_seconds"]
    yield "packing", f"{degree if isinstance(degree, str) else f'{degree} events'}, {seconds_text(interval)}"
    retention = details.retention
    if retention is None:
        yield "retention", "none"
        return
    limits = decimal(retention["max_bytes"])
    if retention["max_age_seconds"] is not None:
        limits += f", {retention['max_age_seconds']:g} s"
    events, logs = counted(details.retained_events, "event"), counted(len(details.logs), "log")
    holds = f"{events} ({decimal(details.retained_bytes)}) in {logs}"
    yield "retention", f"{'on disk' if retention['disk'] else 'in memory'}, up to {limits}; holds {holds}"
    if details.staged_bytes:
        yield "staged", decimal(details.staged_bytes)


def _has_done(details: ChannelDetails) -> Iterator[tuple[str, str]]:
    yield "published", f"{counted(details.events_published, 'event')}, {decimal(details.bytes_published)}"
    yield "delivered", counted(details.events_delivered, "event")
    if details.events_failed:
        yield "failed", f"{counted(details.events_failed, 'event')}, whose handlers raised"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(details.dropped.items()))
    yield "dropped", counted(details.events_dropped, "event") + (f" ({reasons})" if reasons else "")
    yield "between nodes", f"{decimal(details.bytes_between_nodes)}"
    degrees = [f"{degree:,.0f}" for degree in sorted(details.packing_degree.values())]
    of_late = f"; of late with {' to '.join(dict.fromkeys((degrees[0], degrees[-1])))} in each" if degrees else ""
    yield "packs", f"{details.packs_sent:,}{of_late}"
    median, rare = seconds_text(details.latency_p50_seconds), seconds_text(details.latency_p99_seconds)
    yield "latency", f"p50 {median}, p99 {rare}"


def _has_to_do(details: ChannelDetails) -> Iterator[tuple[str, str]]:
    yield "lag", f"{counted(details.consumer_lag_events, 'event')} not handled, {details.queue_depth:,} in queues"
    if details.blocked_producers:
        waited = seconds_text(details.blocked_milliseconds / 1000)
        yield "waiting", f"{counted(details.blocked_producers, 'producer')} in publish; {waited} in all so far"


def _nodes(details: ChannelDetails) -> Table:
    table = plain_table("node", ">producers", ">consumers", ">published", ">delivered", ">dropped", ">queued")
    for node, share in sorted(details.nodes.items()):
        numbers = (share.producers, share.consumers, share.events_published, share.events_delivered)
        more = (share.events_dropped, share.queue_depth)
        if any((share.producers, share.consumers)):
            table.add_row(short(node), *(f"{number:,}" for number in (*numbers, *more)))
    return table


def _groups(details: ChannelDetails) -> Table:
    table = plain_table("group", "of", "members at", ">behind")
    for group in details.groups:
        members = ", ".join(f"{short(node)}: {count}" for node, count in sorted(group.members.items()))
        lag = details.lag.get(group.name)
        table.add_row(cell(group.name), cell(group.channel), members, UNKNOWN if lag is None else f"{lag:,}")
    known = {group.name for group in details.groups}
    for name, lag in sorted(details.lag.items()):
        if name not in known:  # a log remembers groups that nobody is in now
            table.add_row(cell(name), cell(details.channel), Text("nobody", "yellow"), f"{lag:,}")
    return table


def _derived(details: ChannelDetails) -> Table:
    table = plain_table("derived", "modulator", ">in", ">out", ">saved", ">consumers")
    for each in sorted(details.derived.values(), key=lambda each: each.channel):
        numbers = (f"{each.events_in:,}", f"{each.events_out:,}", decimal(each.saved_bytes), f"{each.consumers:,}")
        table.add_row(cell(each.channel), cell(each.modulator or ""), *numbers)
    return table
