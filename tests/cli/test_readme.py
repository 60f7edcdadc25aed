"""The examples of the README and of the guides run as pasted, and what the README names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.cli.commands import ROOT

README = (ROOT / "README.md").read_text()


def _run_examples(text, tmp_path):
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    script = tmp_path / "examples.py"
    script.write_text("\n".join([*examples, "print('the end')"]))
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
    assert "Traceback" not in done.stderr
    return done


def test_the_examples_run_as_pasted_one_after_the_other(tmp_path):
    done = _run_examples(README, tmp_path)
    first, *_, last = done.stdout.splitlines()
    assert first == "2 consumers: everybody has handled it"
    assert "one of the two workers got {'symbol': 'RAY', 'price': 77.5}" in done.stdout
    assert last == "the end"


def test_the_examples_of_the_guide_to_typed_channels(tmp_path):
    done = _run_examples((ROOT / "docs" / "typed-channels.md").read_text(), tmp_path)
    assert done.stdout == "the end\n"


def test_files_that_it_names_are_there():
    named = set(re.findall(r"`((?:tests|docs|benchmarks|examples|echannel_ray)/[\w./-]+)`", README))
    named |= set(re.findall(r"\]\(([\w./-]+)\)", README))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
