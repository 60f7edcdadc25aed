"""Which processes of a dead concentrator still live."""

from __future__ import annotations

import os
import subprocess
import sys

from echannel_ray.transport.presence import forget_endpoint, former_endpoints, mark_left, note_endpoint


def test_nobody_was_there(tmp_path):
    assert former_endpoints(tmp_path) == []


def test_a_process_that_lives_and_one_that_has_ended(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note_endpoint(tmp_path, 2**63, os.getpid())
    note_endpoint(tmp_path, 7, child.pid)
    note_endpoint(tmp_path, 7, child.pid)
    assert former_endpoints(tmp_path) == [(7, child.pid, True), (2**63, os.getpid(), True)]
    child.communicate(b"\n")
    assert former_endpoints(tmp_path) == [(7, child.pid, False), (2**63, os.getpid(), True)]


def test_one_that_has_left_is_not_expected_back_although_its_process_lives(tmp_path):
    note_endpoint(tmp_path, 7, os.getpid())
    mark_left(tmp_path, 7)
    assert former_endpoints(tmp_path) == [(7, os.getpid(), False)]
    forget_endpoint(tmp_path, 7)
    assert former_endpoints(tmp_path) == []
    mark_left(tmp_path, 7)
    assert former_endpoints(tmp_path) == []


def test_a_zombie_has_ended(tmp_path):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    note_endpoint(tmp_path, 1, pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert former_endpoints(tmp_path) == [(1, pid, False)]
    os.waitpid(pid, 0)


def test_a_pid_that_is_used_again_is_another_process(tmp_path):
    note_endpoint(tmp_path, 1, os.getpid())
    (path,) = tmp_path.iterdir()
    start = int(path.name.rpartition("-")[2])
    path.rename(path.with_name(path.name.replace(str(start), str(start - 1))))
    assert former_endpoints(tmp_path) == [(1, os.getpid(), False)]


def test_a_process_that_was_gone_before_it_was_noted(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    note_endpoint(tmp_path, 1, child.pid)
    assert former_endpoints(tmp_path) == [(1, child.pid, False)]


def test_a_command_with_an_odd_name(tmp_path):
    command = tmp_path / ") R 1 (x"
    command.symlink_to("/bin/cat")
    child = subprocess.Popen([str(command)], stdin=subprocess.PIPE)
    directory = tmp_path / "noted"
    directory.mkdir()
    note_endpoint(directory, 1, child.pid)
    note_endpoint(directory, 2, os.getpid())
    (first, second) = sorted(path.name for path in directory.iterdir())
    assert 0 <= int(first.rpartition("-")[2]) - int(second.rpartition("-")[2]) < 10_000_000
    assert former_endpoints(directory)[0].alive
    child.communicate()
    assert not former_endpoints(directory)[0].alive


def test_forgotten(tmp_path):
    (tmp_path / "concentrator.sock").touch()
    note_endpoint(tmp_path, 1, os.getpid())
    note_endpoint(tmp_path, 0x10, os.getpid())
    forget_endpoint(tmp_path, 1)
    forget_endpoint(tmp_path, 1)
    assert [former.endpoint_id for former in former_endpoints(tmp_path)] == [0x10]
    forget_endpoint(tmp_path, 0x10)
    assert [path.name for path in tmp_path.iterdir()] == ["concentrator.sock"]
