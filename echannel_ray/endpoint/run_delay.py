"""For how long the thread that publishes was kept from running, since others had the processor.

Linux counts that for each thread. Where a source shares a core with its consumers, it has it for a small part of the
time, however fast it publishes: by the clock alone it would seem to have little to do.
"""

from __future__ import annotations

import os
import threading

# So many packs are sent by others before one of them is asked instead: to ask another thread is to open a file.
_SETTLED = 16


class RunDelay:
    """The delays of the thread that sends most packs of an endpoint; whoever calls holds the endpoint's lock."""

    __slots__ = ("_before", "_descriptor", "_others", "_thread", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0  # all that were seen, of all threads
        self._thread = 0
        self._descriptor = -1  # of what the kernel says of it
        self._before = 0
        self._others = _SETTLED  # packs that were sent by other threads: the first one is asked at once

    def __del__(self) -> None:
        self.close()

    def look(self) -> float:
        """The calling thread has sent a pack: the seconds up to now."""
        if self._thread != threading.get_ident():
            self._others += 1
            if self._others > _SETTLED:
                self._ask()
        if self._descriptor >= 0:
            delay = self._read()
            self.seconds += max(0, delay - self._before) * 1e-9
            self._before = delay
        return self.seconds

    def _ask(self) -> None:
        self.close()
        self._others = 0
        self._thread = threading.get_ident()
        try:
            self._descriptor = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            return  # a kernel that does not count it
        self._before = self._read()

    def _read(self) -> int:
        try:
            return int(os.pread(self._descriptor, 80, 0).split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended; another one may get its name
            self.close()
            self._thread = 0
            return self._before

    def close(self) -> None:
        """Ask nobody any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
