"""Figures on their way to Ray's agent, which shows them to Prometheus."""

from __future__ import annotations

import logging

import ray
from ray.util.metrics import Counter, Gauge, Histogram
from typing_extensions import override

from echannel_ray.actors.metrics import COUNTER, GAUGE, LATENCY, Instruments, Metric
from echannel_ray.core.latencies import BOUNDS_SECONDS
from echannel_ray.endpoint.metrics_reporter import TELL_SECONDS

logger = logging.getLogger(__name__)

_REPORT_SECONDS = 10.0  # Ray's default


def flush_seconds() -> float:
    """How often a gauge has to be set: Ray's agent forgets it when two reports have come without it."""
    try:
        # An option of Ray's that its public API does not tell.
        reported = max(1.0, int(ray._config.metrics_report_interval_ms()) / 1000)
    except Exception:
        logger.debug("Ray does not say how often it reports metrics", exc_info=True)
        reported = _REPORT_SECONDS
    return min(TELL_SECONDS, reported)


class RayInstruments(Instruments):
    """Ray's metrics, for one concentrator; where no agent is there, Ray takes the figures and drops them."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._latency: Histogram | None = None

    @override
    def add(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        assert metric.kind == COUNTER
        counter = self._counters.get(metric.name)
        if counter is None:
            # Ray appends `_total` to the name of each counter.
            name = metric.name.removesuffix("_total")
            counter = self._counters[metric.name] = Counter(name, metric.description, metric.labels)
        if value:
            counter.inc(value, labels)
        else:
            # `inc` refuses to begin a series at 0, and an alert on growth would miss one that begins at 1.
            counter._record(0.0, labels)

    @override
    def set(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        assert metric.kind == GAUGE
        gauge = self._gauges.get(metric.name)
        if gauge is None:
            gauge = self._gauges[metric.name] = Gauge(metric.name, metric.description, metric.labels)
        gauge.set(value, labels)

    @override
    def observe(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        assert metric is LATENCY
        if self._latency is None:
            self._latency = Histogram(metric.name, metric.description, [*BOUNDS_SECONDS], metric.labels)
        self._latency.observe(value, labels)
