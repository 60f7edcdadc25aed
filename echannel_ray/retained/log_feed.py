"""What a log holds, published by a producer of its own for those behind modulators: these work beside the log."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import msgspec
from typing_extensions import override

from echannel_ray import errors
from echannel_ray.core.kinds import BLOCK, typed
from echannel_ray.core.messages import Membership
from echannel_ray.core.streams import RETENTION
from echannel_ray.endpoint.record_codec import open_more
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.logs.entries import Entry, Missing
from echannel_ray.logs.store import Store
from echannel_ray.producers.consumer_sink import ConsumerSink
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.producers.outlet import Encoded
from echannel_ray.producers.publisher import Origin, Publisher
from echannel_ray.records import known
from echannel_ray.records.sources import travelling_part
from echannel_ray.retained.entry_events import unfolded
from echannel_ray.retained.progress import Progress

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_BATCH_BYTES: Final = 1 << 20
_NEVER: Final = 1 << 62  # an offset that no event will have
_payloads: Final = msgspec.msgpack.Decoder(list[Any]).decode


class LogFeed(Origin):
    """What all of these have in common: a producer, and a thread that reads the log and publishes by it."""

    def __init__(self, store: Store, publisher: Publisher) -> None:
        assert isinstance(publisher.sink, ConsumerSink)
        self.publisher = publisher
        self._sink = publisher.sink
        self._endpoint = publisher.endpoint
        self._channel = publisher.channel
        self._store = store
        self._progress = Progress(self._sink, store)
        publisher.origin = self
        self._at = 0  # all before this was published, or was told to be gone
        self._thread: threading.Thread | None = None

    def _begin(self, at: int) -> None:
        """Publish from this offset on, in a thread of its own."""
        self._at = at
        self._thread = threading.Thread(target=self._go, name=f"echannel-log-feed-{self._channel}", daemon=True)
        self._thread.start()

    def _go(self) -> None:
        while True:
            try:
                self._run()
                return
            except errors.EChannelError as error:
                logger.debug("channel %r: %s", self._channel, error)  # deleted, or this process leaves
                return
            except Exception as error:  # the disk is full, say: others may see to that
                if not self._is_open or self._store.closed:
                    return
                logger.exception("what is derived from the log of channel %r gets nothing at present", self._channel)
                self._tell(self._unreadable(error))
            self._store.wait(_NEVER, LOOK_SECONDS)

    def _unreadable(self, error: Exception) -> errors.EChannelError:
        reason = f"{type(error).__name__}: {error}"
        return errors.EChannelError(
            f"modulators get nothing of channel {self._channel!r} now: {reason}; see to the disk of node "
            f"{self._endpoint.node:016x}, on which its log {self._store.log} is",
            channel=self._channel,
        )

    def _run(self) -> None:
        raise NotImplementedError

    @property
    def _is_open(self) -> bool:
        stream = self._sink.stream
        return not stream.closed and not stream.deleted and not self._endpoint.closed

    # ---- for its producer ----

    @override
    def follow(self, membership: Membership) -> None:
        self._sink.apply(membership)

    @override
    def totals(self, published: dict[str, Any]) -> dict[str, Any]:
        # The channel's producers have counted what it publishes again.
        return {name: published[name] for name in ("events_dropped", "dropped", "derived") if name in published}

    # ---- in its thread ----

    def _go_further(self, has_more: bool) -> None:
        """There are consumers: publish what comes next, if there is more, and note how far they have come."""
        self._progress.begin(self._at)
        if has_more:
            self._publish_some()
        self._progress.published(self._at)

    def _publish_some(self) -> None:
        """Publish what comes next."""
        try:
            entries = self._store.read(self._at, _BATCH_BYTES)
        except Missing as missing:
            self._miss(
                missing.next or self._store.first,
                "the retention's bounds are past them: retain more, or see that who is behind modulators keeps up",
            )
            return
        for entry in entries:
            try:
                for part in unfolded(entry, as_bytes=True):
                    if part.next > self._at:
                        self._publish(part, max(0, self._at - part.first))
                        self._at = part.next
            except (errors.EChannelError, TimeoutError):
                raise  # it is not the entry's fault
            except Exception as error:  # a file that is gone, say: an entry is checked by nobody before it is logged
                logger.exception("channel %r: an entry of its log can't be read", self._channel)
                self._miss(entry.next, f"what holds them can't be read ({error})")
            self._at = entry.next

    def _miss(self, stop: int, why: str) -> None:
        """Go on behind what is gone."""
        if self._at < stop:
            self._tell_missing(self._at, stop, why)
        self._at = stop

    def _tell_missing(self, first: int, stop: int, why: str) -> errors.EventsMissing:
        log = self._store.log
        missing = errors.EventsMissing(
            f"events {first} to {stop - 1} of log {log} of channel {self._channel!r} are gone before modulators have "
            f"seen them, since {why}",
            channel=self._channel, log=log, first=first, last=stop - 1,
        )  # fmt: skip
        logger.warning("%s", missing)
        with self._sink.lock:
            self._sink.stream.drop(RETENTION, stop - first)
        self._tell(missing)
        return missing

    def _tell(self, error: errors.EChannelError) -> None:
        for branch in self._sink.branches:
            if branch.derived.parent == self.publisher.derived:  # which tells those behind it too
                branch.tell(error)

    def _publish(self, entry: Entry, skipped: int) -> None:
        kind = typed(entry.kind, entry.token)
        if entry.token and known.known(entry.token) is None:
            open_more(self._endpoint, self._endpoint.definitions[self._channel], None)
        if entry.kind == BLOCK:
            data = entry.data
            if skipped:
                format = known.known(entry.token)  # noqa: A001
                if format is None:
                    raise ValueError("nobody knows the format of its records any more")
                data = travelling_part(format, data, entry.count, skipped, entry.count)
            self._sink.publish_block(kind, data, entry.count - skipped)
            return
        payloads = _payloads(entry.data)[skipped:]
        for i, payload in enumerate(payloads):
            size = (len(payload) if isinstance(payload, bytes | str) else 0) + OVERHEAD_BYTES
            self._publish_one(entry, (kind, payload, size), i == len(payloads) - 1)

    def _publish_one(self, entry: Entry, encoded: Encoded, is_last: bool) -> None:
        """One event of an entry."""
        self.publisher.publish_encoded(NOTHING, None, encoded)
