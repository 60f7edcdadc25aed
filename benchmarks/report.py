"""Results: what one experiment gave and all that is needed to judge it, as JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from echannel_ray.benchmarks import plots
from echannel_ray.benchmarks.facts import Facts, Machine
from echannel_ray.benchmarks.harness.rows import Figure, Row
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.page import markdown
from echannel_ray.benchmarks.table import EXPERIMENTS, Experiment
