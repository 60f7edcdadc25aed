"""Results as JSON, as a Markdown table (losses first) and on the terminal."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.harness.rows import Row
from benchmarks.harness.samples import Plan

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
COLUMNS = ("experiment", "measure", "cores", "figure", "spread", "baseline", "ratio", "goal", "verdict", "note")
ORDER = {"failed": 0, "missed": 1, "met": 2, "": 3}


def document(name: str, question: str, plan: Plan, seconds: float, rows: list[Row]) -> dict[str, Any]:
    """One experiment's results with all that is needed to judge them."""
    return {
        "experiment": name,
        "question": question,
        "seed": plan.seed,
        "short": plan.short,
        "rounds": plan.rounds,
        "took_seconds": round(seconds, 1),
        "machine": _machine(),
        "versions": {package: _version(package) for package in ("echannel_ray", "ray", "pyzmq", "msgspec", "numpy")},
        "rows": [row.as_dict() for row in rows],
    }


def save(results: dict[str, Any]) -> None:
    """Keep one experiment's results, and write the Markdown table of all that are kept."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{results['experiment']}.json").write_text(json.dumps(results, indent=1) + "\n")
    kept = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    (FOLDER / "RESULTS.md").write_text(markdown(kept))


def markdown(kept: list[dict[str, Any]]) -> str:
    """The table as a page."""
    machine, versions = kept[-1]["machine"], kept[-1]["versions"]
    lines = [
        "# Results",
        "",
        "Written by `python -m benchmarks`. Losses first. The ratio is our figure over the baseline's, both the best",
        "of several interleaved rounds of one run; the spread is from our best to our worst. Cores: `one` has all",
        "processes on one core, `two` has the source on one and everything else on another, `free` pins nothing.",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; "
        + ", ".join(f"{package} {number}" for package, number in versions.items())
        + ".",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in _lines(kept)]
    return "\n".join(lines) + "\n"


def show(results: list[dict[str, Any]]) -> None:
    """The table on the terminal."""
    table = Table(*COLUMNS, title="echannel_ray benchmarks")
    colours = {"failed": "bold red", "missed": "red", "met": "green", "": ""}
    for line in _lines(results):
        table.add_row(*line, style=colours[line[COLUMNS.index("verdict")]])
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def _lines(results: list[dict[str, Any]]) -> list[list[str]]:
    rows = [(result["experiment"], row) for result in results for row in result["rows"]]
    return [_line(experiment, row) for experiment, row in sorted(rows, key=lambda pair: ORDER[pair[1]["verdict"]])]


def _line(experiment: str, row: dict[str, Any]) -> list[str]:
    unit, goal, ratio = row["ours"]["unit"], row["goal"], row["ratio"]
    against = row["against"]
    if row["baseline_best"] is not None:
        against += f": {quantity(row['baseline_best'], row['baseline']['unit'])}"
    limit = ""
    if goal:
        limit = f"{goal['bound']} " + (quantity(goal["limit"], unit) if ratio is None else f"{goal['limit']:.3g}x")
    return [
        experiment,
        row["measure"],
        row["placement"],
        "" if row["best"] is None else quantity(row["best"], unit),
        "" if row["spread"] is None else f"{row['spread']:.0%}",
        against,
        "" if ratio is None else f"{ratio:.3g}x",
        limit,
        row["verdict"],
        row["error"] or row["note"],
    ]


def quantity(value: float, unit: str) -> str:
    """A figure for people."""
    if unit == "s":
        for factor, name in ((1e6, "µs"), (1e3, "ms")):
            if value * factor < 1000:
                return f"{value * factor:.3g} {name}"
        return f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB" if abs(value) >= 1e6 else f"{value:,.0f} B"
    return f"{value:,.3g} {unit}" if abs(value) < 100 else f"{value:,.0f} {unit}"


def _machine() -> dict[str, Any]:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
