"""What do bytes and CPU come to when only what has changed crosses between nodes, as in JECho's DIFF mode?

Tiles of 16 by 16 temperatures drift in small steps, each by itself. `modulators.Difference` passes a tile when it is a
threshold away from what was last sent of it; in the baseline the consumer gets every tile, and does the same there.
"""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any

import numpy as np

from echannel_ray.benchmarks.harness.eager_field import IN_CONSUMER, WHERE, TwoNodes, figures, rows
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.modulators import Difference

TILES = 200
SIDE = 16
THRESHOLDS = (0.67, 1.6, 3.7)  # standard deviations of a step: about 50, 20 and 5 % pass

FIGURES = figures("difference", "Only what has changed", "events that pass, %")


def run(plan: Plan) -> list[Row]:
    """One threshold after the other."""
    steps = partial(drifting, 25 if plan.short else 50, plan.seed)
    found = []
    with TwoNodes(plan, "bench-difference") as field:
        events = answer(field.producer.prepare.remote(steps))
        for threshold in THRESHOLDS:
            modulator = Difference("values", threshold, by="tile")
            for where in WHERE:
                _connect(field, f"difference-{threshold}-{where}", modulator, where)
            percent = _percent_passing(modulator, steps())
            costs = field.costs(f"difference-{threshold}-", events)
            found += rows("difference", f"{percent:.0f} % pass a difference modulator", percent, costs)
    return found


def _connect(field: TwoNodes, name: str, modulator: Difference, where: str) -> None:
    answer(field.producer.open_admitting.remote(name))
    if where == IN_CONSUMER:
        answer(field.consumer.filter_here.remote(name, modulator))
    else:
        answer(field.consumer.subscribe_eagerly.remote(name, modulator, where))


def _percent_passing(modulator: Difference, steps: list[list[Any]]) -> float:
    """When they are repeated: at first, one of each tile passes besides."""
    passed: list[Any] = []
    modulator.emit = passed.append  # type: ignore[assignment, method-assign]
    events = [*itertools.chain.from_iterable(steps)]
    for _ in range(2):
        passed.clear()
        for event in events:
            modulator.enqueue(event)
    return 100 * len(passed) / len(events)


def drifting(count: int, seed: int) -> list[list[dict[str, Any]]]:
    """So many steps of all tiles and the same steps back, so that they can be repeated without a jump."""
    generator = np.random.default_rng(random.Random(seed).getrandbits(32))
    noise = generator.normal(0, 5, (TILES, SIDE, SIDE))
    drift = np.cumsum(generator.normal(0, 1, (count, TILES)), axis=0)
    steps = [
        [{"tile": tile, "values": (noise[tile] + drift[step, tile]).astype(np.float32)} for tile in range(TILES)]
        for step in range(count)
    ]
    return steps + steps[::-1]
