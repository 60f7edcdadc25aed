"""The summary: whether anything was lost, repeated or reordered."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from echannel_ray.demo.parties import ReceivedTally
from echannel_ray.demo.screen import ScreenRow


@dataclass
class ConsumerVerdict:
    """A consumer (a group counts as one) against the events that it should have."""

    name: str
    expected: int
    received: int
    lost: int
    duplicates: int
    out_of_order: int
    peak_rate: float

    @property
    def is_flawless(self) -> bool:
        """Whether every event came, once, in order."""
        return not (self.lost or self.duplicates or self.out_of_order) and self.received == self.expected


def find(rows: list[ScreenRow], tallies: list[ReceivedTally], expected: int) -> ConsumerVerdict:
    """What the members of one consumer have seen together. Each sees its share in order."""
    numbers = [tally.seen[:expected].ljust(expected, b"\0") for tally in tallies]
    times = [sum(each) for each in zip(*numbers, strict=True)] if len(numbers) > 1 else numbers[0]
    return ConsumerVerdict(
        name=" + ".join(row.name for row in rows),
        expected=expected,
        received=sum(tally.received for tally in tallies),
        lost=times.count(0),
        duplicates=sum(tally.duplicates for tally in tallies) + sum(n - 1 for n in times if n > 1),
        out_of_order=sum(tally.out_of_order for tally in tallies),
        peak_rate=sum(row.peak_rate for row in rows),
    )


def print_findings(findings: list[ConsumerVerdict], console: Console) -> None:
    """Print one line for each consumer."""
    table = Table(box=None, pad_edge=False)
    table.add_column("consumer", overflow="fold")
    for heading in ("sent to it", "received", "lost", "twice", "out of order", "peak events/s"):
        table.add_column(heading, justify="right")
    for each in findings:
        numbers = (each.expected, each.received, each.lost, each.duplicates, each.out_of_order)
        table.add_row(each.name, *(f"{number:,}" for number in numbers), f"{each.peak_rate:,.0f}")
    console.print(table)


def microseconds(seconds: list[float]) -> str:
    """The median of some seconds as text, in microseconds."""
    return f"{median(seconds) * 1e6:,.0f} µs"
