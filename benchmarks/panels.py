"""What is to be drawn: the rows that name a figure, as the points of lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from echannel_ray.benchmarks.cells import CORES
from echannel_ray.benchmarks.harness.rows import Figure, Row

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line: ours, or a baseline's."""

    label: str
    is_ours: bool
    points: Points


@dataclass(frozen=True)
class Panel:
    """One plot; `unit` is that of its figures."""

    figure: Figure
    unit: str
    lines: list[Line]

    def file_name(self, experiment: str) -> str:
        """Where it is kept; many figures begin with the name of their experiment."""
        name = re.sub(r"[^a-zA-Z0-9_]+", "-", self.figure.name.removeprefix(experiment)).strip("-_")
        return f"{experiment}-{name or 'figure'}.svg"


def panels(figures: Iterable[Figure], rows: Iterable[Row]) -> list[Panel]:
    """The plots of an experiment; a figure that has different points at one place becomes one for each placement."""
    known = {figure.name: figure for figure in figures}
    by_figure: dict[str, list[Row]] = {}
    for row in rows:
        if row.figure and row.ours.values:
            by_figure.setdefault(row.figure, []).append(row)
    made = []
    for name, members in by_figure.items():
        # A name that was not declared is drawn too, so that nobody misses it.
        figure = known.get(name, Figure(name, name, "", members[0].ours.unit))
        made += [_panel(figure, members)] if not _collide(members) else _by_placement(figure, members)
    return made


def _by_placement(figure: Figure, rows: Sequence[Row]) -> list[Panel]:
    made = []
    for placement in dict.fromkeys(row.placement for row in rows):
        members = [row for row in rows if row.placement == placement]
        if _collide(members):  # not the placement makes the difference, so what was measured has to
            members = [replace(row, series=f"{row.series}, {row.measure}") for row in members]
        titled = replace(
            figure, name=f"{figure.name}-{placement}", title=f"{figure.title} ({CORES.get(placement, placement)})"
        )
        made.append(_panel(titled if placement else figure, members))
    return made


def _panel(figure: Figure, rows: Sequence[Row]) -> Panel:
    lines: dict[tuple[str, bool], set[tuple[float, float]]] = {}
    for label, is_ours, x, y in _points(rows):
        lines.setdefault((label, is_ours), set()).add((x, y))
    return Panel(figure, rows[0].ours.unit, [Line(*key, sorted(points)) for key, points in lines.items()])


def _collide(rows: Iterable[Row]) -> bool:
    found: dict[tuple[str, bool, float], float] = {}
    return any(found.setdefault((label, is_ours, x), y) != y for label, is_ours, x, y in _points(rows))


def _points(rows: Iterable[Row]) -> Iterable[tuple[str, bool, float, float]]:
    for row in rows:
        yield row.series, True, row.x, row.ours_figure
        if row.baseline is not None and row.baseline.values:
            yield row.against, False, row.x, row.baseline_figure
