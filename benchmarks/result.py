"""A result: what one experiment gave, and all that is needed to judge it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from echannel_ray.benchmarks.facts import Machine
from echannel_ray.benchmarks.harness.rows import Figure, Row


@dataclass(frozen=True)
class Result:
    """One experiment's."""

    experiment: str
    question: str
    seed: int
    short: bool
    rounds: int
    took_seconds: float
    machine: Machine
    versions: dict[str, str]
    rows: list[Row]
    revision: str = ""  # where the package does not run from its repository there is none
    paper: str = ""
    figures: list[Figure] = field(default_factory=list)
    date: str = ""  # when the run began

    @property
    def has_failed(self) -> bool:
        """Whether something could not be measured that should have been."""
        return any(row.verdict == "failed" for row in self.rows)

    def as_document(self) -> dict[str, Any]:
        """For JSON: what was measured, and what follows from it."""
        facts = {**asdict(self), "rows": [row.as_dict() for row in self.rows]}
        return {**facts, "doubts": self.machine.doubts}


def from_json(text: bytes) -> Result:
    """The result of a document; what follows from the rest is left to follow again."""
    return msgspec.json.decode(text, type=Result)


def revisions(results: Iterable[Result]) -> dict[str, list[str]]:
    """The revisions that were measured, each with its experiments; that of the most experiments first."""
    found: dict[str, list[str]] = {}
    for result in results:
        found.setdefault(result.revision, []).append(result.experiment)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def as_json(value: Any) -> str:
    """Documents as people read them."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
