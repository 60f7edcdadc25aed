"""What a process has counted, told to its concentrator for the metrics: every few seconds, and when the process leaves.

Increments travel, and each is told once. So what a concentrator has passed on to Ray's agent, which keeps it when that
concentrator dies, is not counted again by its successor; what was under way to one that died is lost.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from echannel_ray.core import frames
from echannel_ray.core.counters import add_up, growth
from echannel_ray.core.messages import Tally
from echannel_ray.transport import wire

if TYPE_CHECKING:
    from echannel_ray.consumers.inbox import Inbox
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.producers.publisher import Publisher

# "0" in the environment of a process: it tells nothing; in that of Ray's node: nothing of the node is shown.
METRICS_VARIABLE: Final = "ECHANNEL_METRICS"
TELL_SECONDS: Final = 5.0
_CHANNELS_PER_FRAME: Final = 256
_PARTS_PER_TICK: Final = 32  # that are looked at: a process may have thousands


def metrics_are_on() -> bool:
    """Whether this process has to do with metrics."""
    return os.environ.get(METRICS_VARIABLE, "") != "0"


class MetricsReporter:
    """Tells the concentrator what one endpoint has counted."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._is_on = metrics_are_on()
        self._due_at = time.monotonic() + TELL_SECONDS
        self._seen: dict[Publisher | Inbox, Mapping[str, Any]] = {}  # their counters, when last looked at
        self._grown: dict[str, dict[str, Any]] = {}  # by channels: what has not been told
        self._shown: set[str] = set()  # channels of which a gauge that is not 0 was told
        self._to_see: Iterator[Callable[[], None]] | None = None  # of the look that is under way
        self._gauges: dict[str, dict[str, Any]] = {}  # by channels: what that has found

    def tick(self, now: float) -> bool:
        """Look at a part of what there is, if it is time, and tell what was counted when all was looked at. Whether
        there is more to look at.
        """
        if self._to_see is None and now >= self._due_at:
            self._due_at = now + TELL_SECONDS
            self._begin()
        return self._look(_PARTS_PER_TICK)

    def report(self) -> None:
        """Tell what was counted since the last time."""
        self._begin()
        while self._look(_PARTS_PER_TICK):
            pass

    def _begin(self) -> None:
        endpoint = self._endpoint
        if self._is_on and endpoint.connection is not None:
            self._gauges = defaultdict(dict)
            producers = [partial(self._see_producer, each) for each in endpoint.publishers.values()]
            consumers = [partial(self._see_consumer, each) for each in endpoint.inboxes.values()]
            self._to_see = iter([*producers, *consumers])

    def _look(self, most: int) -> bool:
        if self._to_see is None:
            return False
        looked_at = 0
        for see in islice(self._to_see, most):
            looked_at += 1
            # The lock is taken for each: an event must not wait for all of them.
            with self._endpoint.lock:
                see()
        if looked_at == most:
            return True
        self._to_see = None
        self._tell()
        return False

    def _see_producer(self, publisher: Publisher) -> None:
        if publisher.stream.number in self._endpoint.publishers and self.look_at_producer(publisher):
            add_up(self._gauges[publisher.channel], _packing(publisher))

    def _see_consumer(self, inbox: Inbox) -> None:
        if inbox.number in self._endpoint.inboxes:
            self.look_at_consumer(inbox)
            add_up(self._gauges[inbox.channel], {"queue_depth": max(0, inbox.pending)})

    def _tell(self) -> None:
        endpoint = self._endpoint
        with endpoint.lock:
            tallies = [*self._tallies(self._gauges)]
            for start in range(0, len(tallies), _CHANNELS_PER_FRAME):
                told = wire.Told(tuple(tallies[start : start + _CHANNELS_PER_FRAME]))
                endpoint.outgoing.put(frames.frame(frames.REQUEST, frames.REQUEST_ID.pack(0) + wire.encode(told)))
        endpoint.outgoing.write()

    def _tallies(self, gauges: Mapping[str, dict[str, Any]]) -> Iterator[Tally]:
        grown, self._grown = self._grown, {}
        shown, self._shown = self._shown, {channel for channel, each in gauges.items() if any(each.values())}
        for channel in {**grown, **dict.fromkeys(shown | self._shown)}:
            yield Tally(channel, grown.get(channel, {}), gauges.get(channel, {}))

    # ---- under the endpoint's lock ----

    def look_at_producer(self, publisher: Publisher) -> bool:
        """Take in what it has counted; whether that was something. Also before what it counts by is gone."""
        if not self._is_on:
            return False
        more = self._growth(publisher, publisher.totals())
        named: dict[str, Any] = {}
        names = {branch.derived.key: branch.derived.shipment.name for branch in publisher.sink.modulated()}
        for key, each in more.pop("derived", {}).items():
            add_up(named, {names[key]: each})
        self._add(publisher.channel, {**more, "derived": named} if named else more)
        return bool(more)

    def look_at_consumer(self, inbox: Inbox) -> None:
        """Count what a consumer has done since the last look, as `look_at_producer` does for producers."""
        if self._is_on:
            key, counters = _flat(inbox.totals())
            more = self._growth(inbox, counters)
            self._add(inbox.channel, {"derived": {self._name_of(inbox.channel, key): more}} if key else more)

    def forget(self, part: Publisher | Inbox) -> None:
        """Look no more at something that ends."""
        self._seen.pop(part, None)

    def _growth(self, part: Publisher | Inbox, counters: dict[str, Any]) -> dict[str, Any]:
        more = growth(self._seen.get(part, {}), counters)
        self._seen[part] = counters
        return more

    def _add(self, channel: str, more: dict[str, Any]) -> None:
        if any(more.values()):
            add_up(self._grown.setdefault(channel, {}), more)

    def _name_of(self, channel: str, key: str) -> str:
        membership = self._endpoint.memberships.get(channel)
        names = {} if membership is None else {each.key: each.shipment.name for each in membership.derived}
        return names.get(key, key)


def _flat(counters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a subscription counts, and the key of the derived channel that it consumes: a `reset` changes only that."""
    derived = counters.get("derived")
    return next(iter(derived.items())) if derived else ("", counters)


def _packing(publisher: Publisher) -> dict[str, float]:
    """With how many events packs leave, summed over the links; and how many links that is."""
    now = time.monotonic()
    degrees = [policy.typical(now) for outlet in publisher.sink.outlets() for _, policy in outlet.stream.links()]
    return {"pack_events": sum(degrees), "links": len(degrees)} if degrees else {}
