"""Filters and projection."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from echannel_ray.modulators import Matching, Project, Range, Where, Within, try_out
from tests.modulators.events import RECORDS, TRADES, Trade, at_work, prices


@pytest.mark.parametrize(
    ("low", "high", "passed"), [(2, None, [2, 3, 4]), (None, 2, [1, 2]), (2, 3, [2, 3]), (2.5, 2.6, [])]
)
def test_a_range_includes_its_ends(low, high, passed):
    assert try_out(Range("price", low, high), prices(1, 2, 3, 4)) == prices(*passed)
    assert try_out(Range(None, low, high), [1, 2, 3, 4]) == passed


@pytest.mark.parametrize("arguments", [{}, {"low": 3, "high": 2}, {"low": float("nan"), "high": 1}])
def test_a_range_that_filters_nothing_or_all_is_refused(arguments):
    with pytest.raises(ValueError, match="passes"):
        Range("price", **arguments)


def test_a_filter_passes_the_event_itself():
    replica = at_work(Range("price", 60))
    replica.enqueue(TRADES)
    assert all(sent is event for sent, event in zip(replica.take(), TRADES, strict=True))


def test_a_window_that_moves():
    window = SimpleNamespace(low=1, high=2)
    replica = at_work(Within(window, "price"))
    replica.enqueue(prices(1, 2, 3))
    window.low, window.high = 3, 4
    replica.enqueue(prices(1, 2, 3))
    assert replica.take() == prices(1, 2, 3)


def test_a_window_needs_both_limits():
    with pytest.raises(TypeError, match="has no high"):
        Within(SimpleNamespace(low=1), "price")


def test_a_predicate():
    assert try_out(Where(lambda event: event["price"] % 2), prices(1, 2, 3)) == prices(1, 3)
    with pytest.raises(TypeError, match="function of one event"):
        Where("price > 3")  # type: ignore[arg-type]


def test_matching_needs_all_to_be_equal():
    events = [*prices(1, 2), *prices(1, symbol="A")]
    assert try_out(Matching(symbol="RAY", price=1), events) == prices(1)
    assert try_out(Matching(**{"trade.symbol": "RAY"}), [{"trade": Trade("RAY", 1)}]) != []
    with pytest.raises(ValueError, match="at least one field"):
        Matching()


@pytest.mark.parametrize("event", TRADES, ids=lambda event: type(event).__name__)
def test_projection_to_fewer_fields(event):
    assert try_out(Project("price"), [event]) == [{"price": 70.0}]


def test_projection_to_fewer_columns():
    (columns,) = try_out(Project("price"), [RECORDS])
    assert list(columns) == ["price"]
    assert columns["price"].tolist() == [70, 1]


def test_projection_by_paths():
    assert try_out(Project("trade.symbol", "id"), [{"trade": Trade("RAY", 1), "id": 7}]) == [{"symbol": "RAY", "id": 7}]
    assert try_out(Project("trade"), [{"trade": Trade("RAY", 1)}]) == [{"trade": {"symbol": "RAY", "price": 1}}]
    with pytest.raises(ValueError, match="both arrive as 'id'"):
        Project("a.id", "b.id")
    with pytest.raises(ValueError, match="at least one"):
        Project()
