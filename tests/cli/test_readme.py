"""The README's example runs as pasted, and what it names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.cli.commands import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_first_example_runs_as_pasted(tmp_path):
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[0])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "everybody has handled it" in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_are_python(example):
    compile(example, "README.md", "exec")


def test_files_that_it_names_are_there():
    named = set(re.findall(r"`((?:tests|docs|benchmarks|examples|echannel_ray)/[\w./-]+)`", README))
    named |= set(re.findall(r"\]\(([\w./-]+)\)", README))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
