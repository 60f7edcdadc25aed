"""What a test knows of events, streams and subscriptions: the truth that the protocol's work is compared with."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Any, NamedTuple

from echannel_ray.core.deliveries import Answered, Awaited
from echannel_ray.core.drain_point import DrainPoint
from echannel_ray.core.kinds import Block
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import SenderStream

EVENT = Struct("<QIII")  # endpoint, stream, sequence, size


def event_of(endpoint: int, stream: int, sequence: int, size: int) -> bytes:
    """An event says who published it. Its size is only said too: so large ones cost nothing."""
    return EVENT.pack(endpoint, stream, sequence, size)


def events_of(delivered: Delivered) -> list[bytes]:
    """The events of a run, those of a block one by one; a large one arrives as the text that it was repeated from."""
    events = delivered.events
    if isinstance(events, Block):
        return [events.data[EVENT.size * i : EVENT.size * (i + 1)] for i in range(events.start, events.stop)]
    return [event[: EVENT.size] for event in events]


class Published:
    """What a test knows of one stream: the truth that consumers are compared with."""

    def __init__(self, endpoint: int, stream: SenderStream) -> None:
        self.endpoint = endpoint
        self.stream = stream
        self.sizes: list[tuple[int, bool]] = []  # by sequence - 1: the size, and whether somebody waits for it
        self.pending: deque[tuple[int, bool]] = deque()  # publishes that wait for room
        self.killed = False
        self.closing = False
        self.done = False  # and waits for the others of its family
        self.finished = False
        self.drains: list[tuple[int, DrainPoint]] = []  # up to which sequence each is to be, when it is reached
        self.delivered: dict[int, Awaited] = {}  # by sequence: what somebody waits for
        self.expected: dict[int, int] = {}  # how many have to answer, by deliveries
        self.answers: dict[int, list[Answered]] = {}
        self.group_start: dict[str, int] = {}  # sequence from which on a group may rely on getting everything
        self.family = Family({stream.channel: self})

    @property
    def last(self) -> int:
        return len(self.sizes)


class Part(NamedTuple):
    """What a subscription gets of one producer with one of its handler versions: these events of one stream."""

    handler_version: int
    stream: int
    first: int
    last: int


class Family:
    """The streams of one producer, by channel: what it puts on a channel and on those that are derived from it."""

    def __init__(self, streams: dict[str, Published]) -> None:
        self.streams = streams
        self.version = 0
        self.places: dict[tuple[int, int], tuple[str, int]] = {}  # (endpoint, subscription): channel, handler version
        self.parts: dict[tuple[int, int], list[Part]] = {}  # what each was to get, by the cuts that there were
        for published in streams.values():
            published.family = self

    @property
    def endpoint(self) -> int:
        return next(iter(self.streams.values())).endpoint

    def cut(self, places: dict[tuple[int, int], tuple[str, int]]) -> None:
        """From here on these subscriptions are served, from these streams."""
        for who, place in [*self.places.items()]:
            if places.get(who) != place:
                self.end_part(who)
        for who, (channel, handler_version) in places.items():
            if who not in self.places and channel in self.streams:
                self.places[who] = (channel, handler_version)
                published = self.streams[channel]
                self.parts.setdefault(who, []).append(
                    Part(handler_version, published.stream.number, published.last + 1, -1)
                )

    def end_part(self, who: tuple[int, int]) -> None:
        channel, _ = self.places.pop(who)
        parts = self.parts[who]
        parts[-1] = parts[-1]._replace(last=self.streams[channel].last)

    def end(self) -> None:
        """Nothing more is published."""
        for who in [*self.places]:
            self.end_part(who)


class Subscription:
    """A consumer: a queue and a handler that takes its time."""

    def __init__(self, endpoint: int, number: int, channel: str, group: str | None) -> None:
        self.endpoint = endpoint
        self.number = number
        self.channel = channel
        self.group = group
        self.queue: deque[Delivered] = deque()
        self.received: dict[tuple[int, int], list[tuple[Any, ...]]] = {}  # by stream: (first, last, is gap)
        self.handled: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        self.starts: dict[tuple[int, int], int] | None = None  # by stream, once `subscribe` has returned
        self.handler_version = 0
        self.parts: dict[int, list[Part]] = {}  # by endpoint: what has arrived
        self.paused = False
        self.busy = False
        self.closed = False
        self.dead = False
