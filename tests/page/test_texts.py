"""Events as texts, whatever they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from echannel_ray.page.taps import text_of


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float


class Says:
    def __init__(self, text: Any) -> None:
        self._text = text

    def __repr__(self) -> str:
        if isinstance(self._text, Exception):
            raise self._text
        return self._text  # type: ignore[no-any-return]


def _circle():
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"price": 76.5, "symbol": "RAY"}, "{'price': 76.5, 'symbol': 'RAY'}"),
        (Trade("RAY", 76.5), "Trade(symbol='RAY', price=76.5)"),
        (np.array([1, 2]), "array([1, 2])"),
        ("<b>\n\x1b[31m\u202e", r"'<b>\n\x1b[31m\u202e'"),
        (None, "None"),
    ],
)
def test_what_is_shown(event, shown):
    assert text_of(event) == shown


@pytest.mark.parametrize(
    "event",
    [
        "x" * 10_000_000, b"x" * 10_000_000, [*range(1_000_000)], {"a": [["x" * 1000] * 100] * 100}, _circle(),
        10**10_000, Says("x" * 100_000), Says(ValueError("no")), Says("\udcff"), Says(3),
    ],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_whatever_it_is_the_text_is_bounded_and_can_be_sent(event):
    text = text_of(event)
    assert text
    assert len(msgspec.json.encode(text)) < 10_000
