"""The table of the experiments: a name, the module that runs it, and the number of Ray nodes that it needs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from benchmarks.harness.rows import Row
from benchmarks.harness.samples import Plan


@dataclass(frozen=True)
class Experiment:
    """One experiment; its module is imported when it runs."""

    name: str
    nodes: int = 1

    @property
    def question(self) -> str:
        """The first sentence of the module's docstring."""
        lines = (importlib.import_module(f"benchmarks.experiments.{self.name}").__doc__ or "").split("\n\n")[0]
        return " ".join(lines.split())

    def run(self, plan: Plan) -> list[Row]:
        """Measure."""
        module = importlib.import_module(f"benchmarks.experiments.{self.name}")
        rows: list[Row] = module.run(plan)
        return rows


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("machine"),
        Experiment("round_trip"),
        Experiment("publish_rate"),
        Experiment("fanout"),
        Experiment("same_process"),
        Experiment("large"),
        Experiment("channels"),
        Experiment("pipeline"),
        Experiment("subscribe"),
        Experiment("shared"),
        Experiment("memory"),
        Experiment("modulators"),
        Experiment("typed"),
        Experiment("typed_rates"),
        Experiment("ecode"),
        Experiment("ecode_channels"),
        Experiment("cpu_fanout", nodes=2),
        Experiment("across_nodes", nodes=2),
        Experiment("grid_viewer", nodes=2),
    )
}
