"""What an experiment reports: rows, each a figure with its baseline and its goal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.harness.samples import Samples

Verdict = Literal["met", "missed", "failed", ""]


@dataclass(frozen=True)
class Goal:
    """A bound: on the ratio to the baseline where a row has one, else on the figure itself."""

    bound: Literal["at most", "at least"]
    limit: float

    def holds(self, figure: float) -> bool:
        """Whether a figure keeps the bound."""
        return figure <= self.limit if self.bound == "at most" else figure >= self.limit


def at_most(limit: float) -> Goal:
    """A goal for times, sizes and their ratios."""
    return Goal("at most", limit)


def at_least(limit: float) -> Goal:
    """A goal for rates and their ratios."""
    return Goal("at least", limit)


@dataclass(frozen=True)
class Row:
    """One figure. Without a goal it is there for information."""

    measure: str
    placement: str
    ours: Samples
    against: str = ""
    baseline: Samples | None = None
    goal: Goal | None = None
    note: str = ""
    error: str = ""

    @property
    def ratio(self) -> float | None:
        """Our figure as a multiple of the baseline's."""
        return self.ours.best / self.baseline.best if self.baseline and self.baseline.best else None

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is met."""
        if self.error:
            return "failed"
        if self.goal is None:
            return ""
        figure = self.ours.best if self.ratio is None else self.ratio
        return "met" if self.goal.holds(figure) else "missed"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, all samples included."""
        return {
            **asdict(self),
            "best": self.ours.best if self.ours.values else None,
            "spread": self.ours.spread if self.ours.values else None,
            "baseline_best": self.baseline.best if self.baseline else None,
            "baseline_spread": self.baseline.spread if self.baseline else None,
            "ratio": self.ratio,
            "verdict": self.verdict,
        }


def failure(measure: str, error: BaseException) -> Row:
    """The row of an experiment that could not be finished; Ray puts the cause on the last line of its errors."""
    cause = (str(error).strip().splitlines() or [""])[-1]
    return Row(measure, "", Samples("", True), error=f"{type(error).__name__}: {cause}"[:300])
