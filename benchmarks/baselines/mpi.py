"""mpi4py: two processes that send records straight to each other, as derived datatypes, or as doubles where they are
nothing else.

As its users do where speed counts: `Send` and `Recv` of arrays in place, and not `send` and `recv` of pickled objects.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from echannel_ray.benchmarks import extras
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.records import count_of

RANK = Path(__file__).with_name("mpi_rank.py")
ANSWER_SECONDS = 60.0
EXIT_SECONDS = 5.0
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
MISSING = None if MPIEXEC and extras.is_installed("mpi4py") else extras.not_installed("mpi4py or mpich")


class MpiPair(Closing):
    """The two ranks, which wait outside MPI for what they are asked."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mpi-"))
        address = f"{folder}/ranks"
        with Listener(address) as listener:
            # Its own socket has no time-out that could be set: without a rank within this time, there will be none.
            listener._listener._socket.settimeout(ANSWER_SECONDS)
            self._process = subprocess.Popen(
                [str(MPIEXEC), "-n", "2", sys.executable, str(RANK), address],
                stdin=subprocess.DEVNULL,
            )
            self._stack.callback(self._end)
            ranks: dict[int, tuple[int, Connection]] = {}
            try:
                for _ in range(2):
                    link = self._stack.enter_context(listener.accept())
                    rank, pid = self._answer(link)
                    ranks[rank] = pid, link
            except BaseException:
                self.close()
                raise
        self.source_pids, self.other_pids = [ranks[0][0]], [ranks[1][0]]
        self._links = [ranks[0][1], ranks[1][1]]

    def rate(self, dtype: Any, count: int, in_bulk: bool = False) -> float:
        """Records of a dtype a second, one in a message; in bulk, whole arrays of them."""
        each = count_of(dtype) if in_bulk else 1
        messages = max(1, count // each)
        return messages * each / self._seconds("one way", dtype, messages, each)

    def round_trip_seconds(self, dtype: Any, count: int) -> float:
        """Seconds from sending a record until one of its kind has come back."""
        return self._seconds("there and back", dtype, count, 1) / count

    def _seconds(self, way: str, dtype: Any, messages: int, each: int) -> float:
        for link in self._links:
            link.send((way, dtype, count_of(dtype), messages, each))
        return max(float(self._answer(link)) for link in self._links)

    @staticmethod
    def _answer(link: Connection) -> Any:
        if not link.poll(ANSWER_SECONDS):
            raise TimeoutError(f"an MPI process gave no answer for {ANSWER_SECONDS:.0f} s")
        return link.recv()

    def _end(self) -> None:
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Let the ranks end, which they do when their links close, and see that they have."""
        self._stack.close()
