"""Spark, a gateway and actors: the examples of the guide, and the example programs, as they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.cli.commands import ROOT
from tests.cli.examples import run_examples

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
    pytest.mark.timeout(400),
]


def test_the_examples_of_the_guide(two_nodes, tmp_path):
    done = run_examples((ROOT / "docs" / "spark.md").read_text(), tmp_path, timeout=300, address=two_nodes.address)
    assert "10000 rows came, in ['id', 'half', 'name']" in done.stdout
    assert "10000 rows read back, half of them 2499.75" in done.stdout


def run(example, *arguments):
    command = [sys.executable, str(ROOT / "examples" / example), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_features_train_models():
    done = run("spark_training.py", "--rows", "40000")
    assert done.returncode == 0, done.stderr
    *_, accuracy = done.stdout.split()
    assert float(accuracy.rstrip("%")) > 85


def test_readings_are_scored_on_their_way():
    done = run("spark_scoring.py", "--epochs", "1", "--rows-a-second", "500")
    assert done.returncode == 0, done.stderr
    assert "beside the gateway" in done.stdout
    assert done.stdout.count("warm readings") == 10
