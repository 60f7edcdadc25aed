"""The examples of the README and of the guides run as pasted."""

from __future__ import annotations

from tests.cli.commands import ROOT
from tests.cli.examples import run_examples

README = (ROOT / "README.md").read_text()


def test_the_examples_run_as_pasted_one_after_the_other(tmp_path):
    done = run_examples(README, tmp_path)
    first, *_, last = done.stdout.splitlines()
    assert first == "2 consumers: everybody has handled it"
    assert "one of the two workers got {'symbol': 'RAY', 'price': 77.5}" in done.stdout
    assert last == "the end"


def test_the_examples_of_the_tour(tmp_path):
    done = run_examples((ROOT / "docs" / "tour.md").read_text(), tmp_path)
    assert "one of the two workers got {'symbol': 'RAY', 'price': 77.5}" in done.stdout
    assert "first order came before I did" in done.stdout


def test_the_examples_of_the_guide_to_typed_channels(tmp_path):
    done = run_examples((ROOT / "docs" / "typed-channels.md").read_text(), tmp_path)
    assert done.stdout == "the end\n"


def test_the_examples_of_the_guide_to_retention(tmp_path):
    done = run_examples((ROOT / "docs" / "retention.md").read_text(), tmp_path)
    assert "{'number': 10} is the eleventh" in done.stdout
    assert "{'number': 5} comes next" in done.stdout


def test_the_examples_of_the_guide_to_watching(tmp_path):
    done = run_examples((ROOT / "docs" / "watching.md").read_text(), tmp_path)
    assert "charged {'number': 1}" in done.stdout
    assert all(name in done.stdout for name in ('"checkout"', '"deliver orders"', '"process orders"', '"charge"'))
