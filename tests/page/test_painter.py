"""From counters to what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from echannel_ray.models import ChannelStats, ConcentratorPart, Part
from echannel_ray.page.painter import Painter, level
from tests.page.made import FIRST, SECOND, line, painted, status


def test_rates_are_of_the_time_between_two_rounds():
    painter = Painter()
    first = painted([line(events_published=100, events_delivered=90, bytes_published=10)], 1.0, painter).rows[0]
    assert (first.published_rate, first.delivered_rate, first.published) == (None, None, 100)
    second = painted([line(events_published=300, events_delivered=290, bytes_published=1010)], 3.0, painter).rows[0]
    assert (second.published_rate, second.delivered_rate, second.bytes_rate) == (100, 100, 500)
    assert [(edge.kind, edge.node, edge.rate) for edge in second.edges] == [
        ("produces", FIRST, 100.0),
        ("consumes", SECOND, 100.0),
    ]


def test_consumers_of_what_is_derived_count_too():
    painter = Painter()
    for at, count in ((1.0, 0), (2.0, 10)):
        own: dict[str, Any] = {
            "events_published": 100 * count,
            "events_delivered": count,
            "events_dropped": 0,
            "dropped": {},
        }
        derived = ChannelStats(
            channel="trades~1", modulator="A", consumers=2, events_delivered=3 * count, events_dropped=2 * count,
            events_failed=4, dropped={"newest": 2 * count}, consumer_lag_events=7, queue_depth=5,
        )  # fmt: skip
        row = painted([line(**own, derived={"k": derived})], at, painter).rows[0]
        if not count:
            assert (row.delivered_rate, row.dropped_rate) == (None, None)
    assert (row.consumers, row.delivered, row.failed, row.lag, row.queue) == (3, 40, 4, 7, 5)
    assert (row.delivered_rate, row.dropped_rate, row.drops, row.level) == (40, 20, {"newest": 20}, "dropping")


def test_a_new_derived_channel_leaves_the_rate_known():
    painter = Painter()
    painted([line(events_delivered=0)], 1.0, painter)
    derived = ChannelStats(channel="trades~1", modulator="A", events_delivered=3)
    row = painted([line(events_delivered=10, derived={"k": derived})], 2.0, painter).rows[0]
    assert row.delivered_rate == 10


def test_latency_is_that_of_the_last_round():
    painter = Painter()
    painted([line(latency={"0.001": 1000})], 1.0, painter)
    row = painted([line(latency={"0.001": 1000, "1": 98, "2": 2})], 2.0, painter).rows[0]
    assert row.p50 is not None
    assert 0.5 <= row.p50 <= 1
    assert row.p99 is not None
    assert 1 < row.p99 <= 2
    assert painted([line(latency={"0.001": 1000, "1": 98, "2": 2})], 3.0, painter).rows[0].p50 is None


@pytest.mark.parametrize(
    ("counters", "rates", "expected"),
    [
        ({}, (0.0, 0.0, 0.0, 0.0), "idle"),
        ({}, (None, None, None, None), "idle"),
        ({}, (5.0, 0.0, 0.0, 0.0), "flowing"),
        ({"consumer_lag_events": 90}, (5.0, 0.0, 0.0, 0.0), "flowing"),
        ({"consumer_lag_events": 200}, (5.0, 0.0, 0.0, 0.0), "behind"),
        ({"consumer_lag_events": 5_000}, (4000.0, 0.0, 0.0, 0.0), "behind"),
        ({"consumer_lag_events": 5_000, "consumers": 2}, (4000.0, 0.0, 0.0, 0.0), "flowing"),
        ({"consumer_lag_events": 200}, (5.0, 1.0, 0.0, 0.0), "dropping"),
        ({"consumer_lag_events": 200}, (5.0, 0.0, 2.0, 0.0), "failing"),
        ({}, (5.0, 1.0, 2.0, 0.0), "dropping"),
        ({"blocked_producers": 1}, (5.0, 1.0, 0.0, 0.0), "blocked"),
        ({}, (5.0, 0.0, 0.0, 0.3), "blocked"),
    ],
)
def test_levels(counters, rates, expected):
    assert level(ChannelStats(channel="trades", **counters), *rates) == expected


def test_what_is_derived_is_a_tree():
    derived = {
        "k2": ChannelStats(
            channel="trades~2", parent="trades~1", modulator="B", consumers=1, events_in=4, events_out=2
        ),
        "k1": ChannelStats(channel="trades~1", parent="", modulator="A", saved_bytes=900, modulator_errors=3),
    }
    row = painted([line(derived=derived, packing_degree={"x": 1.0, "y": 4.0})]).rows[0]
    assert [(each.channel, each.parent, each.modulator) for each in row.branches] == [
        ("trades~1", "trades", "A"),
        ("trades~2", "trades~1", "B"),
    ]
    assert (row.branches[0].errors, row.saved_bytes, row.consumers, row.packing) == (3, 900, 2, 2.5)


def test_parts_and_nodes():
    told = status(
        name_server=Part(name="n:name-server", error="TimeoutError: no answer"),
        concentrators=[
            ConcentratorPart(
                name=f"n:concentrator-{FIRST}", pid=9, node_id=FIRST + "0" * 40, restarts=2, endpoints=3,
                suspected_endpoints=["1"], queued_bytes=2048,
            )
        ],
    )  # fmt: skip
    picture = Painter().paint(told, [], 1.0, 1.0, 0.1)
    server, manager, hub = picture.parts
    assert (server.kind, server.error) == ("name server", "TimeoutError: no answer")
    assert (manager.kind, manager.facts) == ("manager", "1 channel")
    assert (hub.restarts, hub.suspected, hub.facts) == (2, 1, "3 processes, 0 peers, 2,048 bytes queued")
    assert [(node.node, node.alive, node.joined) for node in picture.nodes] == [
        (FIRST, True, True),
        (SECOND, True, True),
    ]
