"""Spark, a gateway and actors: the examples of the guide, and the example programs, as they stand."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.commands import ROOT
from tests.cli.examples import examples_of
from tests.integrations.programs import Programs

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
    pytest.mark.timeout(400),
]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    running = Programs(tmp_path_factory.mktemp("programs") / "errors")
    yield running
    running.end()


def test_the_examples_of_the_guide(programs, tmp_path):
    guide = tmp_path / "examples.py"
    guide.write_text(examples_of((ROOT / "docs" / "spark.md").read_text()))
    printed = programs.run(guide)
    assert "10000 rows came, in ['id', 'half', 'name']" in printed
    assert "10000 rows read back, half of them 2499.75" in printed
    assert printed.endswith("the end\n")


def test_features_train_models(programs):
    *_, accuracy = programs.run(EXAMPLES / "spark_training.py", "--rows", "40000").split()
    assert float(accuracy.rstrip("%")) > 85


def test_readings_are_scored_on_their_way(programs):
    printed = programs.run(EXAMPLES / "spark_scoring.py", "--epochs", "1", "--rows-a-second", "500")
    assert "beside the gateway" in printed
    assert printed.count("warm readings") == 10
