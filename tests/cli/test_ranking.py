"""`top`: what comes first."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, ConsoleDimensions

from echannel_ray.cli.ranking import Ranking, ranked, shown
from echannel_ray.cli.terminal_text import UNKNOWN
from echannel_ray.models import ChannelStats
from echannel_ray.overview.rate_meter import RateMeter


def stats(name, published, **others):
    return ChannelStats(channel=name, events_published=published, **others)


def ranking(order):
    before = [stats("a", 0), stats("b", 0), stats("c", 0, events_dropped=0)]
    derived = {"b~1": ChannelStats(channel="b~1", modulator="M", events_published=0)}
    after = [
        stats("a", 100, consumer_lag_events=3),
        stats("b", 400, derived=derived, lag={"workers": 2, "others": 5}),
        stats("c", 200, events_dropped=40, dropped={"newest": 40}),
    ]
    meter = RateMeter()
    ranked(before, meter, 10.0, order)
    return ranked(after, meter, 12.0, order)


@pytest.mark.parametrize(
    ("order", "names"),
    [("rate", ["b", "c", "a", "b~1"]), ("lag", ["b", "a", "c", "b~1"]), ("drops", ["c", "a", "b", "b~1"])],
)
def test_what_is_most_comes_first(order, names):
    assert [row.channel for row in ranking(order)] == names


def test_rates_are_of_the_interval():
    rows = {row.channel: row for row in ranking("rate")}
    assert (rows["b"].published_per_second, rows["c"].dropped_per_second, rows["c"].dropped_events) == (200, 20, 40)
    assert (rows["a"].lag_events, rows["b"].lag_events) == (3, 7)


def test_what_is_new_or_told_less_is_unknown_and_no_peak_follows():
    meter = RateMeter()
    rounds = []
    for at, published in enumerate([100, 200, 50, 400]):  # half of it was missing once
        rounds.append(ranked([stats("a", published, latency={"0.001": at})], meter, at, "rate"))
    assert [row.published_per_second for (row,) in rounds] == [None, 100, None, 100]
    assert [row.latency_p99_seconds is not None for (row,) in rounds] == [False, True, True, True]
    out = Console(width=80, file=io.StringIO())
    out.print(shown(Ranking(namespace="n", at=0.0, seconds=1.0, channels=rounds[2]), "rate", None))
    assert out.file.getvalue().splitlines()[2].split()[:4] == ["a", UNKNOWN, "0", "0"]


def test_a_screen_is_never_too_small_for_the_numbers():
    rows = [row.model_copy(update={"channel": "name" * 30, "lag_events": 10**6}) for row in ranking("rate")]
    out = Console(width=80, file=io.StringIO())
    out.print(shown(Ranking(namespace="n", at=0.0, seconds=1.0, channels=rows), "rate", ConsoleDimensions(80, 6)))
    heading, columns, *lines, rest = out.file.getvalue().splitlines()
    assert heading.startswith("namespace n")
    assert columns.split() == ["channel", "in/s", "out/s", "bytes/s", "lag", "drops/s", "dropped", "p99"]
    assert len(lines) == 2
    assert all("…" in line and "1,000,000" in line and len(line) <= 80 for line in lines)
    assert rest == "and 2 more"
