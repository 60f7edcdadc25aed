"""Servers of baselines: they answer when they are there, and are gone afterwards."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from echannel_ray.benchmarks.baselines.servers import NATS, REDIS, Missing, Server, need_package


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a shell script of some name on the search path."""

    def put(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


@pytest.mark.parametrize("command", [NATS, REDIS], ids=["nats", "redis"])
def test_a_server_answers_and_ends(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    with Server(command) as server:
        assert psutil.pid_exists(server.pid)
        assert answers(server.port)
    assert not psutil.pid_exists(server.pid)
    assert not answers(server.port)


def test_a_server_ends_when_the_benchmark_fails():
    if shutil.which(REDIS[0]) is None:
        pytest.skip("redis-server is not installed")
    server = Server(REDIS)
    with pytest.raises(ZeroDivisionError), server:
        raise ZeroDivisionError
    assert not psutil.pid_exists(server.pid)


def test_a_server_that_never_answers_is_an_error_in_time_and_ends(program, tmp_path):
    program("silent-server", f"echo $$ > {tmp_path}/pid; echo thinking; exec sleep 60")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"is silent on port .* thinking"):
        Server(("silent-server", "{port}"), start_seconds=0.5)
    assert time.monotonic() - began < 5
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_server_that_ends_at_once_says_why(program):
    program("hasty-server", "echo bad luck on port $1; exit 3")
    with pytest.raises(TimeoutError, match=r"ended with 3 .* bad luck on port \d+"):
        Server(("hasty-server", "{port}"))


def test_what_is_not_installed_is_told():
    with pytest.raises(Missing, match="no-such-server"):
        Server(("no-such-server",))
    with pytest.raises(Missing, match="no_such_package"):
        need_package("no_such_package")
