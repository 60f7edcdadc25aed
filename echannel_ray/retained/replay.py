"""What a log holds from some place on, and then what comes, for one consumer (or group) behind modulators.

Rules:

* A replay is a derived channel that has no modulator (`REPLAY`); modulators are derived from it. Each is its consumer's
  own, since what has been replayed for one can't be taken back for another.
* It begins when its first consumer is there: modulators are made ready before.
* It never joins the others that are derived from the log: it reads on, so there is no place where two have to meet.
* It ends with its derived channel, for good: one that is derived by the same key soon after has a replay of its own.
"""

from __future__ import annotations

import threading

from typing_extensions import override

from echannel_ray.core.messages import Membership
from echannel_ray.logs.positions import Position
from echannel_ray.logs.store import Store
from echannel_ray.producers.publisher import Publisher
from echannel_ray.retained.log_feed import LOOK_SECONDS, LogFeed


class Replay(LogFeed):
    """One per log and replay; only its log host knows of it."""

    def __init__(self, store: Store, publisher: Publisher, start: str) -> None:
        super().__init__(store, publisher)
        self._is_consumed = threading.Event()
        self._has_ended = False
        publisher.enter()
        noted = self._progress.noted
        self._begin(self._offset(start) if noted is None else noted)

    def _offset(self, start: str) -> int:
        if start == "earliest":
            return self._store.first
        return dict(Position.parse(start).marks).get(self._store.log, 0)  # a log without a mark came after it

    @override
    def foresee(self, membership: Membership) -> None:
        # The next replay of this key must not go on where this one was.
        if self._is_gone_from(membership):
            self._progress.leave()

    def _is_gone_from(self, membership: Membership) -> bool:
        return self.publisher.derived not in {each.key for each in membership.derived}

    @override
    def follow(self, membership: Membership) -> None:
        super().follow(membership)
        if self._is_gone_from(membership):
            self._has_ended = True
            self._sink.hosts_modulators = False  # those of the next replay of this key, which may come before we look
        if self._has_ended or any(branch.outlet.has_consumers for branch in self._sink.branches):
            self._is_consumed.set()

    @override
    def _run(self) -> None:
        while self._is_open and not self._has_ended:
            if self._is_consumed.wait(LOOK_SECONDS):
                self._go_further(self._store.wait(self._at, LOOK_SECONDS))
        if self._has_ended:
            self.publisher.retire()
