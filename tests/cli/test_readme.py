"""The examples of the README and of the guides run as pasted."""

from __future__ import annotations

import pytest

from tests.cli.commands import ROOT
from tests.cli.examples import run_examples
from tests.clusters import end_namespaces

README = (ROOT / "README.md").read_text()


@pytest.fixture
def guide(two_nodes, tmp_path):
    """Runs the examples of a guide, in a Ray that runs; they use the default namespace."""
    yield lambda name: run_examples((ROOT / "docs" / name).read_text(), tmp_path, address=two_nodes.address)
    end_namespaces()


def test_the_examples_run_as_pasted_one_after_the_other(tmp_path):
    """Where no Ray runs."""
    done = run_examples(README, tmp_path)
    first, *_, last = done.stdout.splitlines()
    assert first == "2 consumers: everybody has handled it"
    assert "one of the two workers got {'symbol': 'RAY', 'price': 77.5}" in done.stdout
    assert last == "the end"


def test_the_examples_of_the_tour(guide):
    done = guide("tour.md")
    assert "one of the two workers got {'symbol': 'RAY', 'price': 77.5}" in done.stdout
    assert "first order came before I did" in done.stdout


def test_the_examples_of_the_guide_to_typed_channels(guide):
    done = guide("typed-channels.md")
    assert done.stdout == "the end\n"


def test_the_examples_of_the_guide_to_retention(guide):
    done = guide("retention.md")
    assert "{'number': 10} is the eleventh" in done.stdout
    assert "{'number': 5} comes next" in done.stdout


def test_the_examples_of_the_guide_to_watching(guide):
    done = guide("watching.md")
    assert "charged {'number': 1}" in done.stdout
    assert all(name in done.stdout for name in ('"checkout"', '"deliver orders"', '"process orders"', '"charge"'))
