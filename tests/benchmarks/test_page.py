"""RESULTS.md from rows made by hand."""

from __future__ import annotations

import re

import pytest

from echannel_ray.benchmarks.cells import quantity
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least, at_most, failure, skipped
from echannel_ray.benchmarks.page import escaped, markdown
from tests.benchmarks.made import BUSY, rates, result, seconds

MET = Row("cheap", "two", seconds(1e-5), "sockets", seconds(2e-5), at_most(1))
ALLOWED = Row("allowed", "one", seconds(1.5e-5), "sockets", seconds(1e-5), at_most(2))
MISSED = Row("dear", "one", seconds(4e-5, 4.1e-5), "sockets", seconds(1e-5), at_most(2))
BEHIND = Row("slow", "free", rates(100.0), "pyzmq", rates(200.0))
AHEAD = Row("fast", "free", rates(300.0), "pyzmq", rates(200.0))
LEFT_OUT = skipped("NATS", "no nats-server here")


@pytest.fixture
def page(tmp_path):
    """Writes it."""
    return lambda *results: markdown(results, tmp_path)


def part(text: str, heading: str) -> list[str]:
    """The lines of a section that say something."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return [line for line in found[1].splitlines() if line]


def test_losses_come_first_and_those_of_goals_before_the_others(page):
    written = page(result(BEHIND, AHEAD, experiment="fanout"), result(MET, MISSED, ALLOWED))
    assert part(written, "What was lost") == [
        "- [round_trip](#round_trip): How long? Met 2 of 3 goals (in 1 the baseline is better). Lost:",
        "  - dear (one core): 40 µs against 10 µs of sockets, 4x its time; the goal is at most 2x.",
        "- [fanout](#fanout): How long? Of 2 comparisons without a goal: better in 1, worse in 1. Lost:",
        "  - slow (not pinned): 100 events/s against 200 events/s of pyzmq, 0.5x its rate; without a goal.",
    ]
    table = [line.split(" | ")[0] for line in part(written, "round_trip") if line.startswith("| ")]
    assert table == ["| measure", "| dear", "| cheap", "| allowed"]


def test_what_was_not_lost(page):
    written = page(result(MET), result(AHEAD, experiment="fanout"), result(Row("m", "", rates(1.0)), experiment="x"))
    assert part(written, "What was lost") == ["Nothing."]
    assert part(written, "What was not") == [
        "- [round_trip](#round_trip): How long? Met 1 of 1 goals.",
        "- [fanout](#fanout): How long? Of 1 comparison without a goal: better in 1, worse in 0.",
        "- [x](#x): How long? No goals and no baselines: for information.",
    ]


def test_worse_within_the_spread_is_no_loss_but_is_told(page):
    close = Row("close", "", seconds(1.1, 1.3), "b", seconds(1.0))
    written = page(result(close))
    assert part(written, "What was lost") == ["Nothing."]
    assert "worse in 0, worse by less than the spread in 1." in written


def test_of_many_that_are_behind_the_worst_are_told(page):
    many = [Row(f"line {number}", "", rates(1.0), "b", rates(number + 1.0)) for number in range(1, 9)]
    lost = part(page(result(*many)), "What was lost")[1:]
    assert [line.split(":")[0].strip() for line in lost[:-1]] == [f"- line {number}" for number in (8, 7, 6, 5, 4)]
    assert lost[-1] == "  - and 3 rows more without a goal, less far behind."


def test_failures_are_losses(page):
    written = page(result(failure("round_trip", ValueError("no | such\nthing"))))
    assert part(written, "What was lost")[1:] == ["  - round_trip: failed with ValueError: thing."]
    assert "1 measurement failed" in written


def test_what_was_left_out_is_named(page):
    written = page(result(MET, LEFT_OUT), result(AHEAD, LEFT_OUT, experiment="fanout"))
    assert part(written, "What was left out") == ["- NATS: no nats-server here"]
    assert any("| NATS |" in line and "| skipped |" in line for line in part(written, "round_trip"))
    assert "What was left out" not in page(result(MET))


def test_goals_on_figures_themselves(page):
    written = page(result(Row("made", "", rates(400.0), goal=at_least(500))))
    assert "  - made: 400 events/s; the goal is at least 500 events/s." in written.splitlines()


def test_a_reader_learns_which_figures_to_distrust(page):
    wild = Row("wild", "one", seconds(1.0, 2.0), "b", seconds(0.1), note="as noted")
    written = page(result(wild, machine=BUSY))
    assert "**Doubtful:** the load average was 1.5 on 2 cores before the run began." in written
    assert "without a goal (doubtful: spread is 100%)." in written
    assert part(written, "round_trip")[-1].endswith("| as noted; spread is 100% |")
    assert "Doubtful" not in page(result(MET))


def test_where_it_was_measured(page):
    written = page(result(MET), result(MET, experiment="fanout", versions={"ray": "2.54"}))
    assert "A processor, 2 cores, 8 GiB, Linux 6.1, Python 3.11.7; ray 2.55. Revision 0123abc." in written.splitlines()
    assert "Measured elsewhere" not in "".join(part(written, "round_trip"))
    assert any("Measured elsewhere or with other versions" in line for line in part(written, "fanout"))


def test_hostile_texts_change_nothing_around_them(page):
    row = Row("a | b\n| c | <img src=x> [x](y) *z* \\", "one", seconds(1.0), "d|e", seconds(2.0), note="f\r\n## g")
    written = page(result(row))
    line = part(written, "round_trip")[-1]
    assert len(re.findall(r"(?<!\\)\|", line)) == 10
    assert r"a \| b \| c \| \<img src=x\> \[x\](y) \*z\* \\" in line
    assert "f  ## g" in line
    assert escaped("`deliver`, echannel_ray") == "`deliver`, echannel_ray"


def test_plots_are_shown_or_missed(page, tmp_path):
    figure = Figure("sizes", "By size", "bytes", "events/s", paper="JECho, figure 4")
    made = result(Row("m", "", rates(1.0), figure="sizes", x=1), figures=[figure], paper="JECho, figure 4")
    assert "The plot “By size” was left out: matplotlib is not installed: pip install" in page(made)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "round_trip-sizes.svg").touch()
    assert "![By size](results/round_trip-sizes.svg)" in part(page(made), "round_trip")
    assert "How long? Repeats JECho, figure 4." in part(page(made), "round_trip")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0000123, "s", "12.3 µs"),
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.5 s"),
        (1234567.0, "bytes", "1.2 MB"),
        (1234.0, "bytes", "1,234 B"),
        (0.000000123, "s", "123 ns"),
        (1234567.0, "events/s", "1.23 million events/s"),
        (123456.0, "events/s", "123,456 events/s"),
        (1.234, "x", "1.23 x"),
    ],
)
def test_quantities(value, unit, shown):
    assert quantity(value, unit) == shown
