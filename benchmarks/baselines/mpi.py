"""mpi4py with derived datatypes: two processes that send records straight to each other, where MPI is installed.

It is no dependency. ECHANNEL_BENCH_MPI is the Python of an environment that has `mpi4py` and an MPI (PyPI has `mpich`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

RANK = Path(__file__).with_name("mpi_rank.py")
ANSWER_SECONDS = 60.0
EXIT_SECONDS = 5.0
MISSING = "no MPI here: set ECHANNEL_BENCH_MPI to a Python that has mpi4py"


def command() -> tuple[str, str] | None:
    """`mpiexec` and the Python to run, where there are both."""
    python = os.environ.get("ECHANNEL_BENCH_MPI")
    if python is None:
        python = sys.executable if importlib.util.find_spec("mpi4py") is not None else None
    if python is None:
        return None
    mpiexec = shutil.which("mpiexec", path=str(Path(python).parent)) or shutil.which("mpiexec")
    return (mpiexec, python) if mpiexec else None


class MpiPair:
    """The two ranks, which wait outside MPI for what they are asked."""

    def __init__(self, mpiexec: str, python: str) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mpi-"))
        address = f"{folder}/ranks"
        with Listener(address) as listener:
            # Its own socket has no time-out that could be set: without a rank within this time, there will be none.
            listener._listener._socket.settimeout(ANSWER_SECONDS)
            self._process = subprocess.Popen(
                [mpiexec, "-n", "2", python, str(RANK), address],
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

    def rate(self, dtype: Any, count: int) -> float:
        """Records of a dtype a second."""
        for link in self._links:
            link.send((dtype, count))
        return count / max(float(self._answer(link)) for link in self._links)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
