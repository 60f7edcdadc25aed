"""How all goals stand, by what is kept of the experiments: the tables of the documents, and what they lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from echannel_ray.benchmarks.cells import CORES, bound, kind, number, quantity
from echannel_ray.benchmarks.harness.rows import Goal, Row
from echannel_ray.benchmarks.result import Result
from echannel_ray.benchmarks.table import Experiment

UNEXPLAINED = "nobody has said yet: `benchmarks/reasons.md` is where"


@dataclass(frozen=True)
class Standing:
    """One goal, and the rows that it judges."""

    goal: Goal
    rows: list[Row]

    @property
    def is_missed(self) -> bool:
        """Whether some row misses it; one that was not measured is neither met nor missed."""
        return any(row.verdict == "missed" for row in self.rows)


def standings(experiments: Iterable[Experiment], results: Sequence[Result]) -> list[Standing]:
    """All goals that are declared, in the order of the experiments."""
    rows = [row for result in results for row in result.rows if row.goal is not None and row.ours.values]
    return [
        Standing(goal, [row for row in rows if row.goal == goal])
        for experiment in experiments
        if not experiment.lacks
        for goal in experiment.goals
    ]


def table(all_standings: Iterable[Standing]) -> list[str]:
    """Markdown: each goal, with a line for each placement; what misses it comes first."""
    lines = ["| what | cores | goal | measured | beside it, in the same run | |", "|---|---|---|---|---|---|"]
    for each in sorted(all_standings, key=lambda each: not each.is_missed):
        if not each.rows:
            lines.append(f"| {each.goal.name} | | {bound(each.goal, '', bool(each.goal.against))} | | | not measured |")
        placements = dict.fromkeys(row.placement for row in each.rows)
        lines += [_line(each.goal, [row for row in each.rows if row.placement == name]) for name in placements]
    return lines


def reasons(all_standings: Iterable[Standing], why: Mapping[str, str]) -> list[str]:
    """Markdown: the goals that are missed, and where the time goes: a line for those that share a reason."""
    sharing: dict[str, list[str]] = {}
    for each in all_standings:
        if each.is_missed:
            sharing.setdefault(why.get(each.goal.name, UNEXPLAINED), []).append(each.goal.name)
    lines = ["| what misses its goal | where the time goes |", "|---|---|"]
    return [*lines, *(f"| {'; '.join(names)} | {reason} |" for reason, names in sharing.items())]


def unexplained(all_standings: Iterable[Standing], why: Mapping[str, str]) -> list[str]:
    """Goals that are missed, and nobody says why."""
    return [each.goal.name for each in all_standings if each.is_missed and each.goal.name not in why]


def explained_for_nothing(all_standings: Iterable[Standing], why: Mapping[str, str]) -> list[str]:
    """Reasons of goals that are met, or are no more; a goal that was not measured may keep its reason."""
    known = {each.goal.name: each for each in all_standings}
    return [name for name in why if name not in known or (known[name].rows and not known[name].is_missed)]


def _line(goal: Goal, rows: Sequence[Row]) -> str:
    first, missed = rows[0], sum(row.verdict == "missed" for row in rows)
    verdict = ("missed" if missed == len(rows) else f"missed in {missed} of {len(rows)}") if missed else "met"
    unit = first.ours.unit
    measured, ratios = _span([row.ours_figure for row in rows], unit), [row.ratio for row in rows if row.ratio]
    if ratios:
        measured += f", {_between(number(min(ratios)), number(max(ratios)))} times the {kind(unit)}"
    beside = ""
    if first.baseline is not None and ratios:
        names = dict.fromkeys(row.against for row in rows)
        name = first.against if len(names) == 1 else first.against.partition(",")[0]
        beside = f"{name}: {_span([row.baseline_figure for row in rows], first.baseline.unit)}"
    cores = CORES.get(first.placement, first.placement)
    return f"| {goal.name} | {cores} | {bound(goal, unit, bool(ratios))} | {measured} | {beside} | {verdict} |"


def _span(figures: Sequence[float], unit: str) -> str:
    return _between(quantity(min(figures), unit), quantity(max(figures), unit))


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
