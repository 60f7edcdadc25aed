"""A zygote as its producer sees it: started once per set of modules, and asked for sandboxes ahead of need.

Those in reserve are shut in already, with the memory that was asked for last: who takes one has to send it a pickle,
and nothing else. They take a millisecond or two each to be made, which nobody waits for.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from echannel_ray.sandbox import messages
from echannel_ray.sandbox.area import Area, ProgressPage
from echannel_ray.sandbox.owner import SandboxUnavailable
from echannel_ray.sandbox.zygote import SPARE

# One for a modulator, one for that which takes its place by a `reset` a moment later, and one while others are made,
# which takes milliseconds. A spare has 3 MB of its own.
RESERVE: Final = 3

# Python reads `.pth` files itself, which an editable installation of this package needs; `-I`: nothing of the
# environment, and nothing of the current directory.
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])['path'];"
    "from echannel_ray.sandbox import zygote; zygote.main()"
)
# What the dynamic linker and the C library need. And no library may start threads: a process that forks has one.
_KEPT: Final = ("LD_LIBRARY_PATH", "TZ")
_ENVIRONMENT: Final = {
    "LANG": "C.UTF-8",
    "TZ": ":/etc/localtime",  # spelled out, it is read once
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # they are looked for in files
}


@dataclass
class Spare:
    """A process that waits to be a sandbox: its socket, a descriptor of the process, its number, and the memory that it
    shares with who takes it. It shuts itself in when it is told how much memory it may have.
    """

    socket: socket.socket
    process: int
    pid: int
    area: Area
    progress: ProgressPage
    max_memory_bytes: int = 0  # 0: nobody has told it yet

    def shut_in(self, max_memory_bytes: int) -> None:
        """Have it shut itself in, for good; it says `Ready`, which whoever takes it reads."""
        if not self.max_memory_bytes:
            self.max_memory_bytes = max_memory_bytes
            start = messages.frame(messages.Start(max_memory_bytes))
            given = array.array("i", [self.area.descriptor, self.progress.descriptor])
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, given)
            # A few bytes, the first on this socket: there is room for them. One that has ended is found out later.
            with contextlib.suppress(OSError):
                self.socket.sendmsg([start], [rights], socket.MSG_NOSIGNAL)
            for descriptor in given:
                os.close(descriptor)


class Nursery:
    """The spare sandboxes for one set of modules. Opened and read on the warden's thread; any thread takes spares."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules
        self._changed = threading.Condition()
        self._spares: deque[Spare] = deque()
        self._ordered = 0
        self._waiting = 0
        self._max_memory_bytes = 0  # that was asked for last
        self._control: socket.socket | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._reason = "the zygote ended"
        self.is_over = False

    def fileno(self) -> int:
        """The descriptor of the control socket; -1 before it is there."""
        return -1 if self._control is None else self._control.fileno()

    def open(self) -> None:
        """Start the zygote. It ends with the thread that calls this."""
        control, theirs = socket.socketpair()
        with theirs:
            settings = {
                "path": [os.path.abspath(each) for each in sys.path],  # the zygote is elsewhere
                "modules": self._modules,
                "control": theirs.fileno(),
                "parent": os.getpid(),
            }
            environment = _ENVIRONMENT | {name: os.environ[name] for name in _KEPT if name in os.environ}
            try:
                self._zygote = subprocess.Popen(
                    [sys.executable, "-I", "-c", _PROGRAM, json.dumps(settings)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # what a terminal signals is the producer's business
                )
            except OSError as error:
                self._reason = f"{sys.executable} can't be started: {error}"
        with self._changed:
            self._control = control
            if self._zygote is None:
                self.is_over = True
            self._order()
            self._changed.notify_all()

    def take(self, max_memory_bytes: int, timeout: float) -> Spare:
        """A spare that is shut in, or about to be; waits for one. `SandboxUnavailable` where none comes."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            self._max_memory_bytes = max_memory_bytes
            try:
                while (spare := self._fitting(max_memory_bytes)) is None:
                    if self.is_over:
                        raise SandboxUnavailable(self._reason)
                    self._order()
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise SandboxUnavailable(f"the zygote made none within {timeout:g} s")
            finally:
                self._waiting -= 1
        spare.shut_in(max_memory_bytes)
        return spare

    def _fitting(self, max_memory_bytes: int) -> Spare | None:
        """The next one that lives and may have so much memory; others are let go."""
        while self._spares:
            spare = self._spares.popleft()
            if spare.max_memory_bytes in (0, max_memory_bytes) and not _has_ended(spare.process):
                return spare
            discard(spare)
        return None

    def refill(self) -> None:
        """Have spares in reserve."""
        with self._changed:
            self._order(RESERVE)

    def on_readable(self) -> None:
        """Take in a spare that has come, or that the zygote has ended."""
        assert self._control is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 2)
        except OSError:
            data, descriptors = b"", []
        with self._changed:
            if data == SPARE and len(descriptors) == 2:
                self._ordered -= 1
                self._take_in(socket.socket(fileno=descriptors[0]), descriptors[1])
            else:
                if data:
                    self._reason = data[1:].decode(errors="replace")
                self.is_over = True
                self._drop_spares()
            self._changed.notify_all()

    def _take_in(self, connected: socket.socket, process: int) -> None:
        try:
            spare = Spare(connected, process, _pid(process), Area(), ProgressPage())
        except OSError as error:
            connected.close()
            os.close(process)
            self._reason = f"the kernel refuses sealed shared memory: {error}"
            self.is_over = True
            self._drop_spares()
            return
        # One that somebody waits for is shut in by who takes it: several may wait, with other limits.
        if self._waiting <= len(self._spares):
            spare.shut_in(self._max_memory_bytes)
        self._spares.append(spare)

    def close(self) -> None:
        """End the zygote, and with it its sandboxes."""
        with self._changed:
            self.is_over = True
            self._drop_spares()
            self._changed.notify_all()
        if self._control is not None:
            self._control.close()
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.wait()

    def abandon(self) -> None:
        """Close what was inherited, in the child of a fork."""
        self.is_over = True
        self._drop_spares()
        if self._control is not None:
            self._control.close()

    def _order(self, reserve: int = 0) -> None:
        missing = self._waiting + reserve - len(self._spares) - self._ordered
        if missing > 0 and self._control is not None and not self.is_over:
            self._ordered += missing
            try:
                self._control.sendall(b"s" * missing)
            except OSError:
                pass  # it has ended, which the warden will see

    def _drop_spares(self) -> None:
        while self._spares:
            discard(self._spares.popleft())


def discard(spare: Spare) -> None:
    """Let go a spare that nobody wants: it ends with its socket."""
    spare.socket.close()
    os.close(spare.process)
    spare.area.close()
    spare.progress.close()
    if not spare.max_memory_bytes:
        os.close(spare.area.descriptor)
        os.close(spare.progress.descriptor)


def _has_ended(process: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _pid(process: int) -> int:
    """The number of a process in this process's own namespace."""
    with open(f"/proc/self/fdinfo/{process}") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "Pid":
                return int(value)
    return 0
