"""How far the consumers of what is derived from a log have come: where a log host goes on whose predecessor died."""

from __future__ import annotations

import threading
import time
from typing import Final

from echannel_ray.logs.store import Store
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.producers.drain import Drain

# Kept with the log as a group's position is, under a name that no group of a user's has.
_NAME: Final = "\0derived-"
_NOTE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05
# Nothing is published for so long at most, until modulators have seen all that was. They are not flushed for this: what
# they keep to themselves to make something of it is lost with the process in any case.
_CALM_SECONDS: Final = 0.2
_RETURN_SECONDS: Final = 10.0  # for which a new log host expects the consumers that its predecessor had


def is_progress(group: str) -> bool:
    """Whether this is no group, but a note of ours."""
    return group.startswith(_NAME)


class Progress:
    """One per producer beside a log, for the thread that publishes again what it holds: all before `noted` was emitted
    by modulators, and has been received by the processes of the consumers.
    """

    def __init__(self, sink: ConsumerSink, store: Store) -> None:
        self._sink = sink
        self._store = store
        publisher = sink.publisher
        life = f"{_NAME}{publisher.incarnation}-"
        self._name = f"{life}{publisher.derived}"
        for name in filter(is_progress, store.groups()):
            if not name.startswith(life):  # of a namespace that was stopped, with all its consumers
                store.drop_group(name)
        self.noted = store.group(self._name)
        self._expected_until = 0.0 if self.noted is None else time.monotonic() + _RETURN_SECONDS
        self._due_at = 0.0
        self._noting = threading.Lock()
        self._has_left = False
        self._drain: Drain | None = None  # of all before `_drained`
        self._drained = 0

    @property
    def is_expecting(self) -> bool:
        """Whether the consumers of a predecessor may still come."""
        return time.monotonic() < self._expected_until

    def begin(self, at: int) -> None:
        """There are consumers, and this comes next."""
        self._expected_until = 0.0
        if self.noted is None:
            self._note(at)

    def end(self) -> None:
        """There are none any more: whoever comes gets what is new."""
        if self.noted is not None:
            self._store.drop_group(self._name)
            self.noted = self._drain = None

    def leave(self) -> None:
        """As `end`, and for good: whoever has the same name next begins anew. Any thread may call it."""
        with self._noting:
            self._has_left = True
            if self.noted is not None:
                self._store.drop_group(self._name)
                self.noted = None

    def published(self, at: int) -> None:
        """All before this was published again: look, now and then, whether it has arrived."""
        now = time.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + _LOOK_SECONDS
        if self._drain is None:
            if at != self.noted:
                self._begin_drain(at)
        elif self._drain.has_ended():
            self._drain = None
            self._note(self._drained)

    def _note(self, at: int) -> None:
        with self._noting:
            if self._has_left:
                return
            self._store.set_group(self._name, at)
            self.noted = at
        self._due_at = time.monotonic() + _NOTE_SECONDS

    def _begin_drain(self, at: int) -> None:
        sink, endpoint = self._sink, self._sink.endpoint
        with endpoint.lock:
            sink.absorb()
        sink.branches.advance()
        until = time.monotonic() + _CALM_SECONDS
        with endpoint.lock:
            while self._modulators_are_busy():
                left = until - time.monotonic()
                if left <= 0:
                    self._due_at = time.monotonic() + _NOTE_SECONDS
                    return
                endpoint.room.wait(min(left, _LOOK_SECONDS))
            self._drain, self._drained = Drain(sink, None), at
            self._drain.begin()

    def _modulators_are_busy(self) -> bool:
        return any(
            branch.outlet.backlog_bytes or (branch.host is not None and branch.host.waiting)
            for branch in self._sink.branches
        )
