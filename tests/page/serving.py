"""`echannel serve` as a process."""

from __future__ import annotations

import json
import os
import subprocess

import psutil

from tests.cli.commands import start

TOKEN = "the token of these tests"


class Server:
    """It, and what it started."""

    def __init__(self, address: str, namespace: str, port: int = 0) -> None:
        before = os.environ.get("ECHANNEL_PAGE_TOKEN")
        os.environ["ECHANNEL_PAGE_TOKEN"] = TOKEN
        try:
            self.process = start(
                "serve", "--port", str(port), "--json", "--address", address, "--namespace", namespace
            )  # fmt: skip
        finally:
            if before is None:
                del os.environ["ECHANNEL_PAGE_TOKEN"]
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["url"])

    def lookers(self) -> list[psutil.Process]:
        """Who is in Ray for it."""
        return [each for each in psutil.Process(self.process.pid).children() if "looker" in " ".join(each.cmdline())]

    def end(self) -> int:
        """By SIGTERM: its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.communicate()
