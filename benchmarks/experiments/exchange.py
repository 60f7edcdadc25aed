"""How long do a record and its answer take, and how many bytes a second go one way, from 100 B to 1 MB?

The records have fields of several kinds. Ours are on typed channels. The bytes are those of the records, in whatever
form they travel. JSON is text on our own channels. MPI and gRPC go straight from process to process, ours and the bare
sockets by a third one; only the bare sockets and gRPC carry bytes that nobody makes of anything or into anything. Of
small records the bare sockets pack as many as fit into 64 KB. The asking process has a core of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from time import perf_counter
from typing import Any, NamedTuple

from echannel_ray.benchmarks.baselines import grpc_stream, mpi
from echannel_ray.benchmarks.baselines.grpc_stream import GrpcStream
from echannel_ray.benchmarks.baselines.json_records import JsonRecords
from echannel_ray.benchmarks.baselines.mpi import MpiPair
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.parties import DRAIN_SECONDS
from echannel_ray.benchmarks.harness.pinning import PLACEMENTS, place
from echannel_ray.benchmarks.harness.records import LARGEST, SIZES, count_of, filled, quote
from echannel_ray.benchmarks.harness.rows import Figure, Row, skipped
from echannel_ray.benchmarks.harness.samples import Measure, Plan, Samples, interleave, sized
from echannel_ray.benchmarks.harness.typed import TypedConsumer, TypedField, TypedProducer, channel_of

LATENCY, BANDWIDTH = "latency", "bandwidth"
FIGURES = (
    Figure(
        LATENCY,
        "A record and its answer",
        "size of a record (bytes)",
        "time of a round trip",
        log_x=True,
        log_y=True,
        paper="ECho, figures 7A (2001) and 2 (2000)",
    ),
    Figure(
        BANDWIDTH,
        "Records one way",
        "size of a record (bytes)",
        "MB/s of the original data",
        log_x=True,
        log_y=True,
        paper="ECho, figures 7B (2001) and 3 (2000)",
    ),
)
OURS, IN_BULK, JSON, GRPC, MPI = "echannel_ray", "echannel_ray, in bulk", "JSON text", "grpcio", "mpi4py"
MPI_IN_BULK, BARE = "mpi4py, in bulk", "bare sockets"
SHORT_SIZES = ("100 B", "10 KB", "1 MB")
# Two ranks of MPI on one core would only wait for each other's turn: it looks for messages without a pause.
PLACED = PLACEMENTS[-1]
PACK_BYTES = 64 << 10


class Asker(TypedProducer):
    """Publishes a record and waits for the answer."""

    def __init__(self, namespace: str, seed: int) -> None:
        super().__init__(namespace, seed)
        self._answers: dict[str, Any] = {}

    def open_round_trip(self, name: str, event_type: Any) -> None:
        """Two channels: one there and one back."""
        self._producers[name] = channel_of(f"{name}, there", event_type).producer()
        self._answers[name] = channel_of(f"{name}, back", event_type).subscribe()

    def round_trip_seconds(self, kind: str, name: str, count: int) -> float:
        """Seconds from `publish` until the answer is here."""
        publish, get = self._producers[name].publish, self._answers[name].get
        began = perf_counter()
        for event in islice(cycle(self._events[kind]), count):
            publish(event)
            get(timeout=DRAIN_SECONDS)
        return (perf_counter() - began) / count


class Answerer(TypedConsumer):
    """Sends each record back."""

    def open_round_trip(self, name: str, event_type: Any) -> None:
        """The other ends."""
        back = channel_of(f"{name}, back", event_type).producer()
        channel_of(f"{name}, there", event_type).subscribe(back.publish)


class ExchangeField(TypedField):
    """An asker, an answerer, and the others' programs."""

    producer_class = Asker
    consumer_class = Answerer

    def connect_all(self, size: str, dtype: Any) -> None:
        """The channels for records of a size, typed and as text."""
        self.make(size, dtype)
        self.connect_typed(f"{size}, in bulk", dtype, batches="numpy")
        for name, event_type in {size: dtype, f"{size}, JSON": JsonRecords(dtype)}.items():
            self.connect_typed(name, event_type)
            answer(self.producer.open_round_trip.remote(f"{name}, round trip", event_type))
            answer(self.consumers[0].open_round_trip.remote(f"{name}, round trip", event_type))

    def round_trip_seconds(self, kind: str, name: str, count: int) -> float:
        """Seconds from `publish` at the asker until the answer is back there."""
        return float(answer(self.producer.round_trip_seconds.remote(kind, f"{name}, round trip", count)))


class Parties(NamedTuple):
    """Who carries records here."""

    field: ExchangeField
    bare: BareSockets
    stream: GrpcStream | None
    ranks: MpiPair | None


def run(plan: Plan) -> list[Row]:
    """Round trips, then one way, for each size; what is not installed is left out by name."""
    sizes = {size: quote(numbers) for size, numbers in (SIZES | LARGEST).items()}
    if plan.short:
        sizes = {size: sizes[size] for size in SHORT_SIZES}
    rows = [skipped(name, why) for name, why in ((GRPC, grpc_stream.MISSING), (MPI, mpi.MISSING)) if why]
    with ExitStack() as stack:
        parties = Parties(
            stack.enter_context(ExchangeField(plan, "bench-exchange")),
            stack.enter_context(BareSockets()),
            None if grpc_stream.MISSING else stack.enter_context(GrpcStream()),
            None if mpi.MISSING else stack.enter_context(MpiPair()),
        )
        for size, dtype in sizes.items():
            parties.field.connect_all(size, dtype)
        parties.field.place(PLACED)
        for other in filter(None, parties[1:]):
            place(PLACED, other.source_pids, other.other_pids)
        for size, dtype in sizes.items():
            blobs = [record.tobytes() for record in filled(dtype, count_of(dtype), plan.seed)]
            rows += _round_trips(plan, parties, size, dtype, blobs)
            rows += _one_way(plan, parties, size, dtype, blobs)
    return rows


def _round_trips(plan: Plan, parties: Parties, size: str, dtype: Any, blobs: list[bytes]) -> list[Row]:
    field, bare, stream, ranks = parties
    seconds = {
        OURS: partial(field.round_trip_seconds, size, size),
        JSON: partial(field.round_trip_seconds, size, f"{size}, JSON"),
        BARE: partial(bare.round_trip_seconds, blobs[0]),
    }
    if stream:
        seconds[GRPC] = partial(stream.round_trip_seconds, blobs)
    if ranks:
        seconds[MPI] = partial(ranks.round_trip_seconds, dtype)
    measures = {name: _trip(plan, measure) for name, measure in seconds.items()}
    taken = interleave(plan, measures, "s", higher_is_better=False)
    return _against(f"a record of {size} and its answer", LATENCY, dtype.itemsize, OURS, taken)


def _trip(plan: Plan, seconds_of: Any) -> Measure:
    rate = sized(plan, lambda count: 1 / float(seconds_of(count)), 4)
    return lambda: 1 / rate()


def _one_way(plan: Plan, parties: Parties, size: str, dtype: Any, blobs: list[bytes]) -> list[Row]:
    field, bare, stream, ranks = parties
    pack = PACK_BYTES // dtype.itemsize
    rates = {
        OURS: partial(field.rate, size, [size]),
        JSON: partial(field.rate, size, [f"{size}, JSON"]),
        BARE: partial(bare.packed_rate, "bytes", blobs, pack) if pack else partial(bare.large_rate, blobs),
    }
    in_bulk = {IN_BULK: partial(field.rate_in_bulk, size, f"{size}, in bulk")}
    if stream:
        rates[GRPC] = partial(stream.rate, blobs)
    if ranks:
        rates[MPI] = partial(ranks.rate, dtype)
        in_bulk[MPI_IN_BULK] = partial(ranks.rate, dtype, in_bulk=True)
    measures = {name: _megabytes(plan, rate, dtype.itemsize) for name, rate in (rates | in_bulk).items()}
    taken = interleave(plan, measures, "MB/s", higher_is_better=True)
    return [
        row
        for way, ours, names in (("one by one", OURS, rates), ("in bulk", IN_BULK, in_bulk))
        for row in _against(
            f"records of {size}, {way}", BANDWIDTH, dtype.itemsize, ours, {name: taken[name] for name in names}
        )
    ]


def _megabytes(plan: Plan, rate_of: Any, record_bytes: int) -> Measure:
    rate = sized(plan, rate_of, 10, 20_000_000)
    return lambda: rate() * record_bytes / 1e6


def _against(what: str, figure: str, x: int, ours: str, taken: Mapping[str, Samples]) -> list[Row]:
    """A row for each of the others; one by itself where there is none."""
    row = Row(what, PLACED, taken[ours], figure=figure, x=x, series=ours)
    others = [name for name in taken if name != ours]
    return [replace(row, against=name, baseline=taken[name]) for name in others] or [row]
