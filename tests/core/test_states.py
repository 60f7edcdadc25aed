"""State machines as tables: each is whole, and what is not in one is an error that tells its story."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from echannel_ray.actors.concentrator import CONCENTRATOR_TRANSITIONS
from echannel_ray.core.membership import CHANNEL_TRANSITIONS
from echannel_ray.core.name_book import LISTING_TRANSITIONS
from echannel_ray.core.states import IllegalTransition, Life, next_state
from echannel_ray.core.streams import RECIPIENT_TRANSITIONS

TABLES = {
    "recipient": (RECIPIENT_TRANSITIONS, {"plain", "a member"}),
    "concentrator": (CONCENTRATOR_TRANSITIONS, {"starting"}),
    "channel": (CHANNEL_TRANSITIONS, {"absent"}),
    "listed concentrator": (LISTING_TRANSITIONS, {"absent"}),
}


@pytest.mark.parametrize(("table", "first"), TABLES.values(), ids=TABLES)
def test_every_state_can_be_reached(table: Mapping[tuple[str, str], str], first: set[str]) -> None:
    reached = set(first)
    while more := {after for (state, _), after in table.items() if state in reached} - reached:
        reached |= more
    assert reached == {state for state, _ in table} | set(table.values())


def test_what_the_table_does_not_have_is_an_error() -> None:
    with pytest.raises(IllegalTransition, match="the door is open, and can't be told 'open'"):
        next_state({("open", "close"): "shut"}, "the door", "open", "open")


def test_an_error_tells_how_it_came_to_that_and_survives_pickling() -> None:
    door = Life("the door", {("open", "close"): "shut", ("shut", "open"): "open"}, "open")
    for event in ("close", "open", "close"):
        door.become(event)
    with pytest.raises(IllegalTransition) as raised:
        door.become("close")
    assert door.state == "shut"
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.what, error.state, error.event) == ("the door", "shut", "close")
    assert error.story == ["close (open to shut)", "open (shut to open)", "close (open to shut)"]
    assert str(error) == str(raised.value)
    assert "close (open to shut)" in str(error)


@pytest.mark.parametrize("event", ["joined", "refused", "told", "withdraw"])
def test_what_comes_late_changes_nothing_for_a_concentrator_that_has_withdrawn(event: str) -> None:
    """It may have been asked to leave its node while it joined, or while it retired."""
    assert next_state(CONCENTRATOR_TRANSITIONS, "it", "withdrawn", event) == "withdrawn"
