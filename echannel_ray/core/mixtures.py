"""Events of many streams in turn, a few of each: gathered in columns, with one pass of bookkeeping a pack for them all.

Rules of the endpoint that sends:

* A *mixture* belongs to one flow and one kind of events. A stream that is in it has a *lane*, a small number, which is
  declared inside the first pack that uses it. Each event of a mixed pack says its lane, its sequence number and its
  mark; so a mixed pack may be taken apart into runs at any time, and then is a pack like any other.
* While a stream is in a mixture, its numbers stand in the mixture's columns. To read them is free; whatever publishes,
  routes or ends the stream in another way has it leave first (`Sender.end_run`).
* Only streams whose plain recipients have room for a whole list of events are in a mixture: nobody asks for each event.
* A lane stands for one route. It is never given to another one: a thread that was about to use it may come late.
* A mixture that all have left is over: who comes next begins another.

The columns are NumPy's: of 1,024 events from as many streams, all that is done for each in Python would cost more than
the rest of their way. (`docs/design/flows.md` has the figures.) A process that has no mixtures does not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from echannel_ray.core.flows import FlowSender
from echannel_ray.core.gather import Gather, PackColumns
from echannel_ray.core.kinds import RECORD, TOKEN_BYTES, token_of, wire_kind
from echannel_ray.core.packing import Policy

if TYPE_CHECKING:
    from echannel_ray.core.streams import SenderStream

Column: TypeAlias = "npt.NDArray[np.int64]"
Lanes: TypeAlias = "npt.NDArray[np.uint16]"

# Lanes have two bytes on the wire: NumPy sorts those by counting.
MAX_LANES: Final = 1 << 16
LANE_BYTES: Final = 2
_LEAST_TO_RETIRE = 1024  # lanes
# Of whom there is as much at once, and more than of all others together, is better gathered by himself.
_MANY_BY_ITSELF = 64
_NOT_ABOARD: Final = -1


@dataclass(slots=True, eq=False)
class MixedColumns:
    """The contents of a mixed pack: an entry of each column for each event, in the order of publishing."""

    control: list[Any]
    mixture: Mixture
    lanes: Lanes
    sequences: Column
    marks: Column
    events: list[Any]
    stamp: float = 0.0

    @property
    def kind(self) -> int:
        """The kind of all events, as packs have it."""
        return self.mixture.kind

    def as_runs(self) -> PackColumns:
        """The same with a run for each lane."""
        places = np.arange(len(self.events))
        return as_runs(self, places, self.control, self.mixture.routes, self.mixture.tokens)


class Mixed(Protocol):
    """Events of a mixture, before they leave or when they have arrived."""

    lanes: Lanes
    sequences: Column
    marks: Column
    events: list[Any]
    stamp: float

    @property
    def kind(self) -> int:
        """The kind of all events, as packs have it."""


class Mixture:
    """The streams of one flow whose events of one kind are gathered together, at the endpoint that sends."""

    def __init__(self, number: int, kind: int, flow: FlowSender, gather: Gather, policy: Policy) -> None:
        self.number = number
        self.kind = kind  # as packs have it
        self.flow = flow
        self.gather = gather
        self.policy = policy  # when its packs leave
        self.owner: Any = None  # the shell's list of what is not taken in yet
        self.is_retired = False  # nobody joins it any more
        self.aboard = 0  # streams
        self._streams: list[SenderStream | None] = []  # by lanes, those that are in it
        self._on_leave: list[Callable[[], object]] = []
        self._lane_of_route: dict[int, int] = {}
        self.routes: list[int] = []  # that the lanes stand for
        self.tokens: list[int] = []  # of the formats of their events
        self._next = _column()
        self._published = _column()
        self._limits = _column()  # marks; negative where the stream's numbers are its own
        self._packs = _column()
        self._crossing = _column()

    # ---- who is in it ----

    def join(self, stream: SenderStream, on_leave: Callable[[], object], kind: int, reserve_bytes: int) -> int | None:
        """Take a stream in, if its recipients have room for so many bytes: its lane. `on_leave` is called when it
        leaves again; `kind` is that of its events, its format's token included.
        """
        route, limit = stream.route, stream.limit_bytes
        if route is None or limit < stream.published_bytes + reserve_bytes or stream.mixture is not None:
            return None
        lane = self._lane_of_route.get(route.number)
        if lane is None:
            lane = self._new_lane(stream, kind)
            if lane is None:
                return None
        stream.gather.end_run()  # type: ignore[union-attr]
        self._next[lane] = stream.next_sequence
        self._published[lane] = stream.published_bytes
        self._limits[lane] = limit
        self._on_leave[lane] = on_leave
        self._streams[lane] = stream
        stream.mixture, stream.lane = self, lane
        stream.limit_bytes = _NOT_ABOARD
        self.aboard += 1
        return lane

    def _new_lane(self, stream: SenderStream, kind: int) -> int | None:
        lane = len(self._streams)
        if lane >= MAX_LANES or (lane >= _LEAST_TO_RETIRE and self.aboard < lane // 4):
            self.is_retired = True
            self._end_if_unused()
            return None
        if lane == len(self._next):
            for name in ("_next", "_published", "_limits", "_packs", "_crossing"):
                setattr(self, name, _grown(getattr(self, name)))
        route = stream.route
        assert route is not None
        route.declare(stream)
        route.gather.control.append(["lane", self.number, lane, route.number, token_of(kind)])
        self._lane_of_route[route.number] = lane
        self.routes.append(route.number)
        self.tokens.append(token_of(kind))
        self._streams.append(None)
        self._on_leave.append(_nothing)
        return lane

    def release(self, stream: SenderStream) -> None:
        """Give a stream its numbers back: it publishes by itself again."""
        lane = stream.lane
        stream.mixture = None
        stream.next_sequence = int(self._next[lane])
        stream.published_bytes = int(self._published[lane])
        self._take_counts(stream, lane)
        self._limits[lane] = _NOT_ABOARD
        self.aboard -= 1
        self._on_leave[lane]()
        self._on_leave[lane] = _nothing
        self._streams[lane] = None
        stream.refresh_limit()
        self._end_if_unused()

    def _release(self, lane: int) -> None:
        stream = self._streams[lane]
        assert stream is not None
        self.release(stream)

    def _end_if_unused(self) -> None:
        if not self.aboard:
            self.is_retired = True
            mixtures = self.gather.mixtures
            for key in [key for key, each in mixtures.items() if each is self]:
                del mixtures[key]
            self.gather.say(["mixture ended", self.number])

    def _take_counts(self, stream: SenderStream, lane: int) -> None:
        stream.packs += int(self._packs[lane])
        stream.bytes_between_nodes += int(self._crossing[lane])
        self._packs[lane] = self._crossing[lane] = 0

    # ---- the numbers of a stream that is in it ----

    def next_sequence(self, lane: int) -> int:
        """The number of the stream's next event."""
        return int(self._next[lane])

    def published_bytes(self, lane: int) -> int:
        """What the stream has published."""
        return int(self._published[lane])

    def count(self, stream: SenderStream) -> None:
        """Make true what the stream's statistics say of packs."""
        self._take_counts(stream, stream.lane)

    def limit_is(self, stream: SenderStream, limit: int) -> None:
        """A recipient has reported: the mark up to which the stream may publish now."""
        self._limits[stream.lane] = limit

    # ---- events ----

    def publish(self, lanes: Lanes, events: list[Any], sizes: Column, reserve_bytes: int) -> Collection[int]:
        """Publish events of these lanes, in turn. The places of those of streams that have left meanwhile: these were
        not published.
        """
        late: Collection[int] = ()
        index = lanes.astype(np.intp)
        limits = self._limits[index]
        if limits.min() < 0:
            is_late = limits < 0
            late = np.flatnonzero(is_late).tolist()
            in_time = ~is_late
            lanes, index, limits, sizes = lanes[in_time], index[in_time], limits[in_time], sizes[in_time]
            events = [*compress(events, in_time)]
        if events:
            counts = np.bincount(index)
            most = int(counts.max())
            sequences, marks = self._number(index, sizes) if most == 1 else self._number_several(lanes, sizes)
            self.gather.add_mixed(self, lanes, sequences, marks, events, int(sizes.sum()))
            is_near = marks + reserve_bytes > limits
            if is_near.any():  # their recipients may soon be full: they ask for each event again
                for lane in {*lanes[is_near].tolist()}:
                    self._release(lane)
            elif most > _MANY_BY_ITSELF and 2 * most > len(events):
                self._release(int(counts.argmax()))
        return late

    def _number(self, index: npt.NDArray[np.intp], sizes: Column) -> tuple[Column, Column]:
        """The sequence numbers and marks of events, one of each lane."""
        sequences = self._next[index]
        self._next[index] = sequences + 1
        marks = self._published[index] + sizes
        self._published[index] = marks
        return sequences, marks

    def _number_several(self, lanes: Lanes, sizes: Column) -> tuple[Column, Column]:
        """The same where there are several of a lane."""
        order = np.argsort(lanes, kind="stable")
        by_lane = lanes[order]
        starts, groups = groups_of(by_lane)
        ranks = np.arange(len(order)) - starts[groups]
        sums = np.cumsum(sizes[order])
        before = np.concatenate(([0], sums))[starts]
        sequences, marks = np.empty_like(sizes), np.empty_like(sizes)
        sequences[order] = in_order = self._next[by_lane] + ranks
        marks[order] = marks_in_order = self._published[by_lane] + sums - before[groups]
        # The last one of a lane is written last.
        self._next[by_lane] = in_order + 1
        self._published[by_lane] = marks_in_order
        return sequences, marks

    def columns(
        self, control: list[Any], numbered: Sequence[tuple[Lanes, Column, Column]], events: list[Any]
    ) -> MixedColumns:
        """Events that leave as one pack."""
        lanes, sequences, marks = numbered[0]
        if len(numbered) > 1:
            lanes, sequences, marks = (np.concatenate(each) for each in zip(*numbered, strict=True))
        return MixedColumns(control, self, lanes, sequences, marks, events)

    def left(self, columns: MixedColumns, crossing_bytes: int) -> None:
        """Count a pack that has left, and each stream's share of the bytes that go to other nodes."""
        lanes = columns.lanes
        self._packs[lanes] += 1  # once, however often a lane is among them
        if crossing_bytes:
            np.add.at(self._crossing, lanes, crossing_bytes // len(lanes))

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        aboard = [stream for stream in self._streams if stream is not None]
        assert len({*map(id, aboard)}) == self.aboard, (len(aboard), self.aboard)
        assert int((self._limits[: len(self._streams)] >= 0).sum()) == self.aboard
        for stream in aboard:
            assert stream.mixture is self
            assert self._limits[stream.lane] >= self._published[stream.lane]
            assert stream.route is not None
            assert self._lane_of_route[stream.route.number] == stream.lane


def as_runs(
    mixed: Mixed, places: npt.NDArray[np.intp], control: list[Any], routes: Sequence[int], tokens: Sequence[int]
) -> PackColumns:
    """The events of a mixed pack that are in these places, as a pack that has a run for each lane."""
    lanes = mixed.lanes[places]
    order = np.argsort(lanes, kind="stable")
    starts, _ = groups_of(lanes[order])
    ends = np.append(starts[1:], len(order))
    in_order = places[order]
    firsts, lasts = in_order[starts], in_order[ends - 1]
    used = mixed.lanes[firsts].tolist()
    token_column = b""
    if wire_kind(mixed.kind) == RECORD:
        token_column = b"".join([tokens[lane].to_bytes(TOKEN_BYTES, "little") for lane in used])
    events = mixed.events
    return PackColumns(
        control,
        [routes[lane] for lane in used],
        mixed.sequences[firsts].tolist(),
        (ends - starts).tolist(),
        mixed.marks[lasts].tolist(),
        bytes((mixed.kind,)) if mixed.kind else b"",
        0,
        [events[place] for place in in_order.tolist()],
        mixed.stamp,
        token_column,
    )


def groups_of(ordered: Lanes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of lanes in order: where each one begins, and for each entry which of these it belongs to."""
    is_first = np.empty(len(ordered), np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return np.flatnonzero(is_first), np.cumsum(is_first) - 1


def _column() -> Column:
    return np.zeros(16, np.int64)


def _grown(column: Column) -> Column:
    return np.concatenate((column, np.zeros_like(column)))


def _nothing() -> None:
    pass
