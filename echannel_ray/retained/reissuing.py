"""What a log holds, published again for those who consume it behind modulators: these work beside the log.

When its keeper dies, the next one goes on where all consumers are known to have what was published (see `Progress`), so
that they lose nothing, and may get again what they had last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec

from echannel_ray import errors
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.logs.entries import Entry, Missing
from echannel_ray.logs.store import Store
from echannel_ray.protocol.kinds import BLOCK, typed
from echannel_ray.protocol.messages import KeptLog, Membership
from echannel_ray.records import known
from echannel_ray.retained.progress import Progress, is_progress
from echannel_ray.retained.reading import unfolded
from echannel_ray.runtime.bulk import publish_blocks
from echannel_ray.runtime.deliveries import Delivery
from echannel_ray.runtime.local import NOTHING
from echannel_ray.runtime.publisher import Publisher
from echannel_ray.runtime.typed import open_more

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_BATCH_BYTES: Final = 1 << 20
_payloads: Final = msgspec.msgpack.Decoder(list[Any]).decode


Settled: TypeAlias = Callable[[str, int, int, list[tuple[str, str]]], None]


class Reissuer(Publisher):
    """A producer beside a log: it publishes what is logged, from the moment on at which somebody derives from it."""

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
        super().__init__(*arguments, **keywords)
        self.log = kept
        self._store = store
        self._told = told
        self._settled = settled
        self._progress = Progress(self, store, self.incarnation)
        self._thread: threading.Thread | None = None
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
            begin = self._store.next if noted is None else noted
            self._thread = threading.Thread(
                target=self._run, args=[begin], name=f"echannel-reissuer-{self.channel}", daemon=True
            )
            self._thread.start()

    def counters(self) -> dict[str, Any]:
        """See `Publisher`. What it publishes again counts for what is derived only: the channel's producers have
        counted it, but for what a gateway's clients have put into the log.
        """
        counters = super().counters()
        store = self._store
        groups = {name: group for name, group in store.groups().items() if not is_progress(name)}
        own = {
            "events_published": self.client_events,
            "bytes_published": self.client_bytes,
            "retained_events": store.next - store.first,
            "retained_bytes": store.size_bytes,
            "staged_bytes": store.staged_bytes,
            "lag": {name: store.next - max(at, store.first) for name, (at, _) in groups.items()},
        }
        return {**{name: counters[name] for name in ("events_dropped", "derived") if name in counters}, **own}

    def _run(self, at: int) -> None:
        try:
            while not self.stream.closed and not self.stream.deleted and not self.endpoint.closed:
                has_more = self._store.wait(at, _LOOK_SECONDS)
                end = self._store.next  # before the look at the branches: one that is made now wants what comes now
                if self.has_branches:
                    self._progress.begin(at)
                    at = self._publish_from(at) if has_more else at
                    self._progress.published(at)
                elif self._progress.is_expecting:
                    self._store.wait(end, _LOOK_SECONDS)
                else:
                    self._progress.end()
                    self._settle_rest([])
                    at = end
        except errors.EChannelError as error:
            logger.debug("channel %r: %s", self.channel, error)  # deleted, or this process leaves
        except Exception:
            logger.exception("what is derived from the log of channel %r gets nothing any more", self.channel)

    def _publish_from(self, at: int) -> int:
        try:
            entries = self._store.read(at, _BATCH_BYTES)
        except Missing as missing:
            first = missing.next or self._store.first
            self._tell_missing(at, first)
            return first
        for entry in entries:
            try:
                for part in unfolded(entry, as_bytes=True):
                    self._publish(part, max(0, at - part.first))
            except OSError:
                logger.exception("channel %r: a file that its log stands for can't be read", self.channel)
            at = entry.next
        return at

    def _tell_missing(self, first: int, stop: int) -> None:
        log = self._store.log
        missing = errors.EventsMissing(
            f"events {first} to {stop - 1} of log {log} of channel {self.channel!r} are gone before modulators have "
            "seen them, since the retention's bounds are past them: retain more, or see that who is behind modulators "
            "keeps up",
            channel=self.channel, log=log, first=first, last=stop - 1,
        )  # fmt: skip
        logger.warning("%s", missing)
        with self._lock:
            self.stream.dropped += stop - first
        self._settle_rest([("modulators", str(missing))])
        for branch in self.branches:
            if not branch.derived.parent:  # which tells those behind it too
                branch.tell(missing)

    def _publish(self, entry: Entry, skipped: int) -> None:
        kind = typed(entry.kind, entry.token)
        if entry.token and known.known(entry.token) is None:
            open_more(self.endpoint, self.endpoint.definitions[self.channel], None)
        if entry.kind == BLOCK:
            publish_blocks(self, [(kind, entry.data, entry.count)])
            return
        key = (entry.producer, entry.sequence + entry.count - 1)
        payloads = _payloads(entry.data)[skipped:]
        for i, payload in enumerate(payloads):
            size = (len(payload) if isinstance(payload, bytes | str) else 0) + OVERHEAD_BYTES
            if i == len(payloads) - 1 and key in self._delivered:
                self._deliver(key, (kind, payload, size))
            else:
                self.publish_encoded(NOTHING, None, (kind, payload, size))

    def _deliver(self, key: tuple[str, int], encoded: tuple[int, Any, int]) -> None:
        self._delivered.discard(key)
        delivery: Delivery = self.publish_encoded(NOTHING, None, encoded, deliver=True)

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
