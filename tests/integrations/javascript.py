"""Programs in Node, which use the client in `integrations/javascript`."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent.parent / "integrations" / "javascript"
PROTOCOL = Path(__file__).parent.parent.parent / "docs" / "gateway-protocol.md"
MISSING = [name for name in ("node", "npm") if shutil.which(name) is None]
INSTALL_SECONDS = 120


def installed(directory: Path) -> Path:
    """A copy of the client with what it needs."""
    for name in ("echannel.js", "package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, directory)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    return directory


class Node:
    """A program that runs: it says things, a line of JSON each."""

    def __init__(self, directory: Path, program: str, *arguments: str) -> None:
        text = f"import * as ec from './echannel.js';\nconst say = (it) => console.log(JSON.stringify(it));\n{program}"
        path = directory / f"program-{abs(hash(program)):x}.mjs"
        path.write_text(text)
        self._process = subprocess.Popen(
            ["node", str(path), *arguments],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._guard = threading.Timer(60, self._process.kill)  # a test that waits for it must not wait for good
        self._guard.start()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *error: object) -> None:
        self._guard.cancel()
        self._process.kill()
        self._process.communicate()

    def hear(self) -> Any:
        """What it says next."""
        line = self._process.stdout.readline()
        assert line, f"the program ended: {self._process.stderr.read()}"
        return json.loads(line)

    def go_on(self) -> None:
        """Have something for it to read from its standard input."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait until it has ended, well."""
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors


def vectors() -> list[dict[str, Any]]:
    """Those of the page about the protocol."""
    text = PROTOCOL.read_text()
    return json.loads(text.split("```json\n")[1].split("```")[0])  # type: ignore[no-any-return]
