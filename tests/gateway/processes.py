"""A gateway in a process of its own, which is killed and comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


class Server:
    """`tests.gateway.local` over a directory; a successor has the same endpoint and the same logs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = ""
        self._restarting: threading.Thread | None = None

    def start(self, fault: str = "") -> str:
        """Start it, to be killed by that fault; its endpoint."""
        arguments = [str(self._directory / "data"), "0", str(self._directory / "identity"), *([fault] if fault else [])]
        command = [sys.executable, "-m", "tests.gateway.local", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint
        return self.endpoint

    def restart_when_dead(self) -> None:
        """Have a successor without a fault as soon as it has died."""

        def restart() -> None:
            self._wait()
            self.start()

        self._restarting = threading.Thread(target=restart, daemon=True)
        self._restarting.start()

    def restarted(self) -> None:
        """Wait until there is that successor."""
        self._restarting.join(60)
        assert not self._restarting.is_alive(), "the process should have been killed by its fault"

    @property
    def is_restarting(self) -> bool:
        """Whether that successor is still to come."""
        return self._restarting is not None and self._restarting.is_alive()

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()

    def end(self) -> None:
        """At the end of a test, whatever came of it."""
        self.kill()
        if self._restarting is not None:
            self._restarting.join(60)
            self.kill()
        self._wait()

    def _wait(self) -> None:
        self._process.wait()
        self._process.stdout.close()
