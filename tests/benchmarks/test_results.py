"""Results as documents, and what is kept of them."""

from __future__ import annotations

import json
import subprocess

import pytest

from echannel_ray.benchmarks import facts, plots, report
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.result import as_json, from_json
from echannel_ray.benchmarks.table import EXPERIMENTS
from tests.benchmarks.made import BUSY, rates, result, seconds

FIGURE = Figure("sizes", "By size", "bytes", "events/s")
POINT = Row("m", "one", rates(1.0, 2.0), figure="sizes", x=1)


def test_a_document_has_all_that_is_needed_to_judge_it():
    made = result(Row("m", "one", seconds(1.0), "b", seconds(2.0), at_most(1)), machine=BUSY, paper="JECho, table 1")
    document = json.loads(as_json(made.as_document()))
    assert document["machine"].keys() == {"cpu", "cores", "memory_bytes", "kernel", "python", "load_average"}
    assert document["doubts"] == ["the load average was 1.5 on 2 cores before the run began"]
    expected = {"experiment": "round_trip", "question": "How long?", "seed": 1, "short": False, "rounds": 5}
    expected |= {"took_seconds": 2.5, "revision": "0123abc", "paper": "JECho, table 1", "figures": []}
    assert expected.items() <= document.items()
    assert document["versions"]["ray"] == "2.55"
    (row,) = document["rows"]
    assert row["ours"]["values"] == [1.0]
    assert {"best", "median", "spread", "ratio", "verdict", "doubts", "goal", "note"} <= row.keys()


def test_a_document_says_what_the_result_said():
    made = result(POINT, Row("m", "one", seconds(1.0), "b", seconds(2.0), at_most(1)), figures=[FIGURE])
    assert from_json(as_json(made.as_document()).encode()) == made


def test_kept_results_are_json_plots_and_a_page(tmp_path):
    report.save(result(POINT, figures=[FIGURE]), tmp_path)
    report.save(result(POINT, experiment="machine"), tmp_path)
    report.render(tmp_path)
    (tmp_path / "results" / "forgotten.json").write_text("{}")
    assert [kept.experiment for kept in report.kept(tmp_path / "results")] == ["machine", "round_trip"]
    page = (tmp_path / "RESULTS.md").read_text()
    assert page.index("## machine") < page.index("## round_trip")
    if plots.can_draw():
        assert "(results/round_trip-sizes.svg)" in page
        assert (tmp_path / "results" / "round_trip-sizes.svg").exists()


def test_what_is_kept_is_judged_by_the_goals_of_today(tmp_path):
    """Whatever goal it had when it was measured."""
    figures = seconds(1.25e-4), "ray.get of an actor call", seconds(1e-3)
    old = Row("deliver, null", "one", *figures, at_most(9))
    report.save(result(old, Row("something else", "one", *figures, at_most(9))), tmp_path)
    (kept,) = report.kept(tmp_path / "results")
    assert [row.verdict for row in kept.rows] == ["met", ""]
    assert kept.rows[0].goal in EXPERIMENTS["round_trip"].goals


def test_plots_of_an_earlier_run_go(tmp_path):
    (tmp_path / "results").mkdir()
    old, other = (tmp_path / "results" / name for name in ("round_trip-old.svg", "round_trip_too-old.svg"))
    old.touch()
    other.touch()
    report.save(result(POINT), tmp_path)
    assert not old.exists()
    assert other.exists()


def test_without_matplotlib_there_is_a_line_instead(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "can_draw", lambda: False)
    report.save(result(POINT, figures=[FIGURE]), tmp_path)
    report.render(tmp_path)
    assert "The plot “By size” was left out" in (tmp_path / "RESULTS.md").read_text()
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["round_trip.json"]


def test_facts_of_this_machine():
    here = facts.facts()
    assert here.machine.cores > 0
    assert here.machine.memory_bytes > 1 << 28
    assert here.versions["ray"][0].isdigit()
    assert "nats-server" in here.versions


def test_a_revision_is_that_of_our_own_repository(tmp_path, monkeypatch):
    assert facts._revision(tmp_path) == ""
    # A wheel, somewhere inside another repository.
    monkeypatch.setattr(facts, "_git", lambda *arguments: str(tmp_path.parent))
    assert facts._revision(tmp_path) == ""


def test_a_revision_is_that_of_the_sources_it_was_made_of(tmp_path):
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=n@localhost")
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    (tmp_path / "code.py").touch()
    git("add", "code.py")
    git("commit", "--quiet", "--message", "code")
    commit = git("rev-parse", "HEAD").strip()
    assert facts.facts(tmp_path).revision == commit
    (tmp_path / "code.py").write_text("changed = True")
    assert facts.facts(tmp_path).revision == f"{commit} and changes"


@pytest.mark.parametrize(("load", "doubts"), [(1.0, 0), (1.01, 1)])
def test_half_a_process_per_core_is_too_much(load, doubts):
    assert len(facts.Machine("", 2, 1, "", "", load).doubts) == doubts
