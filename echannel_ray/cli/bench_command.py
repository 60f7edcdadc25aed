"""`bench`: some experiments on a Ray of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from echannel_ray.benchmarks import extras, report, terminal
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.result import as_json
from echannel_ray.benchmarks.table import chosen, listed
from echannel_ray.errors import EChannelError

KEY_EXPERIMENTS = ("round_trip", "publish_rate")
_SEED = 1


def show_list(as_document: bool) -> None:
    """Print the benchmarks that can be run."""
    if as_document:
        print(as_json(listed()), end="")
    else:
        terminal.show_list(listed())


def bench(names: Sequence[str], full: bool, out: Path | None, as_document: bool) -> bool:
    """Run experiments and print what came of them; whether all could be measured."""
    experiments = chosen(names)
    for experiment in experiments:
        if missing := experiment.lacks:
            raise EChannelError(f"{experiment.name} can't run here: {extras.not_installed(missing)}", package=missing)
    results = []
    with _others_on_standard_error():
        from echannel_ray.benchmarks.running import run_all  # which imports Ray

        for result in run_all(experiments, Plan(short=not full, seed=_SEED)):
            results.append(result)
            if out is not None:
                report.save(result, out)
                report.render(out)
    if as_document:
        print(as_json([result.as_document() for result in results]), end="")
    else:
        terminal.show(results)
    return not any(result.has_failed for result in results)


@contextmanager
def _others_on_standard_error() -> Iterator[None]:
    """What Ray and other programs print meanwhile: standard output is for our answer."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)
