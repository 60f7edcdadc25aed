"""Channels of events without Ray, for the port for events: what is published is handed to whoever subscribed."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Any

from echannel_ray import errors
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.gateway.feeds import FeedEnded


class LocalFeed:
    """A subscription; `put` gives it anything that a feed may have: an error to raise, too."""

    def __init__(self, channel: _Events, wake, derived: LocalDerived | None) -> None:
        self._channel = channel
        self._derived = derived
        self._wake = wake
        self._queue: deque[Any] = deque()
        self.taken = 0
        self.acknowledged = 0
        self.closed = threading.Event()

    def put(self, item: Message | Gap | Exception) -> None:
        if self._derived is None or not isinstance(item, Message) or item.event >= self._derived.low:
            self._queue.append(item)
            self._wake()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def take(self):
        if not self._queue:
            return None
        item = self._queue.popleft()
        if isinstance(item, Exception):
            raise item
        self.taken += 1
        return item

    def acknowledge(self, events: int) -> None:
        self.acknowledged += events

    def close(self) -> None:
        self._channel.feeds.remove(self)
        self.closed.set()


class LocalDerived:
    """Everything passes whose `value` is at least `param.low`: enough to see that params came."""

    def __init__(self, parent: str, source: str, params: dict, fields) -> None:
        self.parent = parent
        self.name = f"{parent}~{abs(hash((source, str(params)))):012x}"[: len(parent) + 13]
        self.fields = fields
        self.low = params.get("low", 0)
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class _Events:
    def __init__(self, name: str, fields: dict | None) -> None:
        self.info = {"channel": name, "fields": fields, "is_retained": False}
        self.published: list[Any] = []
        self.feeds: list[LocalFeed] = []
        self.sequence = itertools.count(1)


class LocalEvents:
    """Of a `GatewayBackend`, what its port for events asks. `room` holds publishers up while it is cleared."""

    def __init__(self) -> None:
        self.events: dict[str, _Events] = {}
        self.room = threading.Event()
        self.room.set()
        self.derived: list[LocalDerived] = []
        self._publishing = threading.Lock()

    def open(self, name, fields):
        if name not in self.events:
            if fields is None:
                raise LookupError(f"there is no channel {name!r}: open it with fields")
            self.events[name] = _Events(name, dict(fields) or None)
        found = self.events[name]
        if fields and found.info["fields"] != dict(fields):
            raise errors.TypeMismatch(f"channel {name!r} has another type", channel=name, field=next(iter(fields)))
        return found.info

    def publish_events(self, name, events):
        channel = self.events[self.open(name, None)["channel"]]
        self.room.wait()
        with self._publishing:
            for event in events:
                if event == "refused":
                    raise errors.NotSerialisable("this host takes no such event", path=None)
                channel.published.append(event)
                message = Message(event, "00000000000000ab.1", next(channel.sequence), 1700000000.5)
                for feed in channel.feeds:
                    feed.put(message)

    def drain(self, name):
        self.open(name, None)

    def subscribe(self, name, derived, group, start, wake):
        channel = self.events[self.open(name, None)["channel"]]
        feed = LocalFeed(channel, wake, derived)
        channel.feeds.append(feed)
        return feed

    def derive(self, name, source, params, output):
        if source == "wrong":
            raise errors.ModulatorRefused("this is no E-code", reason="malformed", channel=name)
        self.open(name, None)
        made = LocalDerived(name, source, dict(params), output)
        self.derived.append(made)
        return made

    def end_feeds(self, name: str, error: Exception | None = None) -> None:
        for feed in [*self.events[name].feeds]:
            feed.put(error or FeedEnded())
