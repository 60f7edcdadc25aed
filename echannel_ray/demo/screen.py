"""What the demonstration shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

_LINE_EVERY_SECONDS = 1.0


@dataclass
class ScreenRow:
    """A party, and its counter."""

    name: str
    where: str
    events: int = 0
    rate: float = 0.0
    peak_rate: float = 0.0

    def counted(self, events: int, seconds: float) -> None:
        """Take in the party's counter, so many seconds after it was last read."""
        self.rate = (events - self.events) / seconds if seconds > 0 else 0.0
        self.peak_rate = max(self.peak_rate, self.rate)
        self.events = events


class Screen:
    """Rows of rates, and under them what has happened."""

    def __init__(self, rows: list[ScreenRow], console: Console) -> None:
        self.rows = rows
        self._console = console
        self._begun = self._line_at = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Add a line to what has happened."""
        seconds = time.monotonic() - self._begun
        self._console.print(f"{seconds:5.1f} s  {text}", highlight=False, markup=False)

    def show(self) -> None:
        """Show these rates."""
        if self._live is not None:
            self._live.update(Group(Text(), self._table()), refresh=True)
        elif time.monotonic() - self._line_at >= _LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            rates = ", ".join(f"{row.name} {row.rate:,.0f}" for row in self.rows)
            self.say(f"events/s: {rates}")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in ("party", "where", "events", "events/s"):
            table.add_column(heading, justify="right" if heading.startswith("events") else "left")
        for row in self.rows:
            table.add_row(row.name, row.where, f"{row.events:,}", f"{row.rate:,.0f}")
        return table
