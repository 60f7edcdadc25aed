"""Rows as the cells of a table, and figures as people read them."""

from __future__ import annotations

from collections.abc import Iterable

from echannel_ray.benchmarks.harness.rows import Goal, Row

COLUMNS = ("measure", "cores", "figure", "spread", "baseline", "ratio", "goal", "verdict", "note")
CORES = {"one": "one core", "two": "two cores", "free": "not pinned"}  # the placements, in sentences
STATISTICS = {"best": "", "median": "medians", "worst": "the worst"}  # what counts of the rounds, in notes
ORDER = ("failed", "missed", "behind", "met", "", "skipped")


def cells(row: Row) -> list[str]:
    """One for each of `COLUMNS`."""
    figure = quantity(row.ours_figure, row.ours.unit) if row.ours.values else ""
    spread = f"{row.ours.spread:.0%}" if row.ours.values else ""
    baseline = row.against
    if row.baseline is not None and row.baseline.values:
        baseline += f": {quantity(row.baseline_figure, row.baseline.unit)}"
    how = STATISTICS[row.statistic] if row.ours.values else ""
    note = "; ".join(filter(None, (row.error or row.note, how, *row.doubts)))
    return [row.measure, row.placement, figure, spread, baseline, ratio(row), goal(row), outcome(row), note]


def losses_first(rows: Iterable[Row]) -> list[Row]:
    """The rows in the order in which they matter to who has to choose."""
    return sorted(rows, key=lambda row: ORDER.index(outcome(row)))


def outcome(row: Row) -> str:
    """The verdict; without a goal, whether the baseline is better."""
    return row.verdict or ("behind" if row.is_behind else "")


def ratio(row: Row) -> str:
    """Our figure as a multiple of the baseline's, saying of what."""
    return "" if row.ratio is None else f"{number(row.ratio)}x its {kind(row.ours.unit)}"


def goal(row: Row) -> str:
    """The bound: on the ratio where there is one."""
    return "" if row.goal is None else bound(row.goal, row.ours.unit, row.ratio is not None)


def bound(goal: Goal, unit: str, is_of_ratio: bool) -> str:
    """The bound of a goal: times, where it is one on a ratio."""
    return f"{goal.bound} {f'{number(goal.limit)}x' if is_of_ratio else quantity(goal.limit, unit)}".rstrip()


def kind(unit: str) -> str:
    """What is counted in this unit."""
    if unit.endswith("/s"):
        return "rate"
    return {"s": "time", "bytes": "size"}.get(unit, "figure")


def quantity(value: float, unit: str) -> str:
    """A figure for people."""
    if unit == "s":
        for factor, name in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
            if abs(value) * factor < 1000:
                return f"{value * factor:.3g} {name}"
        return f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB" if abs(value) >= 1e6 else f"{value:,.0f} B"
    return f"{number(value)} {unit}"


def number(value: float) -> str:
    """Three digits of it, and all those before the point."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g} million"
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
