"""The table of the experiments: a name, the module that runs it, and the number of Ray nodes that it needs."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.harness.rows import Figure, Goal, Row
from echannel_ray.benchmarks.harness.samples import Plan


class UnknownExperiment(ValueError):
    """A name that is not in the table."""


@dataclass(frozen=True)
class Experiment:
    """One experiment; its module is imported when it runs."""

    name: str
    nodes: int = 1

    @property
    def question(self) -> str:
        """The first paragraph of the module's docstring; read, not imported, since a package may be missing."""
        found = importlib.util.find_spec(self._module_name)
        assert found is not None, self._module_name
        assert found.origin is not None, self._module_name
        docstring = ast.get_docstring(ast.parse(Path(found.origin).read_text())) or ""
        return " ".join(docstring.split("\n\n")[0].split())

    @property
    def lacks(self) -> str | None:
        """The optional package without which the experiment can't run here."""
        try:
            importlib.import_module(self._module_name)
        except ModuleNotFoundError as error:
            if missing := extras.missing_package(error):
                return missing
            raise
        return None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Its plots."""
        return getattr(self._module, "FIGURES", ())

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What its rows are judged by."""
        return getattr(self._module, "GOALS", ())

    @property
    def paper(self) -> str:
        """Which tables and figures of papers it repeats."""
        named = [getattr(self._module, "PAPER", ""), *(figure.paper for figure in self.figures)]
        return "; ".join(dict.fromkeys(filter(None, named)))

    def run(self, plan: Plan) -> list[Row]:
        """Measure."""
        rows: list[Row] = self._module.run(plan)
        return rows

    @property
    def _module_name(self) -> str:
        return f"echannel_ray.benchmarks.experiments.{self.name}"

    @property
    def _module(self) -> Any:
        return importlib.import_module(self._module_name)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("machine"),
        Experiment("round_trip"),
        Experiment("async_cost"),
        Experiment("publish_rate"),
        Experiment("sinks"),
        Experiment("same_process"),
        Experiment("large"),
        Experiment("channels"),
        Experiment("pipeline"),
        Experiment("subscribe"),
        Experiment("shared"),
        Experiment("memory"),
        Experiment("modulators"),
        Experiment("handlers"),
        Experiment("exchange"),
        Experiment("breakdown"),
        Experiment("extension"),
        Experiment("typed_rates"),
        Experiment("ecode"),
        Experiment("rejection"),
        Experiment("averaging"),
        Experiment("packing"),
        Experiment("packing_loads"),
        Experiment("packing_changes"),
        Experiment("retention"),
        Experiment("stores"),
        Experiment("gateway"),
        Experiment("spark_sink"),
        Experiment("spark_first_batch"),
        Experiment("spark_source"),
        Experiment("spark_staging"),
        Experiment("spark_epochs"),
        Experiment("cpu_fanout", nodes=2),
        Experiment("across_nodes", nodes=2),
        Experiment("grid_viewer", nodes=2),
        Experiment("difference", nodes=2),
        Experiment("recovery", nodes=3),
    )
}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Those of these names in the table's order, or all of them where there are no names."""
    for name in names:
        if name not in EXPERIMENTS:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
            guess = f" (did you mean {near[0]}?)" if near else ""
            raise UnknownExperiment(f"there is no experiment {name!r}{guess}; there are {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


def listed() -> list[dict[str, str]]:
    """The names, the questions, which figures of papers are repeated, and what is missing here to run them."""
    lines = []
    for experiment in EXPERIMENTS.values():
        missing = experiment.lacks
        lines.append(
            {
                "name": experiment.name,
                "question": experiment.question,
                "paper": "" if missing else experiment.paper,
                "missing": extras.not_installed(missing) if missing else "",
            }
        )
    return lines
