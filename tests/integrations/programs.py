"""Programs with Spark, as they stand, one after the other in one process: so they share its JVM and its Ray.

`python -m tests.integrations.programs` runs those that it is told of, a line of JSON each, and says what each printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from echannel_ray.demo.machine import two_nodes
from tests.gateway.processes import ROOT

_EXAMPLES = ROOT / "examples"


class Programs:
    """The process."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integrations.programs"],
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{_EXAMPLES}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def run(self, program: Path, *arguments: str) -> str:
        """What it prints; it ends in peace."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(program), *arguments]), file=self._process.stdin, flush=True)
        said = self._process.stdout.readline()
        assert said, self._errors.read_text()
        return str(json.loads(said))

    def end(self) -> None:
        """It ends what it started, and by itself."""
        try:
            self._process.communicate(timeout=60)
            assert self._process.returncode == 0, self._errors.read_text()
        finally:
            self._process.kill()


def _main(say: Any) -> None:
    @contextlib.contextmanager
    def this_ray() -> Any:
        yield nodes

    with contextlib.redirect_stdout(io.StringIO()), two_nodes() as nodes:
        from tests.clusters import end_namespaces  # Ray is there

        with patch("echannel_ray.demo.machine.two_nodes", this_ray):
            for line in sys.stdin:
                program, *arguments = json.loads(line)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed), patch("sys.argv", [program, *arguments]):
                    runpy.run_path(program, run_name="__main__")
                end_namespaces()
                print(json.dumps(printed.getvalue()), file=say, flush=True)


if __name__ == "__main__":
    _main(sys.stdout)
