"""What follows from the rows, in sentences: what was lost, what was met, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echannel_ray.benchmarks.cells import CORES, goal, losses_first, outcome, quantity, ratio
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.result import Result, revisions

MAX_BEHIND = 5  # of an experiment, since one that draws lines has dozens; its table has them all


@dataclass(frozen=True)
class Conclusion:
    """Of one experiment."""

    experiment: str
    question: str
    has_goals: bool
    summary: str
    losses: list[str]
    left_out: list[str]


def conclude(result: Result) -> Conclusion:
    """What an experiment's rows say."""
    rows = losses_first(result.rows)
    return Conclusion(
        result.experiment,
        result.question,
        any(row.goal for row in rows),
        _summary(rows),
        [*(loss(row) for row in rows if outcome(row) in ("failed", "missed")), *_worst(rows)],
        [f"{row.measure}: {row.note}" for row in rows if row.verdict == "skipped"],
    )


def _summary(rows: list[Row]) -> str:
    judged = [row for row in rows if row.verdict in ("met", "missed")]
    compared = [row for row in rows if row.goal is None and row.deficit is not None]
    said = []
    if judged:
        met = [row for row in judged if row.verdict == "met"]
        allowed = sum(row.is_behind for row in met)
        said.append(
            f"met {len(met)} of {len(judged)} goals" + (f" (in {allowed} the baseline is better)" if allowed else "")
        )
    if compared:
        behind = sum(row.is_behind for row in compared)
        ahead = sum((row.deficit or 0) < 0 for row in compared)
        even = len(compared) - behind - ahead
        said.append(
            f"of {_counted(len(compared), 'comparison')} without a goal: better in {ahead}, worse in {behind}"
            + (f", worse by less than the spread in {even}" if even else "")
        )
    if failed := sum(row.verdict == "failed" for row in rows):
        said.append(f"{_counted(failed, 'measurement')} failed")
    if not said:
        said.append("no goals and no baselines: for information")
    return "; ".join(said)


def _worst(rows: list[Row]) -> list[str]:
    """Where the baseline is better and there is no goal: the worst of it, in words."""
    behind = sorted((row for row in rows if outcome(row) == "behind"), key=lambda row: -(row.deficit or 0))
    more = len(behind) - MAX_BEHIND
    said = [loss(row) for row in behind[:MAX_BEHIND]]
    return [*said, f"and {_counted(more, 'row')} more without a goal, less far behind"] if more > 0 else said


def of_revisions(results: Sequence[Result]) -> str:
    """Which revision was measured, and whether compiled; a warning, where there are several."""
    found = revisions(results)
    if len(found) <= 1:
        kinds = {kind for result in results if (kind := result.versions.get("echannel_ray"))}
        return f"All of revision {next(iter(found), '') or 'unknown'}{f', {kinds.pop()}' if len(kinds) == 1 else ''}."
    said = "; ".join(f"{revision or 'unknown'} ({', '.join(names)})" for revision, names in found.items())
    return f"**These are of {len(found)} revisions, so figures of different experiments don't compare:** {said}."


def loss(row: Row) -> str:
    """One row that was failed or lost, as a sentence."""
    where = f"{row.measure} ({CORES.get(row.placement, row.placement)})" if row.placement else row.measure
    if row.error:
        return f"{where}: failed with {row.error}"
    sentence = f"{where}: {quantity(row.ours_figure, row.ours.unit)}"
    if row.baseline is not None and row.ratio is not None:
        sentence += f" against {quantity(row.baseline_figure, row.baseline.unit)} of {row.against}, {ratio(row)}"
    sentence += f"; the goal is {goal(row)}" if row.goal else "; without a goal"
    return sentence + (f" (doubtful: {', '.join(row.doubts)})" if row.doubts else "")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
