"""Keeping results in a folder: JSON, plots, and the page of all that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from echannel_ray.benchmarks import plots
from echannel_ray.benchmarks.documents import write
from echannel_ray.benchmarks.harness.rows import judged
from echannel_ray.benchmarks.page import markdown
from echannel_ray.benchmarks.panels import panels
from echannel_ray.benchmarks.result import Result, as_json, from_json
from echannel_ray.benchmarks.table import EXPERIMENTS, Experiment


def save(result: Result, folder: Path) -> None:
    """Keep one experiment's result, and its plots, in `folder/results`."""
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{result.experiment}.json").write_text(as_json(result.as_document()))
    for old in results.glob(f"{result.experiment}-*.svg"):
        old.unlink()
    if plots.can_draw():
        for panel in panels(result.figures, result.rows):
            (results / panel.file_name(result.experiment)).write_bytes(plots.draw(panel))


def render(folder: Path, documents: Sequence[Path] = ()) -> None:
    """Write `folder/RESULTS.md`, and the parts of documents that show results, as what is kept has them."""
    results = kept(folder / "results")
    (folder / "RESULTS.md").write_text(markdown(results, folder))
    write(documents, results)


def kept(results: Path) -> list[Result]:
    """What the folder has, in the table's order, judged by the goals of today.

    Results of experiments that are no more are left out.
    """
    files = {name: results / f"{name}.json" for name in EXPERIMENTS}
    return [
        _judged_anew(from_json(file.read_bytes()), EXPERIMENTS[name]) for name, file in files.items() if file.exists()
    ]


def _judged_anew(result: Result, experiment: Experiment) -> Result:
    """As it was judged, where a package is missing that the experiment needs to be imported."""
    return result if experiment.lacks else replace(result, rows=judged(result.rows, experiment.goals))
