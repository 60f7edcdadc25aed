"""How far a channel is, on a terminal: what goes in, what waits, what has been handled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from echannel_ray.endpoint.offload import meanwhile
from echannel_ray.errors import ChannelDeleted

if TYPE_CHECKING:
    from echannel_ray.event_channel import EventChannel
    from echannel_ray.models import ChannelStats

_EVERY_SECONDS: Final = 0.5


@contextmanager
def watch(channel: EventChannel, console: Console | None = None) -> Iterator[None]:
    """Meanwhile a bar shows how much of what was published has been handled, what is staged, and how far groups lag
    behind. Where there is no terminal, nothing is shown.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(channel.name, total=None, said="")
        began = time.monotonic()

        def show() -> None:
            with contextlib.suppress(ChannelDeleted):
                _show(bar, task, channel.stats(), time.monotonic() - began)

        with meanwhile(_EVERY_SECONDS, show):
            yield


def _show(bar: Progress, task: TaskID, stats: ChannelStats, seconds: float) -> None:
    handled = stats.events_delivered // max(1, stats.consumers)
    bar.update(
        task,
        total=stats.events_published or None,
        completed=min(stats.events_published, handled),
        said=said(stats, seconds),
    )


def said(stats: ChannelStats, seconds: float) -> str:
    """The text beside the bar."""
    rate = stats.events_published / max(seconds, _EVERY_SECONDS)
    parts = [
        f"{stats.events_published:,} in ({rate:,.0f}/s, {decimal(stats.bytes_published)})",
        f"{stats.events_delivered:,} handled",
    ]
    if stats.staged_bytes:
        parts.append(f"{decimal(stats.staged_bytes)} staged")
    parts += [f"{group} {lag:,} behind" for group, lag in sorted(stats.lag.items()) if lag]
    return ", ".join(parts)
