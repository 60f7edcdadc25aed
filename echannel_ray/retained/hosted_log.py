"""A log of this node, and the producer that stands for it in its channel's books."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from echannel_ray.core.messages import Definition
from echannel_ray.logs.entries import Chosen, Committed, NewEntry
from echannel_ray.logs.store import Store
from echannel_ray.retained.derived_feed import DerivedFeed
from echannel_ray.retained.log_server import LogServer


@dataclass(eq=False)
class HostedLog:
    """One per log that is kept here."""

    definition: Definition
    log_server: LogServer
    feed: DerivedFeed
    path: Path | None  # where it is on disk, if it is there

    @property
    def store(self) -> Store:
        """What it holds."""
        return self.log_server.store

    def append(self, entries: Sequence[NewEntry]) -> None:
        """Log what came from outside, and count it: it has no other producer."""
        self.store.append(entries)
        self._count(sum(entry.count for entry in entries), sum(len(entry.data) for entry in entries))

    def commit(self, write: str, chosen: Sequence[Chosen]) -> Committed:
        """Log what was staged for a write from outside."""
        done = self.store.commit(write, chosen, time.time())
        if not done.repeated:
            self._count(done.next - done.first, done.size_bytes)
        return done

    def _count(self, events: int, size_bytes: int) -> None:
        self.feed.client_events += events
        self.feed.client_bytes += size_bytes
