"""How many fewer bytes cross between nodes when the grid viewer looks at a part of the atmosphere only?

The example of the paper's appendix A, as it is: the simulation on one node, the viewer on another.
"""

from __future__ import annotations

import importlib

from benchmarks.harness.cluster import node_ids
from benchmarks.harness.rows import Row, at_most
from benchmarks.harness.samples import Plan, Samples

GOAL = 0.15  # of the bytes: the paper's figure


def run(plan: Plan) -> list[Row]:
    """Once: it is a count of bytes, not of seconds."""
    # By its name in this repository, which the workers have on their path.
    rows = importlib.import_module("examples.grid_viewer").play(node_ids())
    bytes_of = {}
    for row in rows:
        samples = Samples("bytes", higher_is_better=False, values=[row.bytes_between_nodes / row.published])
        bytes_of[row.phase] = (row, samples)
    (_, whole), *others = bytes_of.values()
    return [
        Row(
            f"bytes between nodes per event published, {row.phase}",
            "free",
            samples,
            "the whole atmosphere",
            whole,
            at_most(GOAL) if row.view < GOAL else None,
            f"{row.view:.1%} of the data is looked at" if row.view < 1 else "",
        )
        for row, samples in others
    ]
