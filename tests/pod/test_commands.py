"""`python -m echannel_ray.pod` around commands that are not Ray: signals, exit codes, what is left, refusals."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from echannel_ray.transport.door import Door, Unanswered, ask, door_path
from tests.clusters import wait_until
from tests.pod.pods import Pod, drain, running


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-u", "-c", text)


def says(pod: Pod, what: str) -> bool:
    return any(what in line for line in pod.output)


@pytest.fixture
def here() -> Iterator[Path]:
    """A directory for a pod's doors. Not `tmp_path`: the paths of Unix sockets are short."""
    parent = Path(tempfile.mkdtemp())
    yield parent / "pod"
    shutil.rmtree(parent)


def number_behind(pod: Pod, word: str) -> int:
    """What a process of a pod has printed behind a word, when it has."""
    wait_until(lambda: says(pod, word))
    return int(next(line for line in pod.output if word in line).split()[1])


@pytest.mark.parametrize(("how", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("pass", 0)])
def test_the_exit_code_is_that_of_the_command(here: Path, how: str, code: int):
    with running(here, *python(f"import os, sys; {how}")) as pod:
        assert pod.wait() == code


def test_signals_are_passed_on(here: Path):
    text = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('begun')\n"
        "while True: signal.pause()\n"
    )
    with running(here, *python(text)) as pod:
        wait_until(lambda: says(pod, "begun"))
        assert pod.ask("/healthz")[0] == 200
        pod.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: says(pod, "usr1"))
        assert pod.end() == 3


def test_what_kuberay_says_is_run_and_its_shell_passes_signals_on(here: Path):
    text = "import signal, sys; signal.signal(15, lambda *_: sys.exit(4)); print('begun', flush=True); signal.pause()"
    made = f'ulimit -n 512; {sys.executable} -c "{text}"; exit $?'
    with running(here, environment={"KUBERAY_GEN_RAY_START_CMD": made}) as pod:
        wait_until(lambda: says(pod, "begun"))
        assert pod.end() == 4


def test_what_the_command_has_left_is_ended(here: Path):
    orphan = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print('orphan', os.getpid()); time.sleep(600)"
    middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-u', '-c', {orphan!r}])"
    text = (
        "import subprocess, sys, signal\n"
        "signal.signal(15, lambda *_: sys.exit(0))\n"
        f"subprocess.run([sys.executable, '-c', {middle!r}])\n"
        "while True: signal.pause()\n"
    )
    with running(here, *python(text)) as pod:
        left = psutil.Process(number_behind(pod, "orphan"))
        wait_until(lambda: left.ppid() == pod.process.pid)
        assert pod.end() == 0
        assert not left.is_running()
        assert not pod.left_over()


def test_zombies_are_reaped(here: Path):
    text = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        print('orphan', os.getpid())\n"
        "        signal.pause()\n"
        "    os._exit(0)\n"
        "os.wait(); signal.pause()\n"
    )
    with running(here, *python(text)) as pod:
        orphan = psutil.Process(number_behind(pod, "orphan"))
        wait_until(lambda: orphan.ppid() == pod.process.pid)
        orphan.kill()
        wait_until(lambda: not orphan.is_running())


@pytest.mark.parametrize(
    ("command", "environment", "message"),
    [
        ((), {"KUBERAY_GEN_RAY_START_CMD": ""}, "there is no command: give one behind `--`"),
        (("/no/such/program",), {}, "can't be run: No such file or directory; give one that is in the image"),
        (("true",), {"ECHANNEL_PROBE_PORT": "x"}, "ECHANNEL_PROBE_PORT='x': set a number from 0 to 65535"),
        (("true",), {"ECHANNEL_PROBE_PORT": "8.5"}, "is no port"),
        (("true",), {"ECHANNEL_PROBE_HOST": "192.0.2.1"}, "set ECHANNEL_PROBE_PORT to a port that is free"),
        (("true",), {"ECHANNEL_DRAIN_SECONDS": "-1"}, "ECHANNEL_DRAIN_SECONDS='-1': set a number from 0 to 86400"),
        (("true",), {"ECHANNEL_DRAIN_SECONDS": "nan"}, "ECHANNEL_DRAIN_SECONDS='nan': set a number"),
    ],
)
def test_a_refusal_says_what_to_do(here: Path, command: tuple[str, ...], environment: dict[str, str], message: str):
    with running(here, *command, environment=environment) as pod:
        assert pod.wait() == 2
        assert message in "".join(pod.output)
        assert "Traceback" not in "".join(pod.output)


def test_a_port_that_is_taken_is_refused(here: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with running(here, "true", environment={"ECHANNEL_PROBE_PORT": port}) as pod:
            assert pod.wait() == 2
            assert (
                f"can't listen on 127.0.0.1:{port}: Address already in use; set ECHANNEL_PROBE_PORT" in pod.output[-1]
            )


def test_a_directory_that_others_can_enter_is_refused(here: Path):
    here.mkdir(parents=True)
    here.chmod(0o755)
    with running(here, "true") as pod:
        assert pod.wait() == 2
        assert "can be entered by others" in pod.output[-1]


def test_two_pods_in_one_place_are_refused(here: Path):
    with running(here, "sleep", "600") as pod:
        pod.ask("/healthz")
        with running(here, "true") as second:
            assert second.wait() == 2
            assert f"process {pod.process.pid} runs a pod here already" in second.output[-1]


def test_the_probes_say_that_nothing_is_there_yet_and_other_paths_are_none(here: Path):
    with running(here, "sleep", "600") as pod:
        assert pod.problems() == ["Ray has not started its raylet yet"]
        assert pod.ask("/healthz")[1]["alive"] is True
        assert pod.ask("/metrics")[0] == 404


def test_what_the_runbook_says_shows_the_problems(here: Path):
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    (line,) = re.findall(r"^    kubectl exec POD -- (python .*8470.*)$", page, re.MULTILINE)
    with running(here, "sleep", "600") as pod:
        pod.ask("/healthz")
        _, *command = shlex.split(line.replace("8470", pod.url.rpartition(":")[2]))
        shown = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=30)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert json.loads(shown.stdout)["problems"] == ["Ray has not started its raylet yet"]


def test_drain_without_anything_to_drain_returns_and_the_pod_is_not_ready_any_more(here: Path):
    with running(here, "sleep", "600") as pod:
        pod.ask("/healthz")
        drained = drain(pod)
        assert (drained.returncode, drained.stderr) == (0, "")
        assert pod.problems() == ["this node is being drained, to be removed"]


def test_drain_where_no_pod_runs_says_so(here: Path):
    with running(here, "true") as pod:
        assert pod.wait() == 0
        drained = drain(pod)
        assert drained.returncode == 2
        assert "nothing to drain: `python -m echannel_ray.pod start` does not run here" in drained.stderr


def test_a_concentrator_that_does_not_answer_is_not_waited_for_longer_than_was_said(here: Path):
    with running(here, "sleep", "600", environment={"ECHANNEL_DRAIN_SECONDS": "0.5"}) as pod:
        pod.ask("/healthz")
        released = threading.Event()
        name = "some:concentrator-0123456789abcdef"
        stuck = Door(door_path(str(here), name), {"drain": lambda seconds: [released.wait(30), 4711][1:]})
        try:
            with subprocess.Popen([sys.executable, "-m", "echannel_ray.pod", "drain"], env=pod.environment) as draining:
                assert draining.wait(30) == 1
        finally:
            released.set()
            stuck.close()


def test_what_processes_did_not_manage_is_said(here: Path):
    with running(here, "sleep", "600") as pod:
        pod.ask("/healthz")
        door = Door(door_path(str(here), "some:concentrator-0123456789abcdef"), {"drain": lambda seconds: [4711]})
        drained = drain(pod)
        door.close()
        assert drained.returncode == 1
        assert "process 4711 did not leave in time: what it published may be lost" in drained.stderr


def test_a_door_answers_and_what_is_wrong_is_an_error(here: Path):
    here.mkdir(mode=0o700, parents=True)
    path = door_path(str(here), "a" * 300)
    door = Door(path, {"twice": lambda of: 2 * of})
    try:
        assert ask(path, "twice", 5, of=21) == 42
        with pytest.raises(Unanswered, match="KeyError"):
            ask(path, "thrice", 5, of=21)
        with pytest.raises(Unanswered, match="TypeError"):
            ask(path, "twice", 5)
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(path)
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"error" in rude.recv(4096)
        assert ask(path, "twice", 5, of=1) == 2
    finally:
        door.close()
    with pytest.raises(FileNotFoundError):
        ask(path, "twice", 5, of=1)
