"""Large events on their way out: in chunks, each a pack, between which the packs of other streams pass.

Rules:

* A pack that has a large event in it is taken apart, in order: into packs that are not too long, and chunks.
* Chunks wait until the flow has room for them (a window of bytes is under way at most), and so does every pack of the
  flow that has to do with a stream of which something waits: no stream overtakes itself. Packs of others go ahead.
* Nothing is published on such a stream meanwhile: see `SenderStream.chunks`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from echannel_ray.core.frames import CHUNK_FIXED, MAX_PACK_BYTES, Buffer
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import GAP, as_wire, entries_of, kind_at, token_of, wire_kind
from echannel_ray.core.streams import SenderStream


class Large:
    """An event that travels in chunks: its bytes, in the segments that it was made of."""

    __slots__ = ("kind", "segments", "stream", "total_bytes")

    def __init__(self, stream: SenderStream, kind: int, segments: Sequence[Buffer]) -> None:
        self.stream = stream
        self.kind = kind
        self.segments = segments
        self.total_bytes = sum(len(segment) for segment in segments)

    def slices(self, offset: int, size_bytes: int) -> list[memoryview]:
        """The pieces that make up this part of it, uncopied."""
        pieces = []
        for segment in self.segments:
            length = len(segment)
            if offset < length and size_bytes:
                piece = memoryview(segment)[offset : offset + size_bytes]
                pieces.append(piece)
                size_bytes -= len(piece)
                offset = 0
            else:
                offset = max(0, offset - length)
        return pieces


class LargePiece(NamedTuple):
    """A large event, as a pack would have carried it."""

    route: int
    sequence: int
    mark: int
    delivery: int
    large: Large

    def chunks(self, chunk_bytes: int) -> Iterator[list[Buffer]]:
        """The bodies of the packs that carry it."""
        large = self.large
        kind, token = wire_kind(large.kind), token_of(large.kind)
        for offset in range(0, large.total_bytes, chunk_bytes):
            fixed = (self.route, self.sequence, self.mark, kind, self.delivery, large.total_bytes, offset, token)
            yield [CHUNK_FIXED.pack(*fixed), *large.slices(offset, chunk_bytes)]


class WaitingPack(NamedTuple):
    """A pack that may not leave yet: a chunk of a large event, or what has to stay behind one."""

    body: list[Buffer]
    flags: int
    streams: set[SenderStream]  # whose events it has
    numbers: set[int]  # of these and other streams that it says something of


class WaitingPacks:
    """What waits on one flow, in order."""

    def __init__(self) -> None:
        self.packs: deque[WaitingPack] = deque()
        self._numbers: Counter[int] = Counter()  # how many of them have to do with a stream

    def concerns(self, numbers: set[int]) -> bool:
        """Whether something of one of these streams waits."""
        return any(number in self._numbers for number in numbers)

    def add(self, pack: WaitingPack) -> None:
        """Put one more pack behind those that wait."""
        self.packs.append(pack)
        self._numbers.update(pack.numbers)
        for stream in pack.streams:
            stream.chunks += 1
            stream.refresh_limit()

    def pop(self) -> tuple[WaitingPack, list[SenderStream]]:
        """The next pack leaves; the streams of which nothing waits any more."""
        pack = self.packs.popleft()
        for number in pack.numbers:
            self._numbers[number] -= 1
            if not self._numbers[number]:
                del self._numbers[number]
        for stream in pack.streams:
            stream.chunks -= 1
        return pack, sorted((stream for stream in pack.streams if not stream.chunks), key=attrgetter("number"))


def concerned(columns: PackColumns, stream_of_route: Mapping[int, SenderStream]) -> tuple[set[SenderStream], set[int]]:
    """The streams whose events a pack has, and the numbers of all that it says something of."""
    streams = {stream_of_route[route] for route in columns.streams if route in stream_of_route}
    numbers = {entry[2] if entry[0] == "route" else entry[1] for entry in columns.control}
    return streams, numbers.union(stream.number for stream in streams)


def pieces(columns: PackColumns, stream_of_route: Mapping[int, SenderStream]) -> Iterator[PackColumns | LargePiece]:
    """Take columns apart, in order: into packs that are not too long, and large events."""
    fresh = _FreshPack(columns.control, columns.delivery)
    offset = 0
    stream, end = _delivered_end(columns, stream_of_route) if columns.delivery else (None, 0)
    for i, count in enumerate(columns.counts):
        kind = kind_at(columns, i, offset)
        entries = entries_of(kind, count)
        is_of_stream = stream_of_route.get(columns.streams[i]) is stream and kind != GAP
        for j, event in enumerate(columns.events[offset : offset + entries]):
            sequence = columns.firsts[i] + j
            is_delivered = is_of_stream and sequence + count // entries == end
            if type(event) is Large:
                if fresh:
                    yield fresh.take()
                delivery = columns.delivery if is_delivered else 0
                yield LargePiece(columns.streams[i], sequence, columns.marks[i], delivery, event)
            else:
                if fresh.size_bytes >= MAX_PACK_BYTES:
                    yield fresh.take()
                fresh.add(columns.streams[i], sequence, columns.marks[i], kind, event, count // entries, is_delivered)
        offset += entries
    if fresh:
        yield fresh.take()


def _delivered_end(
    columns: PackColumns, stream_of_route: Mapping[int, SenderStream]
) -> tuple[SenderStream | None, int]:
    """The stream of the delivered event, and the number behind it: each route that it goes by has it in a run of its
    own, and who lacks it has a gap there.
    """
    stream = stream_of_route.get(columns.streams[-1])
    end = offset = 0
    for i, count in enumerate(columns.counts):
        kind = kind_at(columns, i, offset)
        offset += entries_of(kind, count)
        if kind != GAP and stream_of_route.get(columns.streams[i]) is stream:
            end = max(end, columns.firsts[i] + count)
    return stream, end


class _FreshPack:
    """A pack that is put together anew, each event in a run of its own."""

    def __init__(self, control: list[Any], delivery: int) -> None:
        self._delivery = delivery
        self._begin(control)

    def _begin(self, control: list[Any]) -> None:
        self._is_delivered = False
        self._columns = PackColumns(control, [], [], [], [], b"", 0, [])
        self._kinds: list[int] = []
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._columns.events or self._columns.control)

    def add(self, route: int, sequence: int, mark: int, kind: int, event: Any, count: int, is_delivered: bool) -> None:
        """Append an event, or a block of so many records."""
        self._is_delivered |= is_delivered
        self._columns.streams.append(route)
        self._columns.firsts.append(sequence)
        self._columns.counts.append(count)
        self._columns.marks.append(mark)
        self._columns.events.append(event)
        self._kinds.append(kind)
        self.size_bytes += len(event) if isinstance(event, bytes | str) else 0

    def take(self) -> PackColumns:
        """The columns of what was added; the pack begins again empty."""
        kinds, tokens = as_wire(self._kinds, self._columns.counts)
        taken = replace(self._columns, kinds=kinds, delivery=self._delivery if self._is_delivered else 0, tokens=tokens)
        self._begin([])
        return taken
