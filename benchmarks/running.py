"""Running experiments one after the other, on a Ray of their own."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.baselines.servers import Missing
from echannel_ray.benchmarks.conclusions import conclude
from echannel_ray.benchmarks.facts import FOLDER, Facts, facts
from echannel_ray.benchmarks.harness.cluster import running_ray
from echannel_ray.benchmarks.harness.rows import Figure, failure, judged, skipped
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.result import Result
from echannel_ray.benchmarks.table import Experiment


def run_all(experiments: Sequence[Experiment], plan: Plan, sources: Path = FOLDER.parent) -> Iterator[Result]:
    """The results as they come. Those that need as many nodes share a Ray."""
    here, done, began = facts(sources), 0, time.monotonic()
    for nodes in sorted({experiment.nodes for experiment in experiments}):
        with running_ray(nodes):
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C; with Ray's own handler it aborts
            for experiment in experiments:
                if experiment.nodes == nodes:
                    done += 1
                    _say(f"[{done}/{len(experiments)}] {experiment.name}: {experiment.question}")
                    result = measure(experiment, plan, here)
                    _say(f"    took {result.took_seconds:.1f} s: {conclude(result).summary}")
                    yield result
    _say(f"done in {(time.monotonic() - began) / 60:.1f} minutes")


def measure(experiment: Experiment, plan: Plan, here: Facts) -> Result:
    """Run one experiment; one that fails is reported, and the others go on."""
    began = time.monotonic()
    paper, figures = "", tuple[Figure, ...]()
    try:
        rows = judged(experiment.run(plan), experiment.goals)
        paper, figures = experiment.paper, experiment.figures
    except Missing as why:
        rows = [skipped(experiment.name, str(why))]
    except Exception as error:
        if missing := extras.missing_package(error):
            rows = [skipped(experiment.name, extras.not_installed(missing))]
        else:
            traceback.print_exc()
            rows = [failure(experiment.name, error)]
    return Result(
        experiment.name,
        experiment.question,
        plan.seed,
        plan.short,
        plan.rounds,
        round(time.monotonic() - began, 1),
        here.machine,
        here.versions,
        rows,
        here.revision,
        paper,
        list(figures),
        here.date,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
