"""Examples of guides, run as pasted, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.commands import ROOT


def examples_of(text: str) -> str:
    """All Python of a page, as one program."""
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return "\n".join([*examples, "print('the end')"])


def run_examples(text: str, folder: Path, timeout: float = 90, address: str = "") -> subprocess.CompletedProcess[str]:
    """All Python of a page, as one program: in the Ray of this address, or else in one of its own."""
    script = folder / "examples.py"
    script.write_text(examples_of(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"RAY_ADDRESS": address} if address else {})}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done
