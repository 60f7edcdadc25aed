"""What an endpoint tells of its counters: each increment once, whatever comes and goes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from echannel_ray.core import frames
from echannel_ray.endpoint.metrics_reporter import TELL_SECONDS, MetricsReporter
from echannel_ray.transport import wire


class Part:
    """A producer or a subscription, with counters that a test sets."""

    def __init__(self, number: int, channel: str = "c", **counters: Any) -> None:
        self.number, self.channel, self.counters, self.pending = number, channel, counters, 0
        self.stream = SimpleNamespace(number=number)
        self.sink = SimpleNamespace(modulated=list, outlets=list)

    def totals(self) -> dict[str, Any]:
        return dict(self.counters)


class Endpoint:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Any = object()
        self.publishers: dict[int, Part] = {}
        self.inboxes: dict[int, Part] = {}
        self.memberships: dict[str, Any] = {}
        self.sent: list[bytes] = []
        self.outgoing = SimpleNamespace(put=self.sent.append, write=lambda: None)

    def told(self) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """What it has been told since the last time, by channels."""
        payloads = [bytes(frame)[frames.HEADER_BYTES + frames.REQUEST_ID.size :] for frame in self.sent]
        self.sent.clear()
        return {each.channel: (each.counters, each.gauges) for data in payloads for each in wire.decode(data).tallies}


@pytest.fixture
def endpoint():
    return Endpoint()


@pytest.fixture
def metrics_reporter(endpoint):
    return MetricsReporter(endpoint)


def test_each_increment_is_told_once_and_nothing_of_what_is_idle(endpoint, metrics_reporter):
    one, other = Part(1, events_published=5), Part(2, "idle", events_published=0)
    endpoint.publishers = {1: one, 2: other}
    metrics_reporter.report()
    assert endpoint.told() == {"c": ({"events_published": 5}, {})}
    metrics_reporter.report()
    assert endpoint.told() == {}
    one.counters["events_published"] = 8
    metrics_reporter.report()
    assert endpoint.told() == {"c": ({"events_published": 3}, {})}


def test_the_last_counts_of_what_ends_are_told(endpoint, metrics_reporter):
    part = endpoint.publishers[1] = Part(1, events_published=5)
    metrics_reporter.report()
    endpoint.told()
    part.counters["events_published"] = 7
    metrics_reporter.look_at_producer(part)
    metrics_reporter.forget(part)
    del endpoint.publishers[1]
    endpoint.publishers[2] = Part(2, events_published=1)
    metrics_reporter.report()
    assert endpoint.told() == {"c": ({"events_published": 3}, {})}


def test_a_subscription_that_goes_over_to_a_modulator_takes_nothing_along(endpoint, metrics_reporter):
    derived = SimpleNamespace(key="k", shipment=SimpleNamespace(name="Odd"))
    endpoint.memberships["c"] = SimpleNamespace(derived=(derived,))
    part = endpoint.inboxes[1] = Part(1, events_delivered=5)
    metrics_reporter.report()
    part.counters = {"derived": {"k": {"events_delivered": 9}}}
    metrics_reporter.report()
    first, second = (
        wire.decode(each[frames.HEADER_BYTES + frames.REQUEST_ID.size :]).tallies for each in map(bytes, endpoint.sent)
    )
    assert [each.counters for each in first] == [{"events_delivered": 5}]
    assert [each.counters for each in second] == [{"derived": {"Odd": {"events_delivered": 4}}}]


def test_a_gauge_is_told_while_it_is_not_zero_and_once_when_it_is(endpoint, metrics_reporter):
    part = endpoint.inboxes[1] = Part(1)
    steps: list[tuple[int, dict]] = [
        (2, {"c": ({}, {"queue_depth": 2})}),
        (0, {"c": ({}, {"queue_depth": 0})}),
        (0, {}),
    ]
    for pending, told in steps:
        part.pending = pending
        metrics_reporter.report()
        assert endpoint.told() == told


def test_while_the_link_is_away_nothing_is_told_and_nothing_lost(endpoint, metrics_reporter):
    part = endpoint.publishers[1] = Part(1, events_published=5)
    endpoint.connection = None
    metrics_reporter.report()
    assert endpoint.told() == {}
    endpoint.connection = object()
    part.counters["events_published"] = 6
    metrics_reporter.report()
    assert endpoint.told() == {"c": ({"events_published": 6}, {})}


def test_many_channels_take_several_frames(endpoint, metrics_reporter):
    endpoint.publishers = {number: Part(number, f"c{number}", events_published=1) for number in range(600)}
    metrics_reporter.report()
    assert len(endpoint.sent) == 3
    assert len(endpoint.told()) == 600


def test_it_tells_when_it_is_time(endpoint, metrics_reporter):
    endpoint.publishers[1] = Part(1, events_published=5)
    due = metrics_reporter._due_at
    metrics_reporter.tick(due - 0.1)
    assert not endpoint.sent
    metrics_reporter.tick(due)
    assert endpoint.told()
    assert metrics_reporter._due_at == due + TELL_SECONDS


def test_switched_off_it_looks_at_nothing(endpoint, monkeypatch):
    monkeypatch.setenv("ECHANNEL_METRICS", "0")
    metrics_reporter = MetricsReporter(endpoint)
    part = endpoint.publishers[1] = Part(1, events_published=5)
    monkeypatch.setattr(part, "totals", lambda: pytest.fail("it was looked at"))
    metrics_reporter.look_at_producer(part)  # type: ignore[arg-type]
    metrics_reporter.look_at_consumer(part)  # type: ignore[arg-type]
    metrics_reporter.report()
    assert not endpoint.sent
