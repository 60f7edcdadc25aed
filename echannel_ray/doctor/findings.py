"""What was found, as a line each: fine, worth a look, or wrong; and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, Field

State = Literal["ok", "warning", "problem", "left out"]


class Finding(BaseModel):
    """The outcome of one check."""

    check: str
    state: State
    says: str
    advice: str | None = None  # what to do; None where there is nothing to do
    nodes: list[str] = Field(default_factory=list)  # that it is about; none: all, or no node in particular


class Report(BaseModel):
    """Everything that was found."""

    namespace: str
    findings: list[Finding] = Field(default_factory=list)

    @property
    def has_problem(self) -> bool:
        """Whether something is wrong, so that it does not work or soon won't."""
        return any(finding.state == "problem" for finding in self.findings)


def fine(check: str, says: str, advice: str | None = None) -> Finding:
    """A finding of what is as it should be."""
    return Finding(check=check, state="ok", says=says, advice=advice)


def warning(check: str, says: str, advice: str, nodes: Sequence[str] = ()) -> Finding:
    """A finding of what works, and might work better or not for long."""
    return Finding(check=check, state="warning", says=says, advice=advice, nodes=[*nodes])


def problem(check: str, says: str, advice: str, nodes: Sequence[str] = ()) -> Finding:
    """A finding of what does not work."""
    return Finding(check=check, state="problem", says=says, advice=advice, nodes=[*nodes])


def by_outcome(found: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """What was found at each node (by its name), as a line for each outcome, with the nodes that share it."""
    lines: dict[tuple[str, str, str, str | None], Finding] = {}
    for node, findings in found.items():
        for each in findings:
            key = (each.check, each.state, each.says, each.advice)
            lines.setdefault(key, each.model_copy(update={"nodes": []})).nodes.append(node)
    everywhere = len(found)
    for line in lines.values():
        if len(line.nodes) == everywhere:
            line.nodes.clear()
    order = list(dict.fromkeys(line.check for line in lines.values()))
    return sorted(lines.values(), key=lambda line: order.index(line.check))
