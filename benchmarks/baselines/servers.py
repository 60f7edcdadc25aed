"""Servers of baselines: programs on a free loopback port that keep nothing, and end with the benchmark."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from echannel_ray.benchmarks.harness.closing import Closing

START_SECONDS = 10.0
EXIT_SECONDS = 5.0
POLL_SECONDS = 0.02

NATS = ("nats-server", "--addr", "127.0.0.1", "--port", "{port}")
REDIS = (
    *("redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--dir", "{folder}"),
    *("--save", "", "--appendonly", "no", "--daemonize", "no"),
)


class Missing(Exception):
    """A baseline can't run here; says what would let it."""


def need_package(name: str) -> None:
    """Raise `Missing` where a Python package is not installed."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"no Python package `{name}` here: install the extra `bench`")


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Server(Closing):
    """A running server; `command` names its program first, and `{port}` and `{folder}` where it wants them."""

    def __init__(self, command: tuple[str, ...], start_seconds: float = START_SECONDS) -> None:
        program = shutil.which(command[0])
        if program is None:
            raise Missing(f"no {command[0]} here: install it with the system's package manager")
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{Path(program).name}-"))
            self.port = free_port()
            self._log = Path(folder, "log")
            arguments = [part.format(port=self.port, folder=folder) for part in command[1:]]
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [program, *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(self._end)
            self._wait_until_it_answers(program, start_seconds)
            self._stack = stack.pop_all()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def _wait_until_it_answers(self, program: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        # In this order: another program may have taken the port before the server could, which ends the server.
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), POLL_SECONDS).close()
                return
            except OSError:
                time.sleep(POLL_SECONDS)
        state = "is silent" if self._process.poll() is None else f"ended with {self._process.returncode}"
        last = self._log.read_text(errors="replace")[-500:].strip()
        raise TimeoutError(f"{program} {state} on port {self.port}; its last words: {last or 'none'}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the process, and remove its folder."""
        self._stack.close()
