"""What a concentrator shows Prometheus of its node: from what the node's processes tell, and of itself.

Ray's agent on the node gets it through `ray.util.metrics`, and adds up increments for as long as the agent lives. So a
concentrator adds only what was told to itself, and a successor never counts again what the one before it has counted.
Where there is no agent (`ray` without `ray[default]`), Ray drops what it is given.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from echannel_ray.core.latencies import BOUNDS_SECONDS
from echannel_ray.core.messages import Tally
from echannel_ray.endpoint.metrics_reporter import metrics_are_on
from echannel_ray.ids import WIRE_VERSION

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Of one channel, in what one process tells at once: each costs a call here, and some in Ray's agent.
MAX_SAMPLES: Final = 500
# Ray's agent never forgets a series, so names are not taken for granted: what comes after so many channels, or so many
# modulators of a channel, is shown under one name together. (No channel can have it.)
MAX_CHANNELS: Final = 2000
MAX_MODULATORS: Final = 50
OTHERS: Final = "//others"
_LONGEST_MODULATOR: Final = 80  # E-code goes by its text


@dataclass(frozen=True)
class Metric:
    """A family of series. Ray puts `ray_` before its name."""

    name: str
    kind: str
    labels: tuple[str, ...]
    description: str


_CHANNEL = ("channel", "node")
_DERIVED = ("channel", "node", "modulator")
PUBLISHED = Metric("echannel_events_published_total", COUNTER, _CHANNEL, "Events that producers published")
DELIVERED = Metric("echannel_events_delivered_total", COUNTER, _DERIVED, "Events that consumers handled")
DROPPED = Metric("echannel_events_dropped_total", COUNTER, (*_DERIVED, "reason"), "Events dropped for a consumer")
BYTES = Metric("echannel_bytes_total", COUNTER, (*_CHANNEL, "direction"), "Bytes published, and sent to other nodes")
SAVED = Metric("echannel_modulator_saved_bytes_total", COUNTER, _DERIVED, "Bytes that modulators kept from travelling")
ERRORS = Metric("echannel_modulator_errors_total", COUNTER, _DERIVED, "Exceptions and broken limits of modulators")
QUEUE_DEPTH = Metric("echannel_queue_depth", GAUGE, _CHANNEL, "Events in consumers' processes that wait for a handler")
LAG = Metric("echannel_consumer_lag_events", GAUGE, ("channel",), "Events that consumers have not handled yet")
LATENCY = Metric(
    "echannel_delivery_latency_seconds", HISTOGRAM, _CHANNEL, "From publish to the handler's return, sampled"
)
PACK_EVENTS = Metric("echannel_pack_events", GAUGE, _CHANNEL, "Events in a pack, of late, on average over the links")
RESTARTS = Metric("echannel_concentrator_restarts_total", COUNTER, ("node",), "Restarts of the node's concentrator")
BUILD_INFO = Metric("echannel_build_info", GAUGE, ("node", "version", "wire_version", "python"), "1: what runs here")

METRICS: Final = (
    PUBLISHED, DELIVERED, DROPPED, BYTES, SAVED, ERRORS, QUEUE_DEPTH, LAG, LATENCY, PACK_EVENTS, RESTARTS, BUILD_INFO,
)  # fmt: skip


class Instruments(Protocol):
    """Where the figures of a concentrator go: `RayInstruments`, or a fake."""

    def add(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        """A counter has grown by so much; by 0: it exists."""

    def set(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        """A gauge is at this value."""

    def observe(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        """A sample of a histogram."""


class MetricLabels:
    """The labels of a namespace's channels and their modulators, while there are not too many."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._channels: dict[str, str] = {}
        self._modulators: dict[str, set[str]] = defaultdict(set)

    def channel(self, channel: str) -> str:
        """A channel by its full name."""
        label = self._channels.get(channel)
        if label is None:
            if len(self._channels) >= MAX_CHANNELS:
                return _in_ascii(self._namespace + OTHERS)
            label = self._channels[channel] = _in_ascii(f"{self._namespace}/{channel}")
        return label

    def modulator(self, channel: str, name: str) -> str:
        """A modulator of a channel by its class, or E-code by its text."""
        known = self._modulators[self.channel(channel)]
        name = _in_ascii(name[:_LONGEST_MODULATOR])
        if name not in known and len(known) >= MAX_MODULATORS:
            return OTHERS
        known.add(name)
        return name


class Metrics:
    """The metrics of one concentrator: its node's and its own."""

    def __init__(
        self, namespace: str, node: int, was_restarted: bool, instruments: Instruments, flush_seconds: float
    ) -> None:
        self._names = MetricLabels(namespace)
        self._flush_seconds = flush_seconds
        self._instruments = instruments
        self._node = f"{node:016x}"
        self._gauges: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)  # by channels and endpoints
        self._active: dict[str, None] = {}
        self._due_at = 0.0
        # From the beginning, so that the first restart is a change.
        instruments.add(RESTARTS, int(was_restarted), {"node": self._node})

    def told(self, endpoint: int, tallies: tuple[Tally, ...]) -> None:
        """Add what an endpoint has counted since it told that last."""
        for tally in tallies:
            self._active[tally.channel] = None
            self._count(tally)
            if any(tally.gauges.values()) or endpoint in self._gauges.get(tally.channel, ()):
                self._gauges[tally.channel][endpoint] = tally.gauges

    def gone(self, endpoint: int) -> None:
        """Take out what waits in an endpoint: it is gone."""
        for by_endpoint in self._gauges.values():
            if endpoint in by_endpoint:
                by_endpoint[endpoint] = {}

    def tick(self, now: float) -> list[str]:
        """Show the gauges, if it is time: then, which channels had something to do since the last time."""
        if now < self._due_at:
            return []
        self._due_at = now + self._flush_seconds
        self.flush()
        active, self._active = [*self._active], {}
        return active

    def flush(self) -> None:
        """Show what has a value rather than a total; again and again, since Ray's agent forgets it otherwise."""
        info = {"version": _version(), "wire_version": str(WIRE_VERSION), "python": platform.python_version()}
        self._instruments.set(BUILD_INFO, 1, {"node": self._node, **info})
        shown: dict[str, Counter[str]] = defaultdict(Counter)
        for channel, by_endpoint in [*self._gauges.items()]:
            for endpoint, gauges in [*by_endpoint.items()]:
                shown[self._names.channel(channel)].update(gauges)
                if not any(gauges.values()):
                    del by_endpoint[endpoint]  # a last time: the zero is shown
            if not by_endpoint:
                del self._gauges[channel]
        for label, sums in shown.items():
            labels = {"channel": label, "node": self._node}
            self._instruments.set(QUEUE_DEPTH, sums["queue_depth"], labels)
            if sums["links"]:
                self._instruments.set(PACK_EVENTS, sums["pack_events"] / sums["links"], labels)

    # ---- counters --------------------------------------------------------------------------------------------------

    def _count(self, tally: Tally) -> None:
        counters = tally.counters
        if not counters:
            return
        labels = {"channel": self._names.channel(tally.channel), "node": self._node}
        derived = counters.get("derived", {})
        self._add(PUBLISHED, counters.get("events_published", 0), labels)
        self._add(BYTES, counters.get("bytes_published", 0), {**labels, "direction": "published"})
        between_nodes = sum(each.get("bytes_between_nodes", 0) for each in (counters, *derived.values()))
        self._add(BYTES, between_nodes, {**labels, "direction": "between_nodes"})
        self._count_for(counters, {**labels, "modulator": ""})
        for name, each in derived.items():
            of_derived = {**labels, "modulator": self._names.modulator(tally.channel, name)}
            self._count_for(each, of_derived)
            self._add(SAVED, each.get("saved_bytes", 0), of_derived)
            self._add(ERRORS, each.get("modulator_errors", 0), of_derived)
        for counts in (each.get("latency", {}) for each in (counters, *derived.values())):
            for bound, count in thinned(counts, MAX_SAMPLES):
                for _ in range(count):
                    self._instruments.observe(LATENCY, bound, labels)

    def _count_for(self, counters: Mapping[str, Any], labels: dict[str, str]) -> None:
        self._add(DELIVERED, counters.get("events_delivered", 0), labels)
        for reason, count in counters.get("dropped", {}).items():
            self._add(DROPPED, count, {**labels, "reason": reason})

    def _add(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        if value > 0:
            self._instruments.add(metric, value, labels)


def _in_ascii(label: str) -> str:
    """The label in ASCII: Ray takes no other."""
    return label.encode("ascii", "backslashreplace").decode()


def thinned(counts: Mapping[str, int], most: int) -> Iterator[tuple[float, int]]:
    """Samples by their bounds (above the last, twice that): of more than so many, that many in equal proportions."""
    total = sum(counts.values())
    kept = passed = 0
    for name, count in sorted(counts.items(), key=lambda each: float(each[0])):
        passed += count
        until = passed if total <= most else passed * most // total
        if until > kept:
            yield min(float(name), 2 * BOUNDS_SECONDS[-1]), until - kept
        kept = until


def start_metrics(namespace: str, node: int, was_restarted: bool) -> Metrics | None:
    """The metrics of a concentrator that begins; None where the node's environment says so."""
    if not metrics_are_on():
        return None
    from echannel_ray.actors.instruments import RayInstruments, flush_seconds

    return Metrics(namespace, node, was_restarted, RayInstruments(), flush_seconds())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("echannel-ray")
    except PackageNotFoundError:
        return "unknown"  # run from a checkout
