"""How what was gathered leaves: encoded, numbered, paced, and written to the link."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from echannel_ray import errors
from echannel_ray.core import frames
from echannel_ray.core.flows import FlowSender
from echannel_ray.core.frames import Buffer
from echannel_ray.core.gathering import Columns
from echannel_ray.core.kinds import as_wire, entries_of, kind_at, token_of, wire_kind
from echannel_ray.core.streams import SenderStream
from echannel_ray.formats.packs import encode_body, encode_in_segments

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint

# What may be under way of one flow: bounds what concentrators hold, and is far above what a link needs to be busy.
FLOW_WINDOW_BYTES = 8 << 20
_MAX_PARTS = 256
# Packs of events that are larger than this on average are not put together: they are kept, and written, in pieces.
_IN_SEGMENTS_BYTES = 8 << 10


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


class Waiting:
    """A pack that may not leave yet: a chunk of a large event, or what comes behind it on its route."""

    __slots__ = ("body", "flags", "stream")

    def __init__(self, body: list[Buffer], flags: int, stream: SenderStream) -> None:
        self.body = body
        self.flags = flags
        self.stream = stream


class Outgoing:
    """One per endpoint; all but `write` is called under the endpoint's lock."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._outbox: deque[Buffer] = deque()
        self._waiting: dict[FlowSender, deque[Waiting]] = {}
        self._write_seconds = 0.0  # that the last write took for each pack
        self.packs_sent = 0
        self.bytes_sent = 0

    # ---- packs ----

    def flush(self, flow: FlowSender, delivery: int = 0) -> None:
        """Send what the flow has gathered."""
        gather = self._endpoint.sender.gathers[flow.number]
        if not gather:
            return
        began = time.monotonic()
        waited = began - gather.began_at if gather.began_at else 0.0
        if self._endpoint.sender.new_flows:
            self.declare_new_flows()
        # What a member that died had not handled, say, may be much more than a pack.
        gathered_bytes = gather.gathered_bytes
        is_usual = not gather.has_large and gathered_bytes < 2 * frames.MAX_PACK_BYTES
        due_by = gather.due_by
        columns = gather.take(delivery)
        if not is_usual:
            self._send_in_pieces(flow, columns)
        else:
            body = _encode(columns, gathered_bytes, waited)
            self._pack(flow, body, 0)
            self._count(flow, columns, sum(map(len, body)))
        left_at = time.monotonic()
        gather.left(left_at, len(columns.events), gathered_bytes, left_at - began + self._write_seconds, due_by)

    def _count(self, flow: FlowSender, columns: Columns, size_bytes: int) -> None:
        """For the statistics: each stream's share of a pack."""
        streams = self._endpoint.sender.gathers[flow.number].stream_of_route
        crossings = len(flow.members) - (self._endpoint.node in flow.members)
        share_bytes = size_bytes * crossings // (sum(columns.counts) or 1)
        for route, count in zip(columns.streams, columns.counts, strict=True):
            stream = streams.get(route)
            if stream is not None:
                stream.bytes_between_nodes += share_bytes * count
        for stream in {streams.get(route) for route in columns.streams}:  # which may have several runs in it
            if stream is not None:
                stream.packs += 1

    def _pack(self, flow: FlowSender, body: Sequence[Buffer], flags: int) -> None:
        number = flow.sent(body, flags, time.monotonic())
        size = sum(map(len, body))
        head = frames.pack_head(self._endpoint.id, flow.number, number, 0, flags, size)
        self._outbox.extend((head, *body))
        self.packs_sent += 1

    def _send_in_pieces(self, flow: FlowSender, columns: Columns) -> None:
        waiting = self._waiting.setdefault(flow, deque())
        behind: dict[
            int, SenderStream
        ] = {}  # routes with a large event in this pack: what follows on them waits for it
        for piece in _pieces(columns):
            if isinstance(piece, Columns):
                body = _encode(piece)
                held_by = next((behind[route] for route in piece.streams if route in behind), None)
                if held_by is None:
                    self._pack(flow, body, 0)
                else:
                    waiting.append(Waiting(body, 0, held_by))
                    held_by.chunks += 1
            else:
                route, sequence, mark, delivery, large = piece
                for offset in range(0, large.total_bytes, frames.CHUNK_BYTES):
                    kind, token = wire_kind(large.kind), token_of(large.kind)
                    fixed = frames.CHUNK_FIXED.pack(
                        route, sequence, mark, kind, delivery, large.total_bytes, offset, token
                    )
                    chunk: list[Buffer] = [fixed, *large.slices(offset, frames.CHUNK_BYTES)]
                    waiting.append(Waiting(chunk, frames.IS_CHUNK, large.stream))
                    large.stream.chunks += 1
                behind[route] = large.stream
                crossings = len(flow.members) - (self._endpoint.node in flow.members)
                large.stream.bytes_between_nodes += large.total_bytes * crossings
                large.stream.refresh_limit()
        self.pump(flow)

    def pump(self, flow: FlowSender) -> None:
        """Let waiting chunks leave, as far as the flow's window allows."""
        waiting = self._waiting.get(flow)
        if waiting is None:
            return
        while waiting and flow.kept_bytes < FLOW_WINDOW_BYTES:
            pack = waiting.popleft()
            self._pack(flow, pack.body, pack.flags)
            pack.stream.chunks -= 1
            if not pack.stream.chunks:
                self._endpoint.sender.laggards.large_event_left(pack.stream)
                held_up = self._endpoint.held_up.get(pack.stream.number)
                if held_up is not None:
                    held_up.let_go()
                self._endpoint.room.notify_all()
        if not waiting:
            self._waiting.pop(flow, None)

    def declare_new_flows(self) -> None:
        """Flows are declared before their first pack."""
        endpoint = self._endpoint
        for flow in endpoint.sender.new_flows:
            self.put(frames.flow_declaration(endpoint.id, flow.number, endpoint.node, flow.destinations))
        endpoint.sender.new_flows.clear()

    def resend(self, flow: FlowSender, node: int, packs: Sequence[Any]) -> None:
        """Packs that a node has lost."""
        self.put(frames.flow_declaration(self._endpoint.id, flow.number, self._endpoint.node, flow.destinations))
        for pack in packs:
            flags = pack.flags | frames.IS_RESENT
            head = frames.pack_head(self._endpoint.id, flow.number, pack.number, node, flags, pack.size_bytes)
            self._outbox.extend((head, *pack.body))

    # ---- the link ----

    def put(self, frame: Buffer) -> None:
        """A frame to be written."""
        self._outbox.append(frame)

    def clear(self) -> None:
        """The link is gone, and what was to be written with it: probes will show what that was."""
        self._outbox.clear()

    def write(self) -> None:
        """Write what there is, unless another thread is at it: that one takes ours too. Without the endpoint's lock."""
        outbox = self._outbox
        endpoint = self._endpoint
        while outbox:
            if not endpoint.write_lock.acquire(blocking=False):
                return
            try:
                connection = endpoint.connection
                if connection is None:
                    return
                self._write_all(connection, outbox)
            except (ConnectionError, errors.Closed):
                return  # the reading thread sees the end of the link, and begins another
            finally:
                endpoint.write_lock.release()

    def _write_all(self, connection: Any, outbox: deque[Buffer]) -> None:
        while outbox:
            parts: list[Buffer] = []
            size = 0
            while outbox and len(parts) < _MAX_PARTS:
                try:
                    part = outbox.popleft()
                except IndexError:
                    break  # cleared meanwhile
                parts.append(part)
                size += len(part)
            began = time.monotonic()
            taken = connection.send(parts)
            self._write_seconds = 2 * (time.monotonic() - began) / len(parts)  # a pack has two parts, as a rule
            self.bytes_sent += size
            while taken < size:
                size -= taken
                parts = _behind(parts, taken)
                if not taken:
                    self._wait_writable(connection)
                taken = connection.send(parts)

    def _wait_writable(self, connection: Any) -> None:
        descriptor = connection.fileno()
        if descriptor < 0:
            raise ConnectionResetError("the link was closed")
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll(1000)


def _behind(parts: list[Buffer], taken: int) -> list[Buffer]:
    """What is left of the parts after so many bytes."""
    for i, part in enumerate(parts):
        if taken < len(part):
            return [memoryview(part)[taken:], *parts[i + 1 :]]
        taken -= len(part)
    return []


def _encode(columns: Columns, gathered_bytes: int = 0, waited_seconds: float = 0.0) -> list[Buffer]:
    parts = (
        columns.control, columns.streams, columns.firsts, columns.counts, columns.marks, columns.kinds,
        columns.delivery, time.time() - waited_seconds, columns.events, columns.tokens,
    )  # fmt: skip
    if gathered_bytes > _IN_SEGMENTS_BYTES * len(columns.events):
        return [*encode_in_segments(*parts)]
    return [encode_body(*parts)]


def _pieces(columns: Columns) -> Iterator[Columns | LargePiece]:
    """Take columns apart, in order: into packs that are not too long, and large events."""
    fresh = _Fresh(columns.control)
    offset = 0
    delivered = columns.events[-1] if columns.delivery else None
    for i, count in enumerate(columns.counts):
        kind = kind_at(columns, i, offset)
        entries = entries_of(kind, count)
        for j, event in enumerate(columns.events[offset : offset + entries]):
            sequence = columns.firsts[i] + j
            if type(event) is Large:
                if fresh:
                    yield fresh.take()
                # The same object for each route that the event goes by: all who get it have to answer.
                delivery = columns.delivery if event is delivered else 0
                yield LargePiece(columns.streams[i], sequence, columns.marks[i], delivery, event)
            else:
                if fresh.size_bytes >= frames.MAX_PACK_BYTES:
                    yield fresh.take()
                fresh.add(columns.streams[i], sequence, columns.marks[i], kind, event, count // entries)
        offset += entries
    if fresh:
        yield fresh.take(0 if type(delivered) is Large else columns.delivery)


class LargePiece(NamedTuple):
    """A large event, as a pack would have carried it."""

    route: int
    sequence: int
    mark: int
    delivery: int
    large: Large


class _Fresh:
    """A pack that is put together anew, each event in a run of its own."""

    def __init__(self, control: list[Any]) -> None:
        self._begin(control)

    def _begin(self, control: list[Any]) -> None:
        self._columns = Columns(control, [], [], [], [], b"", 0, [])
        self._kinds: list[int] = []
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._columns.events or self._columns.control)

    def add(self, route: int, sequence: int, mark: int, kind: int, event: Any, count: int) -> None:
        """One more event, or block of so many."""
        self._columns.streams.append(route)
        self._columns.firsts.append(sequence)
        self._columns.counts.append(count)
        self._columns.marks.append(mark)
        self._columns.events.append(event)
        self._kinds.append(kind)
        self.size_bytes += len(event) if isinstance(event, bytes | str) else 0

    def take(self, delivery: int = 0) -> Columns:
        """All of it; it begins again empty."""
        kinds, tokens = as_wire(self._kinds, self._columns.counts)
        taken = self._columns._replace(kinds=kinds, delivery=delivery, tokens=tokens)
        self._begin([])
        return taken
