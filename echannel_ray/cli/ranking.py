"""`top`: what channels do in a second, the busiest first, again and again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, TextIO

from pydantic import BaseModel, Field
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from echannel_ray.cli.channel_screen import seconds_text
from echannel_ray.cli.terminal_text import UNKNOWN, cell, console, plain_table
from echannel_ray.models import ChannelStats
from echannel_ray.overview.phrases import counted
from echannel_ray.overview.rate_meter import RateMeter
from echannel_ray.overview.readings import read_channels
from echannel_ray.overview.topology import with_derived

Order = Literal["rate", "lag", "drops"]
# Lines of a screen that are no channel's: those above, and the one that says how many are left out.
_OTHER_LINES = 4
_NAME_WIDTH = 12
_GAP = 2


class RankedChannel(BaseModel):
    """A channel, or one that is derived. None is unknown: it is new, or some of its counters were missing."""

    channel: str
    producers: int
    consumers: int
    published_per_second: float | None
    delivered_per_second: float | None
    dropped_per_second: float | None
    bytes_per_second: float | None
    lag_events: int  # not handled yet, also by groups that read logs
    dropped_events: int  # in all
    blocked_producers: int
    latency_p99_seconds: float | None  # of the interval


class Ranking(BaseModel):
    """What channels did between two looks at them, ranked."""

    namespace: str
    at: float  # seconds since 1970
    seconds: float  # since the look before
    channels: list[RankedChannel] = Field(default_factory=list)


def top(namespace: str, order: Order, every_seconds: float, count: int | None, as_lines: bool, to: TextIO) -> None:
    """Print so many rankings; without a count, until Ctrl-C."""
    rankings = watch(namespace, order, every_seconds, count)
    out = console(to)
    if as_lines:
        for ranking in rankings:
            print(json.dumps(ranking.model_dump(mode="json")), file=to, flush=True)
    elif out.is_terminal and count != 1:
        with Live(Text("measuring …"), console=out, screen=True, auto_refresh=False) as live:
            for ranking in rankings:
                live.update(shown(ranking, order, out.size), refresh=True)
    else:
        for number, ranking in enumerate(rankings):
            if number:
                out.print()
            out.print(shown(ranking, order, None))


def watch(namespace: str, order: Order, every_seconds: float, count: int | None) -> Iterator[Ranking]:
    """A ranking after each interval, without end where there is no count."""
    pause = threading.Event()
    meter = RateMeter()
    channels, before_at = read_channels(namespace), time.monotonic()
    ranked(channels, meter, before_at, order)
    made = 0
    while count is None or made < count:
        pause.wait(every_seconds)
        channels, at = read_channels(namespace), time.monotonic()
        rows = ranked(channels, meter, at, order)
        yield Ranking(namespace=namespace, at=time.time(), seconds=at - before_at, channels=rows)
        before_at = at
        made += 1


def ranked(channels: Sequence[ChannelStats], meter: RateMeter, at: float, order: Order) -> list[RankedChannel]:
    """A row for each channel and what is derived from it: what is most by this order first. One round of the meter."""
    rows = [_row(each, meter, at) for stats in channels for each in with_derived(stats)]
    meter.end_round()
    keys = {
        "rate": lambda row: (row.published_per_second or 0, row.delivered_per_second or 0),
        "lag": lambda row: (row.lag_events, row.published_per_second or 0),
        "drops": lambda row: (row.dropped_per_second or 0, row.dropped_events),
    }
    return sorted(sorted(rows, key=lambda row: row.channel), key=keys[order], reverse=True)


def _row(stats: ChannelStats, meter: RateMeter, at: float) -> RankedChannel:
    def rate(counter: str) -> float | None:
        return meter.rate((stats.channel, counter), getattr(stats, counter), at)

    return RankedChannel(
        channel=stats.channel,
        producers=stats.producers,
        consumers=stats.consumers,
        published_per_second=rate("events_published"),
        delivered_per_second=rate("events_delivered"),
        dropped_per_second=rate("events_dropped"),
        bytes_per_second=rate("bytes_published"),
        lag_events=stats.consumer_lag_events + sum(stats.lag.values()),
        dropped_events=stats.events_dropped,
        blocked_producers=stats.blocked_producers,
        latency_p99_seconds=meter.latencies(stats, at)[1],
    )


def shown(ranking: Ranking, order: Order, screen: ConsoleDimensions | None) -> RenderableType:
    """The ranking as a table that fits a screen of this size; without one, all of it."""
    rows = ranking.channels if screen is None else ranking.channels[: max(1, screen.height - _OTHER_LINES)]
    clock = datetime.fromtimestamp(ranking.at).strftime("%H:%M:%S")
    facts = [f"namespace {ranking.namespace}", clock, counted(len(ranking.channels), "channel"), f"by {order}"]
    lines: list[RenderableType] = [
        Text("   ".join(facts), "bold"),
        _table(rows, screen.width if screen is not None else None),
    ]
    if len(rows) < len(ranking.channels):
        lines.append(Text(f"and {len(ranking.channels) - len(rows):,} more", "dim"))
    return Group(*lines)


def _table(rows: Sequence[RankedChannel], width: int | None) -> Table:
    table = plain_table("channel", ">in/s", ">out/s", ">bytes/s", ">lag", ">drops/s", ">dropped", ">p99")
    for row in rows:
        table.add_row(
            cell(row.channel, "yellow" if row.blocked_producers else ""),
            _rate(row.published_per_second),
            _rate(row.delivered_per_second),
            _bytes(row.bytes_per_second),
            Text(f"{row.lag_events:,}", "yellow" if row.lag_events else ""),
            Text(_rate(row.dropped_per_second), "red" if row.dropped_per_second else ""),
            f"{row.dropped_events:,}",
            seconds_text(row.latency_p99_seconds),
        )
    if width is not None:  # of a screen, where each is one line, and it is names that are cut
        needed = [max(len(str(each)) for each in (column.header, *column.cells)) for column in table.columns[1:]]
        names = table.columns[0]
        names.no_wrap, names.overflow = True, "ellipsis"
        names.max_width = max(_NAME_WIDTH, width - sum(needed) - _GAP * len(needed))
    return table


def _bytes(per_second: float | None) -> str:
    if per_second is None:
        return UNKNOWN
    return decimal(round(per_second)).replace(" bytes", " B").replace(" byte", " B")


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return UNKNOWN
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"
