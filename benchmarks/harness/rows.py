"""What an experiment reports: rows, each a figure with its baseline and its goal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from echannel_ray.benchmarks.harness.samples import Samples

Verdict = Literal["met", "missed", "failed", "skipped", ""]
MAX_SPREAD = 0.25  # what varies by more from round to round was disturbed


@dataclass(frozen=True)
class Goal:
    """A bound: on the ratio to the baseline where a row has one, else on the figure itself.

    Declared once, in the `GOALS` of an experiment, for the rows that it names: by their measure, by their baseline, and
    if it is for some placement only, by that; the first two are regular expressions.
    """

    bound: Literal["at most", "at least"]
    limit: float
    name: str = ""  # what the reasons of misses and the tables of goals call it
    measure: str = ""
    against: str = ""  # rows without a baseline
    placement: str = ""  # any

    def is_for(self, row: Row) -> bool:
        """Whether it judges this row."""
        if self.placement not in ("", row.placement):
            return False
        return bool(re.fullmatch(self.measure, row.measure) and re.fullmatch(self.against, row.against))

    def holds(self, figure: float) -> bool:
        """Whether a figure keeps the bound."""
        return figure <= self.limit if self.bound == "at most" else figure >= self.limit


def at_most(limit: float, name: str = "", measure: str = "", against: str = "", placement: str = "") -> Goal:
    """A goal for times, sizes and their ratios."""
    return Goal("at most", limit, name, measure, against, placement)


def at_least(limit: float, name: str = "", measure: str = "", against: str = "", placement: str = "") -> Goal:
    """A goal for rates and their ratios."""
    return Goal("at least", limit, name, measure, against, placement)


@dataclass(frozen=True)
class Figure:
    """A plot, of the rows that name it: our figures as one line or several, their baselines' as others."""

    name: str
    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    paper: str = ""  # the figure or table that it repeats: "JECho, figure 4"


@dataclass(frozen=True)
class Row:
    """One figure. Without a goal it is there for information."""

    measure: str
    placement: str
    ours: Samples
    against: str = ""
    baseline: Samples | None = None
    goal: Goal | None = None  # that of its experiment's goals which is for it
    note: str = ""
    error: str = ""
    figure: str = ""  # the plot that it is a point of: at `x`, on our line `series` and on the baseline's
    x: float = 0.0
    series: str = "echannel_ray"
    # Of the rounds: the median where something may fail now and then, the worst where something is promised each time.
    statistic: Literal["best", "median", "worst"] = "best"

    @property
    def ours_figure(self) -> float:
        """What counts of our rounds."""
        return float(getattr(self.ours, self.statistic))

    @property
    def baseline_figure(self) -> float:
        """What counts of the baseline's rounds."""
        there = self.baseline is not None and self.baseline.values
        return float(getattr(self.baseline, self.statistic)) if there else 0.0

    @property
    def ratio(self) -> float | None:
        """Our figure as a multiple of the baseline's."""
        if not self.ours.values or not self.baseline_figure:
            return None
        return self.ours_figure / self.baseline_figure

    @property
    def deficit(self) -> float | None:
        """How much better the baseline is than we are, as a share of its figure or ours; negative where it is not."""
        if self.ratio is None:
            return None
        if self.ours.higher_is_better:
            return 1 / self.ratio - 1 if self.ratio else math.inf
        return self.ratio - 1

    @property
    def is_behind(self) -> bool:
        """Whether the baseline is better by more than our figure varies."""
        return self.deficit is not None and self.deficit > self.ours.spread

    @property
    def doubts(self) -> list[str]:
        """Why not to trust this figure; the worst of many is no less true for being far from the others."""
        if self.statistic == "worst":
            return []
        sides = {"spread": self.ours, "the baseline's spread": self.baseline}
        spreads = {name: side.spread for name, side in sides.items() if side is not None and side.values}
        return [f"{name} is {spread:.0%}" for name, spread in spreads.items() if spread > MAX_SPREAD]

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is met."""
        if self.error:
            return "failed"
        if not self.ours.values:
            return "skipped"
        if self.goal is None:
            return ""
        figure = self.ours_figure if self.ratio is None else self.ratio
        return "met" if self.goal.holds(figure) else "missed"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, all samples included."""
        return {
            **asdict(self),
            **_summary("", self.ours),
            **_summary("baseline_", self.baseline),
            "ratio": self.ratio,
            "verdict": self.verdict,
            "doubts": self.doubts,
        }


def _summary(prefix: str, samples: Samples | None) -> dict[str, float | None]:
    there = samples if samples is not None and samples.values else None
    return {f"{prefix}{name}": getattr(there, name, None) for name in ("best", "median", "spread")}


def judged(rows: Iterable[Row], goals: Iterable[Goal]) -> list[Row]:
    """The rows, each with the goal that is for it; the first one, where there are several."""
    goals = tuple(goals)
    return [replace(row, goal=next((goal for goal in goals if goal.is_for(row)), None)) for row in rows]


def failure(measure: str, error: BaseException) -> Row:
    """The row of an experiment that could not be finished; Ray puts the cause on the last line of its errors."""
    cause = (str(error).strip().splitlines() or [""])[-1]
    return Row(measure, "", Samples("", True), error=f"{type(error).__name__}: {cause}"[:300])


def skipped(what: str, why: str) -> Row:
    """The row of a baseline that can't run here; `why` says what would let it."""
    return Row(what, "", Samples("", True), note=why)
