"""Keeping results in a folder: JSON, plots, and the page of all that are kept."""

from __future__ import annotations

from pathlib import Path

from echannel_ray.benchmarks import plots
from echannel_ray.benchmarks.page import markdown
from echannel_ray.benchmarks.panels import panels
from echannel_ray.benchmarks.result import Result, as_json, from_json
from echannel_ray.benchmarks.table import EXPERIMENTS


def save(result: Result, folder: Path) -> None:
    """Keep one experiment's result in `folder/results`, and write `folder/RESULTS.md` anew."""
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{result.experiment}.json").write_text(as_json(result.as_document()))
    for old in results.glob(f"{result.experiment}-*.svg"):
        old.unlink()
    if plots.can_draw():
        for panel in panels(result.figures, result.rows):
            (results / panel.file_name(result.experiment)).write_bytes(plots.draw(panel))
    (folder / "RESULTS.md").write_text(markdown(kept(results), folder))


def kept(results: Path) -> list[Result]:
    """What the folder has, in the table's order; results of experiments that are no more are left out."""
    files = [results / f"{name}.json" for name in EXPERIMENTS]
    return [from_json(file.read_bytes()) for file in files if file.exists()]
