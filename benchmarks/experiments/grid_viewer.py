"""How many fewer bytes cross between nodes, and how much CPU is saved, when the grid viewer looks at a part of the
atmosphere only?

The example of the paper's appendix A, as it is: the simulation on one node, the viewer on another. Then its tiles and
its filter with views that narrow, against a viewer whose handler has the same filter. The view is a shared object, so
narrowing it replaces no modulator; tiles are made before, since a simulation's CPU is none of ours.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from echannel_ray.benchmarks.harness.cluster import node_ids
from echannel_ray.benchmarks.harness.eager import EagerParty
from echannel_ray.benchmarks.harness.eager_field import IN_CONSUMER, WHERE, TwoNodes, figures, rows
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.rows import Row, at_most, skipped
from echannel_ray.benchmarks.harness.samples import Plan, Samples

VIEWS = ((5, 20), (5, 10), (5, 5), (5, 3), (5, 1), (1, 1))  # layers and longitudes of 5 and 20

GOALS = (
    at_most(
        0.15,  # the paper's figure
        "bytes of the grid viewer, looking at a part",
        "bytes between nodes .*, (a view of a part|that view, moving east)",
        "the whole atmosphere",
    ),
)
FIGURES = figures("grid_viewer", "The grid viewer's view narrows", "data that is looked at, %")


def run(plan: Plan) -> list[Row]:
    """The example once, since it is a count of bytes, not of seconds; then the views."""
    try:
        _grid_viewer()
    except ModuleNotFoundError:
        return [
            skipped("the grid viewer", "its example is no part of the package: run it at the top of the repository")
        ]
    return [*_example(), *_narrowing(plan)]


def _grid_viewer() -> Any:
    # By its name in this repository, which the workers have on their path.
    return importlib.import_module("examples.grid_viewer")


def _example() -> list[Row]:
    bytes_of = {}
    for row in _grid_viewer().play(node_ids()):
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
            note=f"{row.view:.1%} of the data is looked at" if row.view < 1 else "",
        )
        for row, samples in others
    ]


class GridParty(EagerParty):
    """Looks at the atmosphere by a box that all its filters share."""

    def look(self) -> None:
        """Subscribe, with the filter in each of the places."""
        example = _grid_viewer()
        self._box = example.BBox()
        for where in WHERE:
            if where == IN_CONSUMER:
                self.filter_here(where, example.FilterModulator(self._box))
            else:
                self.subscribe_eagerly(where, example.FilterModulator(self._box), where)

    def narrow(self, layers: int, longitudes: int) -> float:
        """Look at so many layers and longitudes; which part of the data that is."""
        self._box.end_layer, self._box.end_longitude = layers - 1, longitudes - 1
        self._box.publish()
        return float(_grid_viewer().share(self._box))


class GridField(TwoNodes):
    """A producer on one node, and who looks at the atmosphere on another."""

    consumer_class = GridParty


def _narrowing(plan: Plan) -> list[Row]:
    found = []
    with GridField(plan, "bench-grid-viewer") as field:
        events = answer(field.producer.prepare.remote(partial(tiles, 5 if plan.short else 15)))
        for where in WHERE:
            answer(field.producer.open_admitting.remote(where))
        answer(field.consumer.look.remote())
        for layers, longitudes in VIEWS:
            percent = 100 * answer(field.consumer.narrow.remote(layers, longitudes))
            found += rows("grid_viewer", f"a view of {percent:.0f} %", percent, field.costs("", events))
    return found


def tiles(steps: int) -> list[list[dict[str, Any]]]:
    """So many steps of the simulation."""
    atmosphere = _grid_viewer().Atmosphere()
    return [list(atmosphere.step()) for _ in range(steps)]
