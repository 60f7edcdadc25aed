"""What a test knows of events, streams and subscriptions: the truth that the protocol's work is compared with."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from echannel_ray.core import frames
from echannel_ray.core.flows import FlowSender
from echannel_ray.core.gathering import Columns
from echannel_ray.core.kinds import TOKEN_BYTES, entries_of, kind_at, token_of, wire_kind
from echannel_ray.core.receiving import Delivered
from echannel_ray.core.streams import SenderStream


class Event(tuple):
    """(endpoint, stream, sequence, size): what is published here. Its size is only said: so large ones cost nothing."""


class Published:
    """What a test knows of one stream: the truth that consumers are compared with."""

    def __init__(self, endpoint: int, stream: SenderStream) -> None:
        self.endpoint = endpoint
        self.stream = stream
        self.sizes: list[int] = []  # by sequence - 1
        self.pending: deque[int] = deque()  # publishes that wait for room
        self.killed = False
        self.closing = False
        self.done = False  # and waits for the others of its family
        self.finished = False
        self.flow_marks: dict[FlowSender, int] = {}  # the last pack of each flow that carries an event of this stream
        self.drains: list[int] = []  # sequences; each is checked when the stream says that it is drained
        self.group_start: dict[str, int] = {}  # sequence from which on a group may rely on getting everything
        self.family = Family({stream.channel: self})

    @property
    def last(self) -> int:
        return len(self.sizes)


class Part(NamedTuple):
    """What a subscription gets of one producer with one turn of its pair: these events of one stream."""

    turn: int
    stream: int
    first: int
    last: int


class Family:
    """The streams of one producer, by channel: what it puts on a channel and on those that are derived from it."""

    def __init__(self, streams: dict[str, Published]) -> None:
        self.streams = streams
        self.version = 0
        self.places: dict[tuple[int, int], tuple[str, int]] = {}  # (endpoint, subscription): channel, turn
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
        for who, (channel, turn) in places.items():
            if who not in self.places and channel in self.streams:
                self.places[who] = (channel, turn)
                published = self.streams[channel]
                self.parts.setdefault(who, []).append(Part(turn, published.stream.number, published.last + 1, -1))

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
        self.turn = 0
        self.parts: dict[int, list[Part]] = {}  # by endpoint: what has arrived
        self.paused = False
        self.busy = False
        self.closed = False
        self.dead = False


def split(columns: Columns) -> list[Columns]:
    """The packs that become of one with large events, each of which has a run of its own."""
    parts = [Columns(columns.control, [], [], [], [], b"", 0, [])]
    offset = 0
    for i, count in enumerate(columns.counts):
        kind_of_run = kind_at(columns, i, offset)
        entries = entries_of(kind_of_run, count)
        events = columns.events[offset : offset + entries]
        kind = bytes((wire_kind(kind_of_run),)) * entries
        token = token_of(kind_of_run).to_bytes(TOKEN_BYTES, "little")
        run = Columns(
            [], [columns.streams[i]], [columns.firsts[i]], [count], [columns.marks[i]], kind, 0, events, 0.0, token
        )
        if isinstance(events[0], Event) and events[0][3] > frames.CHUNK_BYTES:
            parts += [run, Columns([], [], [], [], [], b"", 0, [])]
        else:
            last = parts[-1]
            for mine, more in zip(last[1:5], run[1:5], strict=True):
                mine.extend(more)
            last.events.extend(events)
            parts[-1] = last._replace(kinds=last.kinds + kind, tokens=last.tokens + token)
        offset += entries
    return [part for part in parts if part.events or part.control]
