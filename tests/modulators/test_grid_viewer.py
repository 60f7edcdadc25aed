"""The grid viewer's atmosphere, filter and viewer, without Ray."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.modulators.events import at_work

FILE = Path(__file__).parents[2] / "examples" / "grid_viewer.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("grid_viewer", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


class Channel:
    """One producer and one subscription, in this process."""

    def subscribe(self, handler, modulator):
        self.handler = handler
        self.reset(modulator, None)
        return self

    def reset(self, modulator, demodulator):
        assert demodulator is None
        self.replica = at_work(modulator)

    def publish(self, events):
        self.replica.enqueue(events)
        for event in self.replica.take():
            self.handler(event)


class View(SimpleNamespace):
    """A shared object that is not shared."""

    published = 0

    def publish(self):
        self.published += 1


@pytest.fixture
def view(example):
    """As a new BBox is."""
    return View(
        start_layer=0,
        end_layer=example.LAYERS - 1,
        start_latitude=0,
        end_latitude=example.LATITUDES - 1,
        start_longitude=0,
        end_longitude=example.LONGITUDES - 1,
    )


def test_it_can_be_imported_before_ray():
    # What starts the two nodes has to set Ray's environment first.
    code = f"import sys; sys.path.insert(0, {str(FILE.parent)!r}); import grid_viewer; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


def test_the_atmosphere_is_the_same_in_every_run_and_moves(example):
    one, other = example.Atmosphere(), example.Atmosphere()
    first, second = list(one.step()), list(one.step())
    assert len(first) == example.LAYERS * example.LATITUDES * example.LONGITUDES
    for tile, same in zip(first, other.step(), strict=True):
        assert (tile["values"] == same["values"]).all()
        assert tile["values"].shape == example.TILE
    changes = [np.abs(tile["values"] - later["values"]).max() for tile, later in zip(first, second, strict=True)]
    assert 0.02 < np.mean(np.array(changes) > example.DIFF_THRESHOLD) < 0.2
    means = [np.mean([tile["values"].mean() for tile in first if tile["layer"] == layer]) for layer in range(2)]
    assert means[0] > means[1] + 7


def test_every_view_when_zoomed_in_has_less_than_15_percent_and_lies_on_the_earth(example, view):
    assert example.share(view) == 1
    starts = set()
    for step in range(100):
        vars(view).update(example.zoomed_in(step))
        assert 0.14 < example.share(view) < 0.15
        assert 0 <= view.start_longitude <= view.end_longitude < example.LONGITUDES
        starts.add(view.start_longitude)
    assert len(starts) > 10


def test_what_the_viewer_gets_follows_its_view(example, view):
    channel, atmosphere = Channel(), example.Atmosphere()
    viewer = example.GridViewer(channel, view)
    tiles = list(atmosphere.step())
    channel.publish(tiles)
    assert (viewer.events, len(viewer.picture)) == (len(tiles), len(tiles))
    viewer.look_at(example.zoomed_in(3))
    assert view.published == 1
    viewer.picture.clear()
    channel.publish(list(atmosphere.step()))
    assert len(viewer.picture) / len(tiles) == pytest.approx(example.share(view))
    assert {longitude for _, _, longitude in viewer.picture} == set(range(3, 10))
    viewer.show_differences()
    counts = []
    for _ in range(5):
        before = viewer.events
        channel.publish(list(atmosphere.step()))
        counts.append(viewer.events - before)
    assert counts[0] == len(tiles)
    assert all(0 < count < len(tiles) / 4 for count in counts[1:])


def test_in_difference_mode_the_picture_stays_close_to_the_truth(example, view):
    channel, atmosphere = Channel(), example.Atmosphere()
    viewer = example.GridViewer(channel, view)
    viewer.show_differences()
    for _ in range(10):
        tiles = list(atmosphere.step())
        channel.publish(tiles)
        for tile in tiles:
            shown = viewer.picture[tile["layer"], tile["latitude"], tile["longitude"]]
            assert np.abs(shown - tile["values"]).max() < example.DIFF_THRESHOLD


def test_the_table_says_what_was_saved(example):
    rows = [example.Row("all", 1.0, 1000, 1000, 2_000_000), example.Row("part", 0.15, 1000, 150, 290_000)]
    assert "85.5% fewer bytes" in example.report(rows)
    rows = [example.Row("all", 1.0, 1000, 1000, 0), example.Row("part", 0.15, 1000, 150, 0)]
    assert "fewer" not in example.report(rows)
