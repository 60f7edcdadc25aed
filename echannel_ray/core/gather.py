"""The pack that a flow is gathering: events of any of its streams, in columns, to be encoded in one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from weakref import ref

from echannel_ray.core.frames import CHUNK_BYTES, MAX_PACK_BYTES
from echannel_ray.core.kinds import GAP, IN_SEGMENT, NOTICE, PLAIN, as_wire
from echannel_ray.core.lifetimes import Lifetime
from echannel_ray.core.packing import Packing, Policy, policy_of

if TYPE_CHECKING:
    from echannel_ray.core.mixtures import Column, Lanes, MixedColumns, Mixture

# Larger events, and more of them, than these are not mixed: a stream must have room for as many of the largest.
MAX_MIXED_BYTES: Final = 1024
MAX_MIXED_EVENTS: Final = 1024


@dataclass(slots=True, eq=False)
class PackColumns:
    """The contents of a pack. Runs are parallel lists: run i has `counts[i]` events, of wire stream `streams[i]`, with
    sequence numbers from `firsts[i]`; `marks[i]` is what its stream had published (in bytes) with the run's last event.
    Each event has an entry in `events`; all those of a block have one together.
    """

    control: list[Any]
    streams: list[int]
    firsts: list[int]
    counts: list[int]
    marks: list[int]
    kinds: bytes  # nothing: all are PLAIN; one byte: of all; else one for each entry
    delivery: int
    events: list[Any]
    stamp: float = 0.0  # when its first event was gathered, by the sender's clock
    tokens: bytes = b""  # nothing: no events are typed; else the token of each run's format


Part: TypeAlias = "tuple[PackColumns | MixedColumns, int]"  # what leaves as one pack, and the bytes of its events


class Pack(Protocol):
    """A pack as it arrives: the columns of `PackColumns`, whatever they were decoded into."""

    control: list[Any]
    streams: list[int]
    firsts: list[int]
    counts: list[int]
    marks: list[int]
    kinds: bytes
    delivery: int
    events: Any  # a list, or what stands for one
    stamp: float
    tokens: bytes


class Gather:
    """The pack that a flow is gathering; one per flow, at the endpoint that sends.

    The producer's hot path appends to `events` itself, after it made sure that `stream` and `kind` are its own; a run
    is closed only when another stream or kind has its turn, or the pack leaves. So an event costs one append, whatever
    else it is.

    A pack has runs, or the events of one mixture. When the other has its turn, what was gathered is closed as a part,
    and leaves ahead of what comes.
    """

    __slots__ = (
        "_after_large",
        "_has_said",
        "_left_before",
        "_left_now",
        "_numbered",
        "_run_start",
        "began_at",
        "control",
        "counts",
        "due_at",
        "due_by",
        "events",
        "firsts",
        "gathered_bytes",
        "has_large",
        "kind",
        "kinds",
        "lifetime",
        "marks",
        "mixture",
        "mixtures",
        "parts",
        "policies",
        "segment_bytes",
        "stream",
        "stream_of_route",
        "streams",
        "was_left",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lifetime = Lifetime()
        self.stream: Any = None  # whose run is open (a SenderStream)
        self.kind = PLAIN
        self.stream_of_route: dict[int, Any] = {}  # of the routes that the flow has declared
        # Routes that were left, with events in the pack that is gathered, or in the one that was taken last.
        self._left_now: list[int] = []
        self._left_before: list[int] = []
        self._run_start = 0
        self.policies: dict[Packing, ref[Policy]] = {}  # of its channels: they live as long as somebody uses them
        self.mixtures: dict[tuple[int, Packing], Mixture] = {}  # by kinds of events and their channels' packing
        self._reset()

    def _reset(self) -> None:
        self.parts: tuple[Part, ...] = ()  # that are closed
        self.has_large = False  # whether there is an event that is to travel in chunks
        self.segment_bytes = 0  # of its events, what lies in segments
        self.was_left = False  # whether a stream has gone on to another flow since; see `Sender._leave`
        self.began_at = 0.0  # when its first event came; 0 until somebody has looked
        self.due_at = 0.0  # when it must leave at the latest
        self.due_by: Policy | None = None  # which said so last
        self.control: list[Any] = []
        self.streams: list[int] = []
        self.firsts: list[int] = []
        self.counts: list[int] = []
        self.marks: list[int] = []
        self.kinds: list[int] = []
        self.events: list[Any] = []
        self.gathered_bytes = 0  # of its events
        self._after_large = False
        self._has_said = False  # whether there is an entry of `control` that is read behind the events
        self.mixture: Mixture | None = None  # whose events these are, where they are in no runs
        self._numbered: tuple[tuple[Lanes, Column, Column], ...] = ()  # of such: lanes, sequence numbers, marks

    def __bool__(self) -> bool:
        return bool(self.events or self.control or self.parts)

    def policy(self, packing: Packing, clock_offset_seconds: float = 0.0) -> Policy:
        """The policy of this flow for channels with these options: see `policy_of`."""
        known = self.policies.get(packing)
        found = known() if known is not None else None
        if found is None:
            found = policy_of(packing, clock_offset_seconds)
            self.policies[packing] = ref(found)
        return found

    def left(
        self,
        now: float,
        events: int,
        size_bytes: int,
        seconds: float,
        due_by: Policy,
        filling_seconds: float,
        delayed_seconds: float,
    ) -> None:
        """A pack has left, which this policy was the last to be asked about: see `Policy`."""
        for packing, known in [*self.policies.items()]:
            policy = known()
            if policy is not None:
                policy.left(now, events, size_bytes, seconds, policy is due_by, filling_seconds, delayed_seconds)
            else:
                del self.policies[packing]

    def see_off(self, policy: Policy, now: float, came_at: float) -> bool:
        """An event was gathered that is under this policy. Whether the pack leaves now; else `due_at` says when."""
        if self.due_by is not policy:
            due_at = policy.due_at(came_at)
            self.due_at = due_at if self.due_by is None else min(self.due_at, due_at)
            self.due_by = policy
            self.began_at = self.began_at or now
        if self.due_at <= now or len(self.events) >= policy.degree or self.gathered_bytes >= MAX_PACK_BYTES:
            return True
        return bool(self.parts)  # more than one pack: to wait would spare nothing

    def leave_by(self, due_at: float) -> None:
        """What was gathered leaves at this time at the latest: some of it has waited elsewhere."""
        self.due_at = min(self.due_at, due_at)

    def begin_run(self, stream: Any, kind: int) -> None:
        """Close the open run; the events appended from now on are of this stream and kind."""
        self.end_run()
        if self.mixture is not None:
            self._close_part()
        if not stream.route.declared:
            stream.route.declare(stream)
        self.stream = stream
        self.kind = kind
        self._run_start = len(self.events)

    def end_run(self) -> None:
        """Close the open run, so that its stream's `next_sequence` is true."""
        stream, self.stream = self.stream, None
        count = len(self.events) - self._run_start if stream is not None else 0
        if count:
            self.streams.append(stream.route.number)
            self.firsts.append(stream.own_next)
            self.counts.append(count)
            self.marks.append(stream.own_mark)
            self.kinds.append(self.kind)
            stream.own_next += count

    def add(
        self,
        route_number: int,
        sequence: int,
        mark: int,
        kind: int,
        event: Any,
        size_bytes: int = 0,
        alone: bool = False,
    ) -> None:
        """Append an event that does not come by the hot path (it is large, for a single recipient, or a gap).

        `alone`: in a run of its own, so that its own mark can be reported.
        """
        self.end_run()
        if self.mixture is not None:
            self._close_part()
        if kind & IN_SEGMENT:
            self.segment_bytes += size_bytes
            size_bytes = len(event)  # what travels
        self.gathered_bytes += size_bytes
        is_large = size_bytes > CHUNK_BYTES
        alone = alone or kind == NOTICE
        self.has_large |= is_large
        if (
            not (is_large or alone)
            and kind != GAP  # one gap is one run, also where another gap follows
            and self.streams
            and not self._after_large
            and self.streams[-1] == route_number
            and self.kinds[-1] == kind
            and self.firsts[-1] + self.counts[-1] == sequence
        ):
            self.counts[-1] += 1
            self.marks[-1] = mark
        else:
            self.streams.append(route_number)
            self.firsts.append(sequence)
            self.counts.append(1)
            self.marks.append(mark)
            self.kinds.append(kind)
        self._after_large = is_large or alone  # it has a run of its own, so that its mark is its own
        self.events.append(event)

    def add_block(self, stream: Any, kind: int, block: Any, count: int) -> None:
        """Many events of a stream at once, in a run of their own; `published_bytes` counts them already."""
        self.begin_run(stream, kind)
        self.end_run()
        self.streams.append(stream.route.number)
        self.firsts.append(stream.next_sequence)
        self.counts.append(count)
        self.marks.append(stream.published_bytes)
        self.kinds.append(kind)
        self.events.append(block)
        self.gathered_bytes += len(block)
        self._after_large = True  # nothing joins its run
        stream.next_sequence += count
        stream.blocks += 1
        stream.records_in_blocks += count

    def add_mixed(
        self, mixture: Mixture, lanes: Lanes, sequences: Column, marks: Column, events: list[Any], size_bytes: int
    ) -> None:
        """Append events of a mixture, with their numbers."""
        self.end_run()
        if self.mixture is not mixture:
            if self.mixture is not None or self.events or self._has_said:
                self._close_part()
            self.mixture = mixture
        self._numbered = (*self._numbered, (lanes, sequences, marks))
        self.events += events
        self.gathered_bytes += size_bytes

    def say(self, entry: list[Any]) -> None:
        """Add an entry that is to be read behind all events gathered so far; in a mixed pack entries come first."""
        if self.mixture is not None:
            self._close_part()
        self.control.append(entry)
        self._has_said = True

    def widen_gap(self, route_number: int, first: int, last: int) -> bool:
        """Let the gap that was gathered last end later; False where `first` does not follow on it."""
        self.end_run()
        is_next = self.streams and self.streams[-1] == route_number and self.kinds[-1] == GAP
        if not is_next or self.events[-1] + 1 != first:
            return False
        self.events[-1] = last
        return True

    def forget_route(self, number: int) -> None:
        """Forget a route, when what was gathered has left: its stream goes by another one."""
        if number in self.stream_of_route:  # else nothing has gone by it
            self._left_now.append(number)

    def take(self, delivery: int = 0) -> tuple[Part, ...]:
        """Everything gathered, the packs that leave now, in order; the next one begins empty. Somebody waits for the
        last event, where there is a `delivery`.
        """
        self.end_run()
        if self._left_before or self._left_now:
            for number in self._left_before:
                self.stream_of_route.pop(number, None)
            self._left_before, self._left_now = self._left_now, []
        parts = self.parts
        if self.events or self.control:
            last = self._columns(delivery), self.gathered_bytes
            parts = (*parts, last) if parts else (last,)
        self._reset()
        return parts

    def _columns(self, delivery: int) -> PackColumns | MixedColumns:
        if self.mixture is not None:
            return self.mixture.columns(self.control, self._numbered, self.events)
        kinds, tokens = as_wire(self.kinds, self.counts)
        return PackColumns(
            self.control, self.streams, self.firsts, self.counts, self.marks, kinds, delivery, self.events, 0.0, tokens
        )

    def _close_part(self) -> None:
        parts = (*self.parts, (self._columns(0), self.gathered_bytes))
        kept = self.has_large, self.was_left, self.began_at, self.due_at, self.due_by
        self._reset()
        self.parts = parts
        self.has_large, self.was_left, self.began_at, self.due_at, self.due_by = kept
