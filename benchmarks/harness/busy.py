"""A thread that is as busy as one that publishes at full speed, and what it notices of others in its process."""

from __future__ import annotations

import threading
import time

from echannel_ray.benchmarks.harness.records import Reading
from echannel_ray.core.gather import PackColumns
from echannel_ray.formats.packs import encode_pack
from echannel_ray.records.writer import Writer
from echannel_ray.schemas import types

PACK_EVENTS = 64
LEAST_STALL_SECONDS = 20e-6


class Busy:
    """Encodes events and packs from its start to `stop`."""

    def __init__(self) -> None:
        self._stalls: list[tuple[float, float]] = []  # when they began and ended
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def longest_stall_seconds(self, since: float, until: float) -> float:
        """Of the pauses between two events, the part within this time (by `perf_counter`). Ask when it was stopped."""
        return max([min(end, until) - max(began, since) for began, end in self._stalls], default=0.0)

    def _run(self) -> None:
        write, event, pack = Writer(Reading, types.schema_of(Reading)), Reading(50.0), list[bytes]()
        is_over, clock = self._over.is_set, time.perf_counter
        last = clock()
        while not is_over():
            pack.append(write(event))
            if len(pack) == PACK_EVENTS:
                encode_pack(PackColumns([], [1], [1], [PACK_EVENTS], [1], b"", 0, pack), 0, last)
                pack.clear()
            now = clock()
            if now - last > LEAST_STALL_SECONDS:
                self._stalls.append((last, now))
            last = now
