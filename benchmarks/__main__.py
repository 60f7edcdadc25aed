"""Run the benchmarks: `python -m echannel_ray.benchmarks [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from echannel_ray.benchmarks import report, terminal
from echannel_ray.benchmarks.facts import FOLDER
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.result import as_json
from echannel_ray.benchmarks.table import EXPERIMENTS, UnknownExperiment, chosen, listed

INTERRUPTED = 130


def main() -> int:
    """0 when all experiments ran, whether or not they met their goals; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m echannel_ray.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--list", action="store_true", help="say what the experiments ask, and run nothing")
    parser.add_argument("--short", action="store_true", help="a quick look: fewer rounds, shorter ones")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results of this run to a file")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="keep RESULTS.md, and JSON and plots in `results`, in this folder"
    )
    parser.add_argument(
        "--documents",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="with --out: write the parts of these documents anew that show what is kept",
    )
    parser.add_argument(
        "--render", action="store_true", help="measure nothing: write the page and the documents of what is kept anew"
    )
    parser.add_argument(
        "--sources",
        type=Path,
        default=FOLDER.parent,
        metavar="FOLDER",
        help="the working tree that this package was made of, whose revision the results tell; else the one it is in",
    )
    parser.add_argument("--seed", type=int, default=1, help="for the payloads and the order of turns")
    arguments = parser.parse_args()
    try:
        experiments = chosen(arguments.names)
    except UnknownExperiment as error:
        parser.error(str(error))
    if arguments.list:
        terminal.show_list(listed())
        return 0
    if (arguments.render or arguments.documents) and not arguments.out:
        parser.error("--render and --documents need --out: that is where results are kept")
    if arguments.render:
        report.render(arguments.out, arguments.documents)
        return 0
    from echannel_ray.benchmarks.running import run_all  # which imports Ray

    results = []
    for result in run_all(experiments, Plan(arguments.short, arguments.seed), arguments.sources):
        results.append(result)
        if arguments.out:
            report.save(result, arguments.out)
            report.render(arguments.out, arguments.documents)
    if arguments.json:
        arguments.json.write_text(as_json([result.as_document() for result in results]))
    terminal.show(results)
    return int(any(result.has_failed for result in results))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # what was finished is kept
