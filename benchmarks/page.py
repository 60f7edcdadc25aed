"""RESULTS.md: the machine; conclusions, losses first; and for each experiment its plots and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.cells import COLUMNS, cells, losses_first
from echannel_ray.benchmarks.conclusions import Conclusion, conclude, of_revisions
from echannel_ray.benchmarks.panels import panels
from echannel_ray.benchmarks.result import Result

INTRODUCTION = """\
Written by `make bench`. Each figure is the best of several rounds of one run, in which we and the baselines took
turns; the spread is the distance from the best round to the worst. A ratio is our figure over the baseline's: of a rate
more is better, of a time or a size less. "Behind" is where there is no goal and the baseline is better by more than our
figure varies. Cores: `one` has all processes on one core, `two` has the source on one and everything else on another,
`free` pins nothing. The JSON files beside the plots have all samples."""
MARKUP = str.maketrans({character: f"\\{character}" for character in "\\|*[]<>"} | {"\n": " ", "\r": " "})


def markdown(results: Sequence[Result], folder: Path) -> str:
    """The page, whose plots are in the folder `results` beside it, if they could be drawn."""
    conclusions = [conclude(result) for result in results]
    common = _setting(results[0])
    lines = ["# Results", "", INTRODUCTION, "", common, "", of_revisions(results), ""]
    dates = sorted({result.date for result in results if result.date})
    if len(dates) > 1:
        lines += [
            f"These are experiments of {len(dates)} runs, from {dates[0]} to {dates[-1]}: each says of which.",
            "",
        ]
    lines += _conclusions(conclusions)
    for result, conclusion in zip(results, conclusions, strict=True):
        lines += _section(result, conclusion, "" if _setting(result) == common else _setting(result), folder)
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that is to appear as it is, also in a table."""
    return text.translate(MARKUP)


def _conclusions(conclusions: Sequence[Conclusion]) -> list[str]:
    goals_first = sorted(conclusions, key=lambda each: not each.has_goals)
    lines = ["## What was lost", ""]
    for each in goals_first:
        if each.losses:
            lines += [_summary(each), *(f"  - {escaped(loss)}." for loss in each.losses)]
    if not any(each.losses for each in conclusions):
        lines.append("Nothing.")
    others = [_summary(each) for each in goals_first if not each.losses]
    if others:
        lines += ["", "## What was not", "", *others]
    left_out = dict.fromkeys(escaped(reason) for each in conclusions for reason in each.left_out)
    if left_out:
        lines += ["", "## What was left out", "", *(f"- {reason}" for reason in left_out)]
    return [*lines, ""]


def _summary(each: Conclusion) -> str:
    lost = " Lost:" if each.losses else ""
    return f"- [{each.experiment}](#{each.experiment}): {each.question} {each.summary.capitalize()}.{lost}"


def _section(result: Result, conclusion: Conclusion, setting: str, folder: Path) -> list[str]:
    how = [f"{result.date}, {result.rounds} rounds, seed {result.seed}, {result.took_seconds:.0f} s".removeprefix(", ")]
    how += ["the short form"] if result.short else []
    paper = f" Repeats {escaped(result.paper)}." if result.paper else ""
    summary = f"{conclusion.summary.capitalize()}. ({', '.join(how)})"
    lines = [f"## {result.experiment}", "", f"{result.question}{paper}", "", summary, ""]
    lines += [line for doubt in result.machine.doubts for line in (f"**Doubtful:** {doubt}.", "")]
    if setting:
        lines += [f"Measured elsewhere or with other versions: {setting}", ""]
    for panel in panels(result.figures, result.rows):
        file, title = panel.file_name(result.experiment), escaped(panel.figure.title)
        if (folder / "results" / file).exists():
            lines += [f"![{title}](results/{file})", ""]
        else:
            lines += [f"The plot “{title}” was left out: {extras.not_installed('matplotlib')}.", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(escaped, cells(row))) + " |" for row in losses_first(result.rows)]
    return [*lines, ""]


def _setting(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items() if number != "not installed")
    revision = f" Revision {result.revision}." if result.revision else ""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB, Linux {machine.kernel}, "
        f"Python {machine.python}; {versions}.{revision}"
    )
