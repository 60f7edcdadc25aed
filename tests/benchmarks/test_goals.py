"""What the documents show of goals and figures is what is kept, and what is missed is explained."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from echannel_ray.benchmarks import documents, goals, report
from echannel_ray.benchmarks.conclusions import of_revisions
from echannel_ray.benchmarks.documents import UnknownPart, written, written_reasons
from echannel_ray.benchmarks.goals import Standing
from echannel_ray.benchmarks.harness.rows import Goal, Row, at_least, at_most, judged
from echannel_ray.benchmarks.headlines import HEADLINES, Headline, table
from echannel_ray.benchmarks.page import markdown
from echannel_ray.benchmarks.result import Result, revisions
from echannel_ray.benchmarks.table import EXPERIMENTS
from tests.benchmarks.made import rates, result, seconds

ROOT = Path(__file__).parents[2]
SLOW = at_most(2, "a slow one", "deliver, .*", "sockets")
QUICK = at_least(1, "a quick one", "publish", "sockets")
LATER = at_least(5, "one for later", "nothing yet")


@pytest.fixture(scope="module")
def kept() -> list[Result]:
    """What the repository has."""
    return report.kept(ROOT / "benchmarks" / "results")


class TestOfTheRepository:
    @pytest.mark.parametrize("name", ["README.md", "docs/figures.md"])
    def test_documents_show_what_is_kept(self, kept, name):
        shown = (ROOT / name).read_text()
        assert documents.PART.search(shown)
        assert shown == written(shown, kept), "run `make figures`"

    def test_the_page_shows_what_is_kept(self, kept):
        folder = ROOT / "benchmarks"
        assert (folder / "RESULTS.md").read_text() == markdown(kept, folder), "run `make figures`"

    def test_what_is_missed_is_explained_and_nothing_else(self, kept):
        standings, why = goals.standings(EXPERIMENTS.values(), kept), written_reasons()
        assert goals.unexplained(standings, why) == []
        assert goals.explained_for_nothing(standings, why) == []

    def test_each_goal_has_a_name_of_its_own_and_can_be_found(self):
        declared = [goal for experiment in EXPERIMENTS.values() for goal in experiment.goals]
        assert len({goal.name for goal in declared}) == len(declared) > 50
        for goal in declared:
            assert goal.name
            assert "|" not in goal.name
            assert re.compile(goal.measure).pattern
            assert re.compile(goal.against) is not None

    def test_headlines_are_of_experiments_that_there_are(self):
        assert {headline.experiment for headline in HEADLINES} <= EXPERIMENTS.keys()
        assert len({headline.what for headline in HEADLINES}) == len(HEADLINES)


def standings(*rows: Row, declared: tuple[Goal, ...] = (SLOW, QUICK, LATER)) -> list[Standing]:
    found = judged(rows, declared)
    return [Standing(goal, [row for row in found if row.goal == goal]) for goal in declared]


MISSED = Row("deliver, null", "one", seconds(3e-5), "sockets", seconds(1e-5))
ALLOWED = Row("deliver, text", "one", seconds(1.5e-5), "sockets", seconds(1e-5))
ELSEWHERE = Row("deliver, text", "two", seconds(1e-5), "sockets", seconds(2e-5))
MET = Row("publish", "one", rates(3e6), "sockets", rates(2e6))


def test_what_misses_its_goal_comes_first_and_ranges_tell_of_several_rows():
    assert goals.table(standings(MET, MISSED, ALLOWED, ELSEWHERE))[2:] == [
        "| a slow one | one core | at most 2x | 15 µs to 30 µs, 1.5 to 3 times the time | sockets: 10 µs "
        "| missed in 1 of 2 |",
        "| a slow one | two cores | at most 2x | 10 µs, 0.5 times the time | sockets: 20 µs | met |",
        "| a quick one | one core | at least 1x | 3 million events/s, 1.5 times the rate | sockets: 2 million events/s "
        "| met |",
        "| one for later | | at least 5 | | | not measured |",
    ]


def test_reasons_are_asked_for_and_shown():
    missed, why = standings(MISSED, MET), {"a slow one": "Slow."}
    assert goals.reasons(missed, why)[2:] == ["| a slow one | Slow. |"]
    assert goals.unexplained(missed, why) == goals.explained_for_nothing(missed, why) == []
    assert goals.unexplained(missed, {}) == ["a slow one"]
    assert goals.UNEXPLAINED in goals.reasons(missed, {})[2]


def test_a_reason_for_what_is_met_or_is_no_more_is_noticed():
    why = dict.fromkeys(("a slow one", "a quick one", "one for later", "one that was"), "Slow.")
    assert goals.explained_for_nothing(standings(MISSED, MET), why) == ["a quick one", "one that was"]


def test_goals_that_share_a_reason_share_a_line():
    both = standings(MISSED, Row("publish", "one", rates(1.0), "sockets", rates(2.0)))
    assert goals.reasons(both, dict.fromkeys(("a slow one", "a quick one"), "Slow."))[2:] == [
        "| a slow one; a quick one | Slow. |"
    ]


def test_reasons_are_read_by_their_headings(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "FOLDER", tmp_path)
    (tmp_path / "reasons.md").write_text(
        "# Reasons\n\nHow.\n\n## one\n## two\n\nBoth are\nslow.\n\n## three\n\nSo is it.\n"
    )
    assert written_reasons() == {"one": "Both are slow.", "two": "Both are slow.", "three": "So is it."}


def test_parts_are_replaced_and_all_else_stays():
    made = [result(MET)]
    shown = written("Before.\n\n<!-- revision: anything -->\nold\n<!-- end -->\n\nAfter.\n", made)
    assert shown == (
        f"Before.\n\n<!-- revision: {documents.HOW} -->\n\nAll of revision 0123abc.\n\n<!-- end -->\n\nAfter.\n"
    )
    assert written(shown, made) == shown
    with pytest.raises(UnknownPart, match="no part 'weather'; there are revision, figures"):
        written("<!-- weather: -->\n<!-- end -->\n", made)


def test_several_revisions_are_told_first(tmp_path):
    other = dataclasses.replace(result(MET, experiment="machine"), revision="fedcba9 and changes")
    several = [other, result(MET), result(MET, experiment="sinks")]
    assert revisions(several) == {"0123abc": ["round_trip", "sinks"], "fedcba9 and changes": ["machine"]}
    said = of_revisions(several)
    assert said.startswith("**These are of 2 revisions, so figures of different experiments don't compare:** 0123abc (")
    page = markdown(several, tmp_path)
    assert said in page[: page.index("## What")]
    assert of_revisions(several[1:]) == "All of revision 0123abc."


def test_whether_it_was_compiled_is_told_too():
    compiled = dataclasses.replace(result(MET), versions={"echannel_ray": "compiled"})
    pure = dataclasses.replace(result(MET), versions={"echannel_ray": "pure Python"})
    assert of_revisions([compiled, compiled]) == "All of revision 0123abc, compiled."
    assert of_revisions([pure]) == "All of revision 0123abc, pure Python."
    assert of_revisions([pure, compiled]) == "All of revision 0123abc."


def test_headlines_have_a_column_for_each_placement_and_name_what_stands_beside():
    rows = [
        Row("publish", "one", rates(1e6), "sockets, packs of 64", rates(2e6)),
        Row("publish", "two", rates(3e6), "sockets, packs of 16", rates(4e6)),
        Row("publish", "two", rates(3e6), "pyzmq", rates(5e6)),
    ]
    lines = table([Headline("`publish`", "sinks", "publish", ("sockets",))], [result(*rows, experiment="sinks")])
    assert lines[2:] == [
        "| `publish` | 1 million events/s | 3 million events/s |  | sockets 2 million events/s and 4 million events/s |"
    ]
    assert table([Headline("`publish`", "machine", "publish")], [result(*rows)])[2:] == []
