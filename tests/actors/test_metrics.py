"""What a concentrator makes of what processes tell it: pure, with instruments that only remember."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from echannel_ray.actors import lag_metrics, metrics
from echannel_ray.actors.metrics import (
    BUILD_INFO,
    BYTES,
    DELIVERED,
    DROPPED,
    ERRORS,
    LAG,
    LATENCY,
    METRICS,
    PACK_EVENTS,
    PUBLISHED,
    QUEUE_DEPTH,
    RESTARTS,
    SAVED,
    Metric,
    Metrics,
    start_metrics,
    thinned,
)
from echannel_ray.core.counters import growth
from echannel_ray.core.messages import Tally
from echannel_ray.errors import ChannelDeleted

NODE = "00000000000000aa"


class Noted:
    """Instruments that remember, and refuse what Ray would refuse."""

    def __init__(self) -> None:
        self.totals: dict[Any, float] = defaultdict(float)
        self.gauges: dict[Any, float] = {}
        self.samples: Counter[Any] = Counter()

    def _key(self, metric: Metric, labels: dict[str, str]) -> Any:
        assert labels.keys() == set(metric.labels)
        assert {type(each) for each in labels.values()} == {str}
        return (metric.name, *(labels[name] for name in metric.labels if name != "node"))

    def add(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        self.totals[self._key(metric, labels)] += value

    def set(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        self.gauges[self._key(metric, labels)] = value

    def observe(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        key = (*self._key(metric, labels), value)
        self.samples[key] += 1


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
def shown(noted):
    return Metrics("default", 0xAA, False, noted, 5.0)


def test_each_figure_goes_where_its_name_says(shown, noted):
    derived = {"events_delivered": 2, "dropped": {"timer": 1}, "saved_bytes": 70, "modulator_errors": 3}
    counters = {
        "events_published": 10,
        "events_delivered": 6,
        "bytes_published": 100,
        "bytes_between_nodes": 40,
        "dropped": {"newest": 4},
        "derived": {"Odd": {**derived, "bytes_between_nodes": 5}},
    }
    shown.told(1, (Tally("trades", counters, {}), Tally("trades", {"events_published": 1}, {})))
    assert noted.totals == {
        (RESTARTS.name,): 0,
        (PUBLISHED.name, "default/trades"): 11,
        (DELIVERED.name, "default/trades", ""): 6,
        (DELIVERED.name, "default/trades", "Odd"): 2,
        (DROPPED.name, "default/trades", "", "newest"): 4,
        (DROPPED.name, "default/trades", "Odd", "timer"): 1,
        (BYTES.name, "default/trades", "published"): 100,
        (BYTES.name, "default/trades", "between_nodes"): 45,
        (SAVED.name, "default/trades", "Odd"): 70,
        (ERRORS.name, "default/trades", "Odd"): 3,
    }


def test_labels_are_in_ascii_as_ray_takes_no_others(shown, noted):
    derived = {"any([…])": {"modulator_errors": 1}}
    shown.told(1, (Tally("kurse/größe", {"events_published": 1, "derived": derived}, {"queue_depth": 1}),))
    shown.flush()
    assert noted.totals[PUBLISHED.name, r"default/kurse/gr\xf6\xdfe"] == 1
    assert noted.totals[ERRORS.name, r"default/kurse/gr\xf6\xdfe", r"any([\u2026])"] == 1


def test_a_restart_counts_once_for_each_concentrator(noted):
    for was_restarted in (False, True, True):
        Metrics("default", 0xAA, was_restarted, noted, 5.0)
    assert noted.totals == {(RESTARTS.name,): 2}


def test_gauges_are_sums_over_the_processes_of_the_node_and_end_at_zero(shown, noted):
    shown.told(1, (Tally("c", {}, {"queue_depth": 3, "pack_events": 10.0, "links": 1}),))
    shown.told(2, (Tally("c", {}, {"queue_depth": 1, "pack_events": 50.0, "links": 2}),))
    shown.flush()
    name = "default/c"
    assert noted.gauges.pop(
        (BUILD_INFO.name, metrics._version(), str(metrics.WIRE_VERSION), metrics.platform.python_version())
    )
    assert noted.gauges == {(QUEUE_DEPTH.name, name): 4, (PACK_EVENTS.name, name): 20.0}
    shown.gone(1)
    shown.flush()
    assert noted.gauges[QUEUE_DEPTH.name, name] == 1
    shown.told(2, (Tally("c", {}, {}),))
    shown.flush()
    assert noted.gauges[QUEUE_DEPTH.name, name] == 0
    noted.gauges.clear()
    shown.flush()  # a channel at rest costs nothing any more
    assert [key[0] for key in noted.gauges] == [BUILD_INFO.name]


def test_gauges_are_shown_again_when_their_time_has_come(shown, noted):
    for now in (100.0, 104.9, 105.0):
        noted.gauges.clear()
        shown.tick(now)
        assert bool(noted.gauges) == (now != 104.9)


def test_a_flush_tells_which_channels_had_something_to_do(shown):
    shown.told(1, (Tally("a", {"events_published": 1}, {}), Tally("b", {}, {"queue_depth": 1})))
    assert shown.tick(100.0) == ["a", "b"]
    assert shown.tick(106.0) == []


async def test_lags_are_asked_for_where_something_goes_on_and_until_there_is_none(noted, monkeypatch):
    monkeypatch.setattr(lag_metrics, "MAX_ASKED", 2)
    found = {"a": 3, "b": 0, "c": 7}
    asked = []

    async def stats(channel):
        asked.append(channel)
        if channel == "gone":
            raise ChannelDeleted("it was deleted", channel=channel)
        return {
            "consumer_lag_events": found[channel],
            "derived": {"key": {"consumer_lag_events": 1}} if channel == "c" else {},
        }

    shown = lag_metrics.Lags("default", stats, noted)
    await shown.show()
    assert noted.gauges == {}
    shown.noted(["a", "b", "c", "gone"])
    await shown.show()
    assert asked == ["a", "b"]  # so many in a round
    assert noted.gauges == {
        (LAG.name, f"default/{channel}"): lag for channel, lag in [("a", 3), ("b", 0), ("c", 0), ("gone", 0)]
    }
    await shown.show()
    assert asked[2:] == ["c", "gone"]
    assert noted.gauges[LAG.name, "default/c"] == 8
    found.update(a=0, c=0)
    asked.clear()
    for _ in range(3):
        await shown.show()
    assert asked == ["a", "c", "c", "c"]  # of a derived one something still waits
    assert noted.gauges[LAG.name, "default/a"] == 0


def test_samples_keep_their_bounds(shown, noted):
    shown.told(1, (Tally("c", {"latency": {"0.001": 2, "inf": 1}, "derived": {"m": {"latency": {"0.001": 1}}}}, {}),))
    assert noted.samples == {(LATENCY.name, "default/c", 0.001): 3, (LATENCY.name, "default/c", 120.0): 1}


@pytest.mark.parametrize("counts", [{}, {"0.001": 3}, {"0.001": 9000, "1": 1000}, {"1": 7, "0.1": 5000, "inf": 10**9}])
def test_of_many_samples_as_many_as_may_be_in_the_same_proportions(counts):
    kept = dict(thinned(counts, 100))
    total = sum(counts.values())
    assert sum(kept.values()) == min(total, 100)
    for name, count in counts.items():
        exact = count if total <= 100 else count * 100 / total
        assert abs(kept.get(min(float(name), 120.0), 0) - exact) <= 1


def test_names_of_channels_and_modulators_are_bounded(noted, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_CHANNELS", 2)
    monkeypatch.setattr(metrics, "MAX_MODULATORS", 1)
    shown = Metrics("default", 0xAA, False, noted, 5.0)
    for channel in ("a", "b", "c", "d", "a"):
        shown.told(1, (Tally(channel, {"events_published": 1}, {"queue_depth": 1}),))
    shown.flush()
    names = {key[1]: count for key, count in noted.totals.items() if key[0] == PUBLISHED.name}
    assert names == {"default/a": 2, "default/b": 1, "default//others": 2}
    assert noted.gauges[QUEUE_DEPTH.name, "default//others"] == 2
    derived = {name: {"events_delivered": 1} for name in ("x" * 500, "y", "z")}
    shown.told(1, (Tally("a", {"derived": derived}, {}),))
    found = {key[2]: count for key, count in noted.totals.items() if key[:2] == (DELIVERED.name, "default/a")}
    assert found == {"x" * 80: 1, "//others": 2}


def test_growth_is_what_is_more():
    before = {"a": 1, "b": 5, "c": {"x": 1}, "d": {"y": 2}}
    now = {"a": 3, "b": 2, "c": {"x": 1}, "d": {"y": 3, "z": 1}, "e": 0.5, "f": "text"}
    assert growth(before, now) == {"a": 2, "d": {"y": 1, "z": 1}, "e": 0.5}


def test_switched_off_there_are_none(monkeypatch):
    monkeypatch.setenv("ECHANNEL_METRICS", "0")
    assert start_metrics("default", 1, False) is None


def test_the_documentation_lists_each_metric_with_its_labels():
    page = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    rows = {cells[1].strip(): cells for line in page.splitlines() if len(cells := line.split("|")) > 5}
    for metric in METRICS:
        _, _, kind, labels, *_ = rows[f"`ray_{metric.name}`"]
        assert (kind.strip(), labels.strip()) == (metric.kind, ", ".join(metric.labels))
