"""What events weigh, and what a modulator saved of that."""

from __future__ import annotations

from typing import Any

from echannel_ray.derived.weights import Savings, Weight
from echannel_ray.formats.events import OVERHEAD_BYTES


def encode(event: str) -> tuple[int, Any, int]:
    if event == "can't":
        raise TypeError(event)
    return 0, event, len(event) + OVERHEAD_BYTES


def test_what_is_known_is_added_up():
    weight = Weight()
    weight.add(10)
    weight.add(5)
    assert weight.total_bytes == 15


def test_others_are_taken_to_be_like_those_that_were_looked_at():
    weight = Weight()
    weight.add(10)
    weight.add_unknown(100)
    assert weight.total_bytes == 10
    weight.look("four", encode, 1.0)
    assert weight.total_bytes == 410
    weight.look("eightly.", encode, 1.5)  # too soon
    assert weight.total_bytes == 410
    weight.look("eightly.", encode, 2.0)
    assert weight.total_bytes == 610


def test_what_can_not_be_serialised_says_nothing():
    weight = Weight()
    weight.add_unknown(3)
    weight.look("can't", encode, 1.0)
    assert weight.total_bytes == 0
    weight.look("two", encode, 2.0)
    assert weight.total_bytes == 9


def test_savings_never_fall_and_are_never_negative():
    savings = Savings()
    savings.emitted.add(10)
    assert savings.saved_bytes == 0
    savings.seen.add(100)
    assert savings.saved_bytes == 90
    savings.emitted.add(90)  # what it had held back
    assert savings.saved_bytes == 90
    savings.seen.add(85)
    assert savings.saved_bytes == 90
    savings.seen.add(10)
    assert savings.saved_bytes == 95
