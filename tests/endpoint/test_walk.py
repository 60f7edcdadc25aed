"""docs/walk.md: the ways of a small and of a delivered event are those that events take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.endpoint.walking import Line, functions_of

PAGE = (Path(__file__).parents[2] / "docs" / "walk.md").read_text()


@pytest.fixture(scope="module")
def line() -> Line:
    return Line()


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


@pytest.mark.parametrize(
    ("heading", "act"),
    [
        ("A small event", lambda line: line.publish(b"event")),
        ("An event that is delivered", lambda line: line.deliver(b"event")),
    ],
)
def test_its_stops_are_those_of_the_page(line: Line, heading: str, act: Callable[[Line], object]) -> None:
    before = len(line.seen)
    called = functions_of(lambda: act(line))
    assert line.seen[before:] == [b"event"]
    wanted = [each for each in stops(heading) if not each.startswith("endpoint/crew.py")]
    assert len(wanted) >= 7
    assert in_order(wanted, called) == []


@pytest.mark.parametrize(
    ("row", "act"),
    [
        ("a small event,", lambda line: line.publish(b"event")),
        ("an event that is delivered", lambda line: line.deliver(b"event")),
    ],
)
def test_the_page_has_counted_well(line: Line, row: str, act: Callable[[Line], object]) -> None:
    called = {*functions_of(lambda: act(line))}
    files = {each.partition(":")[0] for each in called}
    found = re.search(rf"^\| {row}.*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    assert (len(called), len(files)) == (int(found[1]), int(found[2]))


def test_a_delivered_event_is_answered(line: Line) -> None:
    assert line.deliver(b"event") == 1
