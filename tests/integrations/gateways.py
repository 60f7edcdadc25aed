"""A gateway in a process of its own, with a log on disk and without Ray, which tests may kill and start again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from echannel_ray.gateway.client import GatewayClient

ROOT = Path(__file__).parent.parent.parent


class LocalGateway:
    """It has the same endpoint and the same logs each time that it is started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        data, identity = str(self._directory / "data"), str(self._directory / "identity")
        command = [sys.executable, "-m", "tests.gateway.local", data, "0", identity]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint, "the gateway did not start: what it said is above"

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def client(self) -> GatewayClient:
        """A client of it."""
        return GatewayClient(self.endpoint)

    def values(self, channel: str, column: str = "id") -> list[int]:
        """A column of all that is retained, in the logs' order."""
        with self.client() as client:
            return [
                value
                for log, (first, stop) in client.offsets(channel).items()
                for batch in client.read(channel, log, first, stop)
                for value in batch.column(column).to_pylist()
            ]
