"""The command that a pod runs, as a child of this process, which may be the first of its container: all that is left
over in it becomes a child of this process, and is reaped or ended here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import time
from collections.abc import Sequence
from typing import Final

from echannel_ray.pod import processes
from echannel_ray.pod.settings import CommandRefused

COMMAND_VARIABLE: Final = "KUBERAY_GEN_RAY_START_CMD"
SIGNALS: Final = (
    signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_SHELL: Final = ("/bin/bash", "-c", "--")
_PR_SET_CHILD_SUBREAPER: Final = 36
_LEFTOVERS_SECONDS: Final = 5.0
# What Python ignores, and other programs expect to be ended by.
_DEFAULTS: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def command_of(arguments: Sequence[str]) -> list[str]:
    """The command that was given, or the one that KubeRay made."""
    if arguments:
        return [*arguments]
    made = os.environ.get(COMMAND_VARIABLE, "")
    if not made.strip():
        raise CommandRefused(
            f"there is no command: give one behind `--`, or have KubeRay set {COMMAND_VARIABLE}, which it does in pods "
            'with the annotation ray.io/overwrite-container-cmd: "true"'
        )
    return [*_SHELL, made]


class Child:
    """The pod's command, once it runs."""

    def __init__(self, command: list[str]) -> None:
        """Start it. `SIGNALS` must be blocked in this process, and are not in the child."""
        if os.getpid() != 1:
            # What the first process of a container is anyhow: Ray's workers may outlive who started them.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._is_shell = tuple(command[: len(_SHELL)]) == _SHELL
        try:
            self.pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=(), setsigdef=_DEFAULTS)
        except OSError as error:
            raise CommandRefused(
                f"the command {shlex.join(command)!r} can't be run: {error.strerror}; give one that is in the image, "
                "as in `python -m echannel_ray.pod start -- ray start --head --block`"
            ) from None
        self.exit_code: int | None = None

    def send(self, number: int) -> None:
        """Pass a signal on to the command: a shell that waits for it would not."""
        targets = [self.pid]
        if self._is_shell and processes.name(self.pid) in ("bash", "sh"):
            targets = processes.children(self.pid) or targets
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def reap(self) -> None:
        """Take note of all processes that have ended; `exit_code` says if the command is one of them."""
        with contextlib.suppress(ChildProcessError):  # there are none
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self.exit_code = code if code >= 0 else 128 - code  # as shells say that a signal ended it

    def end_leftovers(self) -> None:
        """The command has ended: end what it has left, and wait for that."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes.descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + _LEFTOVERS_SECONDS
            while processes.descendants(os.getpid()) and (left := deadline - time.monotonic()) > 0:
                signal.sigtimedwait({signal.SIGCHLD}, left)
                self.reap()
        self.reap()
