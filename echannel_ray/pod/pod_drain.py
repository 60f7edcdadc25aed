"""Draining the node of this pod: its concentrators, of all namespaces, are told at their doors."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Final

from echannel_ray.transport.door import Unanswered, ask, doors, part_of

_CONCENTRATOR: Final = "concentrator-"  # how their names go on behind the namespace's
_AGAIN_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 5.0  # beyond what it may take


class PodDrain:
    """The draining of one pod's node: whoever asks first begins it, and all get its outcome."""

    def __init__(self, directory: str, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self._lock = threading.Lock()
        self._outcome: list[str] | None = None
        self.has_begun = False

    def run(self) -> list[str]:
        """What was not handed over in time; nothing, where all was. It blocks."""
        self.has_begun = True
        with self._lock:
            if self._outcome is None:
                self._outcome = self._drain(time.monotonic() + self._seconds)
            return self._outcome

    def _drain(self, deadline: float) -> list[str]:
        found = [door for door in doors(self._directory) if f":{_CONCENTRATOR}" in part_of(door)]
        if not found:
            return []
        with ThreadPoolExecutor(len(found)) as pool:
            return [*chain.from_iterable(pool.map(self._drain_at, found, repeat(deadline)))]

    def _drain_at(self, door: str, deadline: float) -> list[str]:
        name = part_of(door)
        problem = f"{name} was not drained in time"
        while (left := deadline - time.monotonic()) > 0:
            try:
                pids = ask(door, "drain", left + _ANSWER_SECONDS, seconds=left)
            except FileNotFoundError:
                return []  # it has retired
            except (ConnectionRefusedError, Unanswered) as error:  # it is being started again, and goes on then
                problem = f"{name} was not drained: {error}"
                time.sleep(_AGAIN_SECONDS)
            else:
                return [f"{name}: process {pid} did not leave in time: what it published may be lost" for pid in pids]
        return [problem]
