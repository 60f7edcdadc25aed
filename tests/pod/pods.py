"""Pods as local processes: the start command, its probes, and what is left when it has ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from echannel_ray.actors import startup
from tests.clusters import free_port, kill, wait_until

READY_SECONDS = 90.0
END_SECONDS = 90.0
_NO_PORT_RANGE = ("--min-worker-port=0", "--max-worker-port=0")
_URL = re.compile(r"probes at (http://\S+)/healthz")


class Pod:
    """One process that runs a pod; what it says is in `output`."""

    def __init__(self, directory: Path, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "ECHANNEL_POD_DIRECTORY": str(directory),
            "ECHANNEL_PROBE_PORT": "0",
            **(environment or {}),
        }
        arguments = ["--", *command] if command else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "echannel_ray.pod", "start", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output: list[str] = []
        self._seen: dict[int, psutil.Process] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)

    @property
    def url(self) -> str:
        """Where its probes are, once it has said so."""
        return next((found[1] for line in self.output if (found := _URL.search(line))), "")

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status and document of a probe."""
        wait_until(lambda: self.url or self.process.poll() is not None)
        assert self.url, "".join(self.output)
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def problems(self) -> list[str]:
        """What is wrong with it, by `/readyz`; nothing, if it is ready."""
        self.note()
        status, document = self.ask("/readyz")
        assert document["ready"] == (status == 200) == (not document["problems"]), document
        return list(document["problems"])

    def wait_ready(self) -> None:
        """Until `/readyz` says so."""
        try:
            wait_until(lambda: not self.problems(), READY_SECONDS)
        except (OSError, TimeoutError, AssertionError) as error:
            raise AssertionError(f"{error}: {''.join(self.output)}") from error

    def note(self) -> None:
        """Remember all processes that it has now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self.process.pid).children(recursive=True):
                self._seen[each.pid] = each

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it, and wait: its exit code."""
        self.note()
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, when it has ended by itself."""
        code = self.process.wait(END_SECONDS)
        self._reader.join()
        return code

    def left_over(self) -> list[psutil.Process]:
        """Processes of it that were seen, and are there still."""
        return [each for each in self._seen.values() if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def clear(self) -> None:
        """End it and all that it started, however the test went."""
        self.note()
        with contextlib.suppress(psutil.NoSuchProcess):
            kill([psutil.Process(self.process.pid)])
        self.process.wait()
        kill(self.left_over())


@contextlib.contextmanager
def running(directory: Path, *command: str, environment: Mapping[str, str] | None = None) -> Iterator[Pod]:
    """A pod that ends with the block."""
    pod = Pod(directory, *command, environment=environment)
    try:
        yield pod
    finally:
        pod.clear()


def drain(pod: Pod) -> subprocess.CompletedProcess[str]:
    """What `preStop` runs."""
    command = [sys.executable, "-m", "echannel_ray.pod", "drain"]
    return subprocess.run(command, env=pod.environment, capture_output=True, text=True, timeout=END_SECONDS)


def ray_start(*more: str) -> tuple[str, ...]:
    """Ray's start command, as small as it gets."""
    small = ("--num-cpus=8", "--object-store-memory=100000000", "--dashboard-agent-listen-port=0")
    return (sys.executable, "-m", "tests.pod.joining", "start", "--block", *small, *_NO_PORT_RANGE, *more)


class Pods:
    """A head, and workers that join it."""

    def __init__(self, environment: Mapping[str, str], heads_environment: Mapping[str, str] | None = None) -> None:
        # Ray's own drain has nothing to wait for here.
        self._environment = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1", **environment}
        self._heads_environment = heads_environment or {}
        self.directory = Path(tempfile.mkdtemp())
        self.port = free_port()
        self._pods: list[Pod] = []
        self.head = self.start_head()

    @property
    def address(self) -> str:
        """For `ray.init`."""
        return f"127.0.0.1:{self.port}"

    def start_head(self) -> Pod:
        """The head; where there was one, another one in its place."""
        head = ray_start(
            "--head",
            f"--port={self.port}",
            "--include-dashboard=false",
            f"--ray-client-server-port={free_port()}",
            # Another one each time, as in a pod that is new: Ray refuses a port that it finds in the old one.
            f"--temp-dir={self.directory / f'r{len(self._pods)}'}",
        )
        self.head = self._start("head", head, self._heads_environment)
        return self.head

    def start_worker(self) -> Pod:
        """One more worker. As KubeRay has it: a shell's text, in the environment."""
        made = "ulimit -n 4096; " + " ".join(ray_start(f"--address={self.address}"))
        return self._start("worker", (), {"KUBERAY_GEN_RAY_START_CMD": made})

    def _start(self, name: str, command: tuple[str, ...], environment: Mapping[str, str]) -> Pod:
        own = self.directory / f"{name}{len(self._pods)}"
        pod = Pod(own, *command, environment={**self._environment, **environment})
        self._pods.append(pod)
        return pod

    def clear(self) -> None:
        """End all of it."""
        ray.shutdown()
        for pod in self._pods:
            pod.clear()
        shutil.rmtree(self.directory, ignore_errors=True)


def on(node_id: str) -> dict[str, Any]:
    """Options that place an actor on a node."""
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return {"scheduling_strategy": strategy, "num_cpus": 0, "max_concurrency": 8}


def head_and_others(others: int = 1) -> list[str]:
    """The ids of Ray's nodes, the head's first, when there are so many."""
    head = startup.head_node_id()
    assert head is not None

    def found() -> list[str]:
        return [node["NodeID"] for node in startup.ray_nodes() if node["Alive"] and node["NodeID"] != head]

    wait_until(lambda: len(found()) == others)  # a raylet answers a moment before it is one of the GCS's nodes
    return [head, *found()]
