"""Which experiments there are, and what becomes of one that can't run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.baselines.servers import Missing
from echannel_ray.benchmarks.harness.rows import Figure, Goal, Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan
from echannel_ray.benchmarks.running import measure
from echannel_ray.benchmarks.table import EXPERIMENTS, Experiment, UnknownExperiment, chosen, listed
from tests.benchmarks.made import FACTS, rates

ROOT = Path(__file__).parents[2]
PLAN = Plan(short=True, seed=7)


@dataclass(frozen=True)
class Made(Experiment):
    """An experiment that does what a test says."""

    outcome: list[Row] | Exception = field(default_factory=list)

    @property
    def question(self) -> str:
        return "Why?"

    @property
    def paper(self) -> str:
        return "JECho, figure 4"

    @property
    def goals(self) -> tuple[Goal, ...]:
        return (at_least(2, "a goal", "m"),)

    @property
    def figures(self) -> tuple[Figure, ...]:
        return ()

    def run(self, plan: Plan) -> list[Row]:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class OfAnActor(ModuleNotFoundError):
    """As Ray raises what an actor raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def module_missing(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_what_was_measured_is_kept_with_the_facts(no_ray):
    made = measure(Made("x", outcome=[Row("m", "", rates(1.0))]), PLAN, FACTS)
    assert (made.experiment, made.question, made.seed, made.short, made.rounds) == ("x", "Why?", 7, True, 3)
    assert (made.paper, made.revision, made.machine) == ("JECho, figure 4", FACTS.revision, FACTS.machine)
    assert not made.has_failed
    assert [row.verdict for row in made.rows] == ["missed"]


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (module_missing("zmq"), "pyzmq is not installed: pip install 'echannel-ray[bench]'"),
        (module_missing("nats.aio"), "nats-py is not installed: pip install 'echannel-ray[bench]'"),
        (module_missing("llvmlite"), "llvmlite is not installed: pip install 'echannel-ray[native]'"),
        (OfAnActor(module_missing("zmq")), "pyzmq is not installed: pip install 'echannel-ray[bench]'"),
        (Missing("no nats-server here"), "no nats-server here"),
    ],
)
def test_what_is_missing_is_skipped(no_ray, error, note):
    (row,) = measure(Made("x", outcome=error), PLAN, FACTS).rows
    assert (row.verdict, row.measure, row.note) == ("skipped", "x", note)


@pytest.mark.parametrize("error", [module_missing("echannel_ray.nothing"), ImportError("broken"), ValueError("no")])
def test_what_is_wrong_is_a_failure(no_ray, capsys, error):
    made = measure(Made("x", outcome=error), PLAN, FACTS)
    assert made.has_failed
    assert str(error) in made.rows[0].error
    assert "Traceback" in capsys.readouterr().err


def test_all_or_some_in_the_order_of_the_table():
    assert chosen([]) == [*EXPERIMENTS.values()]
    assert [each.name for each in chosen(["publish_rate", "machine", "machine"])] == ["machine", "publish_rate"]


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(
        UnknownExperiment, match=r"no experiment 'rount_trip' \(did you mean round_trip\?\); there are "
    ):
        chosen(["machine", "rount_trip"])
    with pytest.raises(UnknownExperiment, match="no experiment 'xyz'; there are machine, round_trip"):
        chosen(["xyz"])


def test_each_experiment_asks_something():
    lines = listed()
    assert [line["name"] for line in lines] == [*EXPERIMENTS]
    assert all(line["question"] for line in lines)


def test_a_list_needs_no_packages(monkeypatch):
    monkeypatch.setattr(Experiment, "lacks", "pyzmq")
    assert {line["missing"] for line in listed()} == {extras.not_installed("pyzmq")}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--list"], 0, "round_trip"),
        (["rount_trip"], 2, "did you mean round_trip?"),
        (["--help"], 0, "--out FOLDER"),
        (["--render"], 2, "need --out"),
    ],
)
def test_the_module_as_a_command(arguments, code, said):
    done = subprocess.run(
        [sys.executable, "-m", "echannel_ray.benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
