"""Run the benchmarks: `python -m echannel_ray.benchmarks [NAME ...] [--short] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from echannel_ray.benchmarks import report
from echannel_ray.benchmarks.harness.cluster import running_ray
from echannel_ray.benchmarks.harness.rows import failure
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.table import EXPERIMENTS, Experiment


def run(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    """Run one experiment; one that fails is reported, and the others go on."""
    print(f"{experiment.name}: {experiment.question}", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        rows = experiment.run(plan)
    except Exception as error:
        traceback.print_exc()
        rows = [failure(experiment.name, error)]
    return report.document(experiment.name, experiment.question, plan, time.monotonic() - began, rows)


def main() -> int:
    """0 when all experiments ran, whether or not they met their goals; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m echannel_ray.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--short", action="store_true", help="a quick look; benchmarks/results is left alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results of this run to a file")
    parser.add_argument("--seed", type=int, default=1, help="for the payloads and the order of turns")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment named {', '.join(sorted(unknown))}")
    chosen = [experiment for name, experiment in EXPERIMENTS.items() if name in (arguments.names or EXPERIMENTS)]
    plan = Plan(arguments.short, arguments.seed)
    results: list[dict[str, Any]] = []
    for nodes in sorted({experiment.nodes for experiment in chosen}):
        with running_ray(nodes):
            for experiment in chosen:
                if experiment.nodes == nodes:
                    results.append(run(experiment, plan))
                    if not plan.short:
                        report.save(results[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    report.show(results)
    return int(any(row["verdict"] == "failed" for result in results for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
