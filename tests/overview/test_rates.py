"""Rates, from two looks at counters."""

from __future__ import annotations

from echannel_ray.models import ChannelStats, NodeShare
from echannel_ray.overview.rates import ChannelRates, Rates, rates_between


def stats(channel="trades", published=0, **more):
    return ChannelStats(channel=channel, events_published=published, **more)


def test_are_what_was_counted_between_the_looks_by_the_second():
    before = stats(published=100, events_delivered=50, events_dropped=1, bytes_published=1000)
    after = stats(published=300, events_delivered=90, events_dropped=2, bytes_published=21000)
    assert rates_between([before], 10.0, [after], 14.0) == [
        ChannelRates(
            channel="trades", published_per_second=50, delivered_per_second=10, dropped_per_second=0.25,
            bytes_per_second=5000,
        )
    ]  # fmt: skip


def test_of_nodes_and_of_derived_channels():
    name = "trades~0123456789ab"
    before = stats(nodes={"a": NodeShare(events_published=3)}, derived={name: stats(name, 5)})
    share = NodeShare(events_published=5, events_delivered=7)
    after = stats(nodes={"a": share, "b": share}, derived={name: stats(name, 11, nodes={"a": share})})
    (rates,) = rates_between([before], 0.0, [after], 2.0)
    assert rates.nodes == {"a": Rates(published_per_second=1, delivered_per_second=3.5), "b": Rates()}
    assert rates.derived == {name: ChannelRates(channel=name, published_per_second=3, nodes={"a": Rates()})}


def test_counters_that_went_back_give_no_rate():
    before = stats(published=100, nodes={"a": NodeShare(events_delivered=100)})
    after = stats(published=5, events_delivered=5, nodes={"a": NodeShare(events_delivered=5)})
    (rates,) = rates_between([before], 0.0, [after], 1.0)
    assert (rates.published_per_second, rates.delivered_per_second) == (0, 5)
    assert rates.nodes == {"a": Rates()}


def test_of_what_is_new_nothing_is_known():
    assert rates_between([], 0.0, [stats(published=5)], 1.0) == [ChannelRates(channel="trades")]


def test_in_no_time_nothing_is_known():
    for seconds in (0.0, -1.0):
        (rates,) = rates_between([stats(published=0)], 1.0, [stats(published=5)], 1.0 + seconds)
        assert rates == ChannelRates(channel="trades")


def test_channels_come_as_in_the_second_look():
    found = rates_between([stats("gone"), stats("b"), stats("a")], 0.0, [stats("a"), stats("b", 1)], 1.0)
    assert [(each.channel, each.published_per_second) for each in found] == [("a", 0), ("b", 1)]
