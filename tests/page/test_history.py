"""What is kept of the last minutes."""

from __future__ import annotations

import pytest

from echannel_ray.page.history import FIELDS, History
from tests.page.made import line, painted


def _rows(*names):
    return painted([line(name) for name in names]).rows


def test_points_come_back_in_order_and_what_is_unknown_stays_so():
    history = History()
    for at in (1.5, 2.5):
        history.add(at, _rows("trades"))
    assert [point[0] for point in history.of("trades")] == [1.5, 2.5]
    assert history.of("trades")[0] == [1.5, *[None] * len(FIELDS)]


@pytest.mark.parametrize("rounds", [3, 4, 7, 20])
def test_it_holds_the_newest(rounds):
    history = History(points=4)
    for at in range(rounds):
        history.add(at, _rows("trades"))
    assert [point[0] for point in history.of("trades")] == [*range(rounds)][-4:]


def test_channels_that_have_gone_are_forgotten():
    history = History(points=2)
    for at in range(3):
        history.add(at, _rows("a", "b"))
    history.add(3, _rows("b"))
    assert history.of("a") == []
    history.add(4, _rows("a", "b"))  # another one of that name
    assert [point[0] for point in history.of("a")] == [4]
    assert [point[0] for point in history.of("b")] == [3, 4]


def test_it_is_bounded():
    history = History(max_channels=3)
    history.add(1, _rows("a", "b", "c", "d"))
    assert [len(history.of(name)) for name in "abcd"] == [1, 1, 1, 0]
    assert history.of("none") == []
