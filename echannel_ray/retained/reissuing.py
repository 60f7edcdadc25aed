"""What a log holds, published again for those who consume it behind modulators: these work beside the log.

When its keeper dies, the next one goes on where all consumers are known to have what was published (see `Progress`), so
that they lose nothing, and may get again what they had last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from echannel_ray import errors
from echannel_ray.core.messages import REPLAY, KeptLog, Membership
from echannel_ray.core.packing import Packing
from echannel_ray.logs.entries import Entry
from echannel_ray.logs.store import Store
from echannel_ray.retained.log_publisher import LOOK_SECONDS, LogPublisher
from echannel_ray.retained.progress import Progress, is_progress
from echannel_ray.retained.replaying import Replayer
from echannel_ray.runtime.deliveries import PendingDelivery
from echannel_ray.runtime.local_source import NOTHING

Settled: TypeAlias = Callable[[str, int, int, list[tuple[str, str]]], None]


class Reissuer(LogPublisher):
    """One per log: it publishes what is logged, from the moment on at which somebody derives from it."""

    def __init__(
        self,
        *arguments: Any,
        kept: KeptLog,
        store: Store,
        told: Callable[[Membership, bool], None],
        settled: Settled,
        **keywords: Any,
    ) -> None:
        """`told` is called with each membership, and whether the channel was deleted; for `settled` see `derives`."""
        super().__init__(*arguments, store=store, **keywords)
        self.log = kept
        self._told = told
        self._settled = settled
        self._progress = Progress(self, store)
        self._replays: set[str] = set()
        self._delivered: set[tuple[str, int]] = set()  # producers, and their numbers: who waits for the event
        self.client_events = 0  # that came by a gateway
        self.client_bytes = 0

    def apply(self, membership: Membership) -> None:
        """See `Publisher`. Who reads the log itself gets nothing from here."""
        is_other = membership.incarnation != self.incarnation
        self._told(membership, membership.deleted or is_other)
        derived = tuple(each for each in membership.consumers if each.derived)
        super().apply(replace(membership, consumers=derived))
        noted = self._progress.noted
        if (membership.derived or noted is not None) and self._thread is None and not self.stream.deleted:
            self._begin(self._store.next if noted is None else noted)

    def foresee(self, membership: Membership) -> None:
        """See `Publisher`. For each replay that is new a producer is made, which ends by itself."""
        is_gone = membership.deleted or membership.incarnation != self.incarnation
        wanted = {} if is_gone else {each.key: each for each in membership.derived if each.shipment.tier == REPLAY}
        self._replays &= wanted.keys()
        for key in wanted.keys() - self._replays:
            self._replays.add(key)
            Replayer(
                self.endpoint, self.channel, self.incarnation, "block", self.stream.window_bytes, Packing(), key,
                records=self.records, store=self._store, start=wanted[key].shipment.start,
            )  # fmt: skip

    def totals(self) -> dict[str, Any]:
        """See `Publisher`. What a gateway's clients have put into the log has no other producer to count it."""
        own = {"events_published": self.client_events, "bytes_published": self.client_bytes}
        return {**super().counters(), **own}

    def counters(self) -> dict[str, Any]:
        """See `Publisher`."""
        store = self._store
        groups = {name: group for name, group in store.groups().items() if not is_progress(name)}
        return {
            **self.totals(),
            "retained_events": store.next - store.first,
            "retained_bytes": store.size_bytes,
            "staged_bytes": store.staged_bytes,
            "lag": {name: store.next - max(at, store.first) for name, (at, _) in groups.items()},
        }

    def ends(self) -> dict[str, int]:
        """See `Publisher`."""
        return {**super().ends(), self._store.log: self._store.next}

    def _run(self) -> None:
        while self._is_open:
            has_more = self._store.wait(self._at, LOOK_SECONDS)
            end = self._store.next  # before the look at the branches: one that is made now wants what comes now
            if self.has_branches:
                self._progress.begin(self._at)
                if has_more:
                    self._publish_some()
                self._progress.published(self._at)
            elif self._progress.is_expecting:
                self._store.wait(end, LOOK_SECONDS)
            else:
                self._progress.end()
                self._settle_rest([])
                self._at = end

    def _tell_missing(self, first: int, stop: int, why: str) -> errors.EventsMissing:
        missing = super()._tell_missing(first, stop, why)
        self._settle_rest([("modulators", str(missing))])
        return missing

    def _publish_one(self, entry: Entry, encoded: tuple[int, Any, int], is_last: bool) -> None:
        """See `LogPublisher`. Somebody may wait for it."""
        key = (entry.producer, entry.sequence + entry.count - 1)
        if is_last and key in self._delivered:
            self._deliver(key, encoded)
        else:
            super()._publish_one(entry, encoded, is_last)

    def _deliver(self, key: tuple[str, int], encoded: tuple[int, Any, int]) -> None:
        self._delivered.discard(key)
        delivery: PendingDelivery = self.publish_encoded(NOTHING, None, encoded, deliver=True)

        def done() -> None:
            handled, failures = delivery.outcomes()
            self._settled(*key, handled, failures)

        with self._lock:
            delivery.when_done(done)

    def _settle_rest(self, failures: list[tuple[str, str]]) -> None:
        """What was delivered, and modulators do not get after all: whoever waits for that must not wait for good."""
        while self._delivered:
            self._settled(*self._delivered.pop(), 0, failures)

    def derives(self, producer: str, last: int) -> bool:
        """An event is about to be logged, and somebody waits for it: whether modulators will get it, and `settled` will
        be called when what they emit was handled.
        """
        if not self.has_branches:
            return False
        self._delivered.add((producer, last))
        return True
