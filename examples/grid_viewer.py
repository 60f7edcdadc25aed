"""The grid viewer of the paper's appendices: a scientist looks at a part of a simulated atmosphere, and what she does
not look at never leaves the simulation's node.

    python examples/grid_viewer.py              # the simulation and the viewer on two Ray nodes, on this machine
    python examples/grid_viewer.py --nodes 1    # both on one node: nothing travels between nodes

The viewer's modulator (`FilterModulator`) runs beside the simulation. They share the box that is looked at (`BBox`):
when the viewer changes and publishes it, the filter lets other tiles pass. For the last phase the viewer replaces the
modulator by another one, which passes only what has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import echannel_ray as ec
from echannel_ray.modulators import Difference

LAYERS, LATITUDES, LONGITUDES = 5, 12, 20  # so many tiles
TILE = (16, 16)  # so many points of the grid in each
STEPS = 20  # of the simulation, in each phase
DIFF_THRESHOLD = 0.5  # degrees
PLACE = ("layer", "latitude", "longitude")
TIMEOUT_SECONDS = 60


class Atmosphere:
    """A simulation of temperatures: warm at the ground and the equator, with a storm that goes round the earth."""

    def __init__(self, seed: int = 1) -> None:
        self.steps = 0
        rows, columns = LATITUDES * TILE[0], LONGITUDES * TILE[1]
        self._rows, self._columns = np.mgrid[0:rows, 0:columns].astype(np.float32)
        climate = 30 * np.cos((self._rows / rows - 0.5) * np.pi)
        noise = np.random.default_rng(seed).normal(0, 0.1, (LAYERS, rows, columns))
        self._still = (climate - 8 * np.arange(LAYERS)[:, None, None] + noise).astype(np.float32)

    def step(self) -> Iterator[dict[str, Any]]:
        """The next moment: one event for each tile."""
        self.steps += 1
        rows, columns = self._rows.shape
        east = (self._columns - 4 * self.steps + columns / 2) % columns - columns / 2
        storm = 12 * np.exp(-(east**2 + (self._rows - rows / 3) ** 2) / (2 * TILE[0] ** 2))
        now = (self._still + storm).astype(np.float32)
        for layer, latitude, longitude in np.ndindex(LAYERS, LATITUDES, LONGITUDES):
            north, west = latitude * TILE[0], longitude * TILE[1]
            values = now[layer, north : north + TILE[0], west : west + TILE[1]].copy()
            yield {"layer": layer, "latitude": latitude, "longitude": longitude, "values": values}


class Model:
    """The simulation as a Ray actor. It knows nothing of viewers, and publishes every tile of every step."""

    def __init__(self, channel: Any) -> None:
        self.atmosphere = Atmosphere()
        self.producer = channel.producer()

    def run(self, steps: int) -> int:
        """So many steps; how many events were published, when all of them have arrived."""
        events = 0
        for _ in range(steps):
            tiles = list(self.atmosphere.step())
            self.producer.publish_many(tiles)
            events += len(tiles)
        self.producer.drain(TIMEOUT_SECONDS)
        return events


class BBox(ec.SharedObject):
    """What is being looked at; both ends belong to it. At first it is everything."""

    start_layer: int = 0
    end_layer: int = LAYERS - 1
    start_latitude: int = 0
    end_latitude: int = LATITUDES - 1
    start_longitude: int = 0
    end_longitude: int = LONGITUDES - 1


class FilterModulator(ec.FIFOModulator):
    """Passes the tiles in the consumer's view."""

    def __init__(self, view: Any) -> None:
        self.consumer_view = view

    def enqueue(self, event: dict[str, Any]) -> None:
        """Discards the event, or passes it on."""
        view = self.consumer_view
        if not view.start_layer <= event["layer"] <= view.end_layer:
            return
        if not view.start_latitude <= event["latitude"] <= view.end_latitude:
            return
        if not view.start_longitude <= event["longitude"] <= view.end_longitude:
            return
        super().enqueue(event)


@dataclass
class GridViewer:
    """The scientist's program: it keeps the newest values of each tile that reached it."""

    channel: Any
    view: Any
    events: int = 0
    picture: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subscription = self.channel.subscribe(self.push, modulator=FilterModulator(self.view))

    def push(self, event: dict[str, Any]) -> None:
        """The handler."""
        self.events += 1
        self.picture[tuple(event[name] for name in PLACE)] = event["values"]

    def look_at(self, box: dict[str, int]) -> None:
        """The user zooms or moves: from when this returns, the filter goes by the new box."""
        for edge, value in box.items():
            setattr(self.view, edge, value)
        self.view.publish()

    def show_differences(self) -> None:
        """The user changes to difference mode, which shows the whole earth."""
        self.subscription.reset(modulator=Difference("values", DIFF_THRESHOLD, by=PLACE), demodulator=None)


def zoomed_in(longitude: int) -> dict[str, int]:
    """A box with less than 15 % of the tiles; some degrees of longitude further east for each number."""
    start = longitude % (LONGITUDES - 6)
    return {"start_latitude": 2, "end_latitude": 6, "start_longitude": start, "end_longitude": start + 6}


def share(view: Any) -> float:
    """Which part of all tiles a view has."""
    layers = view.end_layer - view.start_layer + 1
    latitudes = view.end_latitude - view.start_latitude + 1
    longitudes = view.end_longitude - view.start_longitude + 1
    return layers * latitudes * longitudes / (LAYERS * LATITUDES * LONGITUDES)


@dataclass
class Row:
    """A phase, in the table."""

    phase: str
    view: float  # the part of the tiles that is looked at
    published: int
    received: int
    bytes_between_nodes: int


def bytes_between_nodes() -> int:
    """What has gone from node to node so far, all that belongs to the protocol included."""
    return sum(part.bytes_between_nodes for part in ec.status().concentrators)


def play(nodes: list[str]) -> list[Row]:
    """All phases; the viewer is in this process, and the simulation on the last of the nodes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    channel = ec.channel("atmosphere")
    view = BBox()
    viewer = GridViewer(channel, view)
    there = NodeAffinitySchedulingStrategy(nodes[-1], soft=False)
    model = ray.remote(Model).options(scheduling_strategy=there).remote(channel)
    rows = []

    def run(phase: str, part: float, boxes: list[dict[str, int]]) -> None:
        events, crossed, published = viewer.events, bytes_between_nodes(), 0
        for box in boxes:
            if box:
                viewer.look_at(box)
            published += ray.get(model.run.remote(STEPS // len(boxes)))
        viewer.subscription.drain(TIMEOUT_SECONDS)
        rows.append(Row(phase, part, published, viewer.events - events, bytes_between_nodes() - crossed))

    run("the whole atmosphere", share(view), [{}])
    viewer.look_at(zoomed_in(0))
    run("a view of a part", share(view), [{}])
    run("that view, moving east", share(view), [zoomed_in(step) for step in range(STEPS)])
    viewer.show_differences()
    run("differences, everywhere", 1.0, [{}])
    viewer.subscription.close()
    return rows


def report(rows: list[Row]) -> str:
    """The table."""
    lines = [f"{'':26}{'view':>8}{'published':>12}{'received':>11}{'MB between nodes':>19}"]
    lines += [
        f"{row.phase:26}{row.view:8.1%}{row.published:12,}{row.received:11,}{row.bytes_between_nodes / 1e6:19.2f}"
        for row in rows
    ]
    whole, part = rows[0].bytes_between_nodes, rows[1].bytes_between_nodes
    if whole:
        lines += ["", f"With a view of {rows[1].view:.1%}, {1 - part / whole:.1%} fewer bytes cross between the nodes."]
    return "\n".join(lines)


def main() -> None:
    """Run it on a Ray of its own, on this machine."""
    parser = argparse.ArgumentParser(description="The grid viewer: bytes between nodes follow what is looked at.")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2, help="how many Ray nodes take part")
    arguments = parser.parse_args()
    from echannel_ray.demo.machine import two_nodes

    with two_nodes() as nodes:
        try:
            print(report(play(nodes[: arguments.nodes])))
        finally:
            ec.disconnect()


if __name__ == "__main__":
    main()
