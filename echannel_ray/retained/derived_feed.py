"""What a log holds, published again for those who consume it behind modulators: these work beside the log.

When its log host dies, the next one goes on where all consumers are known to have what was published (see `Progress`),
so that they lose nothing, and may get again what they had last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.core.messages import REPLAY, Membership, OpenedLog
from echannel_ray.logs.entries import Entry
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.producers.outlet import Encoded
from echannel_ray.producers.pending_deliveries import PendingDelivery
from echannel_ray.producers.publisher import Publisher
from echannel_ray.retained.log_feed import LOOK_SECONDS, LogFeed
from echannel_ray.retained.log_server import LogServer
from echannel_ray.retained.progress import is_progress
from echannel_ray.retained.replay import Replay


class DerivedFeed(LogFeed):
    """One per log: it publishes what is logged, from the moment on at which somebody derives from it."""

    def __init__(self, log_server: LogServer, publisher: Publisher, deleted: Callable[[], None]) -> None:
        """`deleted` is called when the channel was."""
        super().__init__(log_server.store, publisher)
        self.log = OpenedLog(log_server.store.log, log_server.opened_at)
        self._log_server = log_server
        self._deleted = deleted
        self._replays: set[str] = set()
        self._delivered: set[tuple[str, int]] = set()  # producers, and their numbers: who waits for the event
        self.client_events = 0  # that came by a gateway
        self.client_bytes = 0
        log_server.derives = self._derives

    @override
    def follow(self, membership: Membership) -> None:
        if membership.deleted or membership.incarnation != self.publisher.incarnation:
            self._deleted()
        else:
            direct = [each for each in membership.consumers if not each.derived]
            self._log_server.members_are({(each.endpoint, each.subscription): each.group for each in direct})
        # Who reads the log itself gets nothing from here.
        derived = tuple(each for each in membership.consumers if each.derived)
        super().follow(replace(membership, consumers=derived))
        noted = self._progress.noted
        if (membership.derived or noted is not None) and self._thread is None and not self._sink.stream.deleted:
            self._begin(self._store.next if noted is None else noted)

    @override
    def foresee(self, membership: Membership) -> None:
        # For each replay that is new a producer is made, which ends by itself.
        is_gone = membership.deleted or membership.incarnation != self.publisher.incarnation
        wanted = {} if is_gone else {each.key: each for each in membership.derived if each.shipment.tier == REPLAY}
        self._replays &= wanted.keys()
        for key in wanted.keys() - self._replays:
            self._replays.add(key)
            Replay(self._store, self.publisher.beside(key), wanted[key].shipment.start)

    @override
    def totals(self, published: dict[str, Any]) -> dict[str, Any]:
        # What a gateway's clients have put into the log has no other producer to count it.
        own = {"events_published": self.client_events, "bytes_published": self.client_bytes}
        return {**super().totals(published), **own}

    @override
    def counters(self, published: dict[str, Any]) -> dict[str, Any]:
        store = self._store
        groups = {name: group for name, group in store.groups().items() if not is_progress(name)}
        return {
            **self.totals(published),
            "retained_events": store.next - store.first,
            "retained_bytes": store.size_bytes,
            "staged_bytes": store.staged_bytes,
            "lag": {name: store.next - max(at, store.first) for name, (at, _) in groups.items()},
        }

    @override
    def ends(self) -> dict[str, int]:
        return {self._store.log: self._store.next}

    @override
    def _run(self) -> None:
        while self._is_open:
            has_more = self._store.wait(self._at, LOOK_SECONDS)
            end = self._store.next  # before the look at the branches: one that is made now wants what comes now
            if self._sink.has_branches:
                self._go_further(has_more)
            elif self._progress.is_expecting:
                self._store.wait(end, LOOK_SECONDS)
            else:
                self._progress.end()
                self._resolve_rest([])
                self._at = end

    @override
    def _tell_missing(self, first: int, stop: int, why: str) -> errors.EventsMissing:
        missing = super()._tell_missing(first, stop, why)
        self._resolve_rest([("modulators", str(missing))])
        return missing

    @override
    def _publish_one(self, entry: Entry, encoded: Encoded, is_last: bool) -> None:
        # Somebody may wait for it.
        key = (entry.producer, entry.sequence + entry.count - 1)
        if is_last and key in self._delivered:
            self._deliver(key, encoded)
        else:
            super()._publish_one(entry, encoded, is_last)

    def _deliver(self, key: tuple[str, int], encoded: Encoded) -> None:
        self._delivered.discard(key)
        delivery: PendingDelivery = self.publisher.publish_encoded(NOTHING, None, encoded, deliver=True)

        def done() -> None:
            handled, failures = delivery.outcomes()
            self._log_server.derived_handled(*key, handled, failures)

        with self._sink.lock:
            delivery.when_done(done)

    def _resolve_rest(self, failures: list[tuple[str, str]]) -> None:
        """What was delivered, and modulators do not get after all: whoever waits for that must not wait for good."""
        while self._delivered:
            self._log_server.derived_handled(*self._delivered.pop(), 0, failures)

    def _derives(self, producer: str, last: int) -> bool:
        """An event is about to be logged, and somebody waits for it: whether modulators will get it."""
        if not self._sink.has_branches:
            return False
        self._delivered.add((producer, last))
        return True
