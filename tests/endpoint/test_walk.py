"""docs/walk.md: the ways of a small, a delivered and a logged event are those that events take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.endpoint.walking import Line, LoggedLine, functions_of

PAGE = (Path(__file__).parents[2] / "docs" / "walk.md").read_text()


@dataclass(frozen=True)
class Way:
    """A way that the page tells: its heading, the row in which it is counted, and an event that takes it."""

    heading: str
    row: str
    line: type[Line | LoggedLine]
    act: Callable[[Any], object]

    def called(self) -> list[str]:
        line = self.line()
        before = len(line.seen)
        called = functions_of(lambda: self.act(line))
        assert line.seen[before:] == [b"event"]
        return called


WAYS = [
    Way("A small event", "a small event,", Line, lambda line: line.publish(b"event")),
    Way("An event that is delivered", "an event that is delivered", Line, lambda line: line.deliver(b"event")),
    Way("On a retained channel", "an event on a retained channel", LoggedLine, lambda line: line.publish(b"event")),
]


def stops(heading: str) -> list[str]:
    """The first function of each numbered line below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def in_order(wanted: list[str], called: list[str]) -> list[str]:
    """Those that are not called behind the one before."""
    missing, at = [], 0
    for each in wanted:
        behind = called[at:]
        if each in behind:
            at += behind.index(each) + 1
        else:
            missing.append(each)
    return missing


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.heading)
def test_its_stops_are_those_of_the_page(way: Way) -> None:
    wanted = [each for each in stops(way.heading) if not each.startswith("endpoint/crew.py")]
    assert len(wanted) >= 7
    assert in_order(wanted, way.called()) == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.heading)
def test_the_page_has_counted_well(way: Way) -> None:
    called = {*way.called()}
    files = {each.partition(":")[0] for each in called}
    found = re.search(rf"^\| {way.row}.*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    assert (len(called), len(files)) == (int(found[1]), int(found[2]))


def test_a_delivered_event_is_answered() -> None:
    assert Line().deliver(b"event") == 1
