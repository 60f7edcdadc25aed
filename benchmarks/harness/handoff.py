"""The end of a handoff: an actor that takes a channel's rows as record batches, and the gateway of its node."""

from __future__ import annotations

import threading
import time
from typing import Any

import ray

import echannel_ray as ec
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.field import SHUTDOWN_SECONDS, answer, start
from echannel_ray.benchmarks.harness.parties import Party

ARRIVAL_SECONDS = 110.0


class BatchTaker(Party):
    """Counts the rows of one channel at a time."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._namespace = namespace
        self._changed = threading.Condition()
        self._rows, self._first_at, self._last_at = 0, 0.0, 0.0

    def gateway(self) -> str:
        """The endpoint of this node's."""
        return str(ec.connect(namespace=self._namespace).gateway())

    def open(self, name: str, retain: ec.Retention) -> None:
        """Make a channel."""
        ec.channel(name, retain=retain)

    def delete(self, name: str) -> None:
        """Forget a channel, and what its log has on disk."""
        ec.channel(name).delete()

    def take(self, name: str) -> None:
        """Count what comes on a channel from now on."""
        ec.channel(name).subscribe(self._handle, batches="arrow")

    def _handle(self, batch: Any) -> None:
        now = time.monotonic()
        with self._changed:
            self._first_at = self._first_at or now
            self._last_at = now
            self._rows += batch.num_rows
            self._changed.notify_all()

    def await_rows(self, rows: int) -> tuple[float, float]:
        """Until so many came since the last call: when the first batch was here, and the last."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._rows >= rows, ARRIVAL_SECONDS):
                raise TimeoutError(f"only {self._rows} of {rows} rows came")
            times = self._first_at, self._last_at
            self._rows, self._first_at = 0, 0.0
            return times


class Handoff(Closing):
    """A namespace with one such actor."""

    def __init__(self, namespace: str) -> None:
        self._actor = start(BatchTaker, namespace)
        self.endpoint = str(answer(self._actor.gateway.remote()))
        self._names: list[str] = []

    def open(self, name: str, retain: ec.Retention) -> None:
        """Make a channel, which goes with the namespace, as does its log."""
        answer(self._actor.open.remote(name, retain))
        self._names.append(name)

    def take(self, name: str) -> None:
        """Have the actor count a channel's rows."""
        answer(self._actor.take.remote(name))

    def await_rows(self, rows: int) -> tuple[float, float]:
        """Until the actor has so many: when it had the first batch, and when the last."""
        first_at, last_at = answer(self._actor.await_rows.remote(rows))
        return float(first_at), float(last_at)

    def concentrator_pids(self) -> list[int]:
        """The ids of the concentrators' processes."""
        return [int(pid) for pid in answer(self._actor.concentrators.remote())]

    def close(self) -> None:
        """Stop the namespace."""
        try:
            for name in self._names:
                answer(self._actor.delete.remote(name), SHUTDOWN_SECONDS)
            answer(self._actor.shutdown.remote(), SHUTDOWN_SECONDS)
        finally:
            ray.kill(self._actor)
