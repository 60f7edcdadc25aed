"""Results on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from echannel_ray.benchmarks.cells import COLUMNS, cells, losses_first, outcome
from echannel_ray.benchmarks.conclusions import conclude
from echannel_ray.benchmarks.result import Result

COLOURS = {"failed": "bold red", "missed": "red", "behind": "red", "met": "green", "": "", "skipped": "dim"}
PIPE_WIDTH = 200


def show(results: list[Result]) -> None:
    """A table of all rows, and a line for each experiment."""
    table = Table("experiment", *COLUMNS, title="echannel_ray benchmarks")
    rows = [(result.experiment, row) for result in results for row in losses_first(result.rows)]
    for experiment, row in rows:
        table.add_row(experiment, *map(escape, cells(row)), style=COLOURS[outcome(row)])
    console = _console()
    console.print(table)
    for result in results:
        console.print(escape(f"{result.experiment}: {conclude(result).summary}"))
    for doubt in dict.fromkeys(doubt for result in results for doubt in result.machine.doubts):
        console.print(escape(f"Don't trust these figures too far: {doubt}."))


def show_list(lines: list[dict[str, str]]) -> None:
    """What can be run."""
    table = Table("name", "question", "repeats", box=None, pad_edge=False)
    for line in lines:
        missing = f" ({line['missing']})" if line["missing"] else ""
        table.add_row(escape(line["name"]), escape(line["question"] + missing), escape(line["paper"]))
    _console().print(table)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)
