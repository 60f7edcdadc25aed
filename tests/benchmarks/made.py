"""Rows and results made by hand."""

from __future__ import annotations

from typing import Any

from echannel_ray.benchmarks.facts import Facts, Machine
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Samples
from echannel_ray.benchmarks.result import Result

QUIET = Machine("A processor", 2, 8 << 30, "6.1", "3.11.7", load_average=0.1)
BUSY = Machine("A processor", 2, 8 << 30, "6.1", "3.11.7", load_average=1.5)
FACTS = Facts(QUIET, {"ray": "2.55", "nats-server": "not installed"}, "0123abc", "2026-01-02 03:04 UTC")


def rates(*values: float) -> Samples:
    """Of which more is better."""
    return Samples("events/s", True, list(values))


def seconds(*values: float) -> Samples:
    """Of which less is better."""
    return Samples("s", False, list(values))


def result(*rows: Row, experiment: str = "round_trip", machine: Machine = QUIET, **fields: Any) -> Result:
    """What an experiment gave."""
    versions = fields.pop("versions", FACTS.versions)
    return Result(experiment, "How long?", 1, False, 5, 2.5, machine, versions, list(rows), FACTS.revision, **fields)
