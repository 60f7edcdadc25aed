"""What do encoding, transfer and decoding of a record take, from 100 B to 100 KB, in this format and in others?

A record that a program has becomes bytes, and these the record of another program, whose fields have the same byte
order or the other one. In one process; transfers are half a round trip over the bare sockets, by a third process, of
as many bytes as a format makes. JSON and pickle (protocol 5) end, as ours, as a record of NumPy. MPI packs by derived
datatypes, into a buffer that is there. Then what a sender does in all, up to the socket: the same for any size.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from echannel_ray.benchmarks.baselines import mpi
from echannel_ray.benchmarks.baselines.json_records import JsonRecords
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.harness.alone import Alone, Timed, copied, difference, timed, timed_on_fresh
from echannel_ray.benchmarks.harness.pinning import place
from echannel_ray.benchmarks.harness.records import SIZES, filled, frozen, quote
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most, skipped
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave
from echannel_ray.benchmarks.harness.up_to_socket import Sending
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.schemas import types

OURS, JSON, PICKLE, MPI = "echannel_ray", "JSON", "pickle", "MPI pack"
STEPS = {
    "encode": "Encoding a record",
    "transfer": "Transfer of an encoded record",
    "decode": "Decoding a record of the same layout",
    "decode, other byte order": "Decoding a record of the other byte order",
}
PAPER = "ECho, tables 1 and 2 (2000)"
FIGURES = tuple(
    Figure(step, title, "size of a record (bytes)", "time", log_x=True, log_y=True, paper=PAPER)
    for step, title in STEPS.items()
)
GOALS = (
    at_most(
        1.3,
        "encoding a larger record that nobody can change, against one of 100 B",
        "encode .* nobody can change",
        ".*",
    ),
)
MAX_CALLS = 20_000  # making the bytes takes longer than decoding them


def run(plan: Plan) -> list[Row]:
    """The three steps for each size, then all of what a sender does."""
    rows = [skipped(MPI, mpi.MISSING)] if mpi.MISSING else []
    rows.append(skipped("MPI pack, other byte order", "MPICH ends the process that packs such structs as external32"))
    with BareSockets() as bare:
        place("one", bare.source_pids, bare.other_pids)
        for size, numbers in SIZES.items():
            with Alone(_formats, numbers, plan.seed) as alone:
                taken = interleave(plan, alone.measures(plan, max_calls=MAX_CALLS), "s", higher_is_better=False)
            taken |= _transfers(plan, bare, quote(numbers))
            rows += _steps(size, quote(numbers).itemsize, taken)
    return rows + _sending(plan)


def _steps(size: str, record_bytes: int, taken: Mapping[str, Samples]) -> list[Row]:
    return [
        Row(f"{step}, a record of {size}", "one", taken[f"{OURS}: {step}"], other, theirs, figure=step, x=record_bytes)
        for step in STEPS
        for other in (JSON, PICKLE, MPI)
        if (theirs := taken.get(f"{other}: {step}"))
    ]


# ---- the formats ----


def _formats(numbers: int, seed: int) -> Mapping[str, Timed]:
    dtype = quote(numbers)
    array = filled(dtype, 1, seed)
    measures = _ours(array) | _json(array) | _pickle(array)
    return measures if mpi.MISSING else measures | _mpi(array)


def _ours(array: Any) -> dict[str, Timed]:
    record, dtype = array[0], array.dtype
    reader, encode = Reader(dtype, types.schema_of(dtype)), Sending(dtype).encode
    measures = {f"{OURS}: encode": timed(lambda: encode(record))}
    for step, sent in (("decode", dtype), ("decode, other byte order", dtype.newbyteorder("S"))):
        came = format_of_dtype(sent, types.schema_of(sent))
        decode = partial(_first, reader, came)
        measures[f"{OURS}: {step}"] = _decoding(decode, array.astype(sent).tobytes(), record)
    return measures


def _first(reader: Reader, came: Any, payload: bytes) -> Any:
    return reader.events(came, [payload])[0]


def _json(array: Any) -> dict[str, Timed]:
    records, record = JsonRecords(array.dtype), array[0]
    decoding = _decoding(records.decode, records.encode(record), record)
    return {
        f"{JSON}: encode": timed(lambda: records.encode(record)),
        f"{JSON}: decode": decoding,
        f"{JSON}: decode, other byte order": decoding,  # text has none
    }


def _pickle(array: Any) -> dict[str, Timed]:
    record, dtype = array[0], array.dtype
    foreign = array.astype(dtype.newbyteorder("S"))[0]
    loads, dumps = pickle.loads, pickle.dumps
    return {
        f"{PICKLE}: encode": timed(lambda: dumps(record, 5)),
        f"{PICKLE}: decode": _decoding(loads, dumps(record, 5), record),
        f"{PICKLE}: decode, other byte order": _decoding(
            lambda data: np.asarray(loads(data)).astype(dtype)[()], dumps(foreign, 5), record
        ),
    }


def _mpi(array: Any) -> dict[str, Timed]:
    from echannel_ray.benchmarks.baselines.mpi_rank import MPI as library  # noqa: N811
    from echannel_ray.benchmarks.baselines.mpi_rank import derived

    kind, alone, arrived = derived(array.dtype), library.COMM_SELF, np.zeros_like(array)
    packed = bytearray(kind.Pack_size(1, alone))
    kind.Pack(array, packed, 0, alone)

    def unpack(data: bytes) -> Any:
        kind.Unpack(data, 0, arrived, alone)
        return arrived[0]

    return {
        f"{MPI}: encode": timed(lambda: kind.Pack(array, packed, 0, alone)),
        f"{MPI}: decode": _decoding(unpack, bytes(packed), array[0]),
    }


def _decoding(decode: Any, data: bytes, record: Any) -> Timed:
    if decode(data) != record:
        raise AssertionError("a record arrives as another")
    return timed_on_fresh(decode, data)


# ---- on the way ----


def _transfers(plan: Plan, bare: BareSockets, dtype: np.dtype[Any]) -> dict[str, Samples]:
    record = filled(dtype, 1, plan.seed)[0]
    trips = 200 if plan.short else 1000
    encoded = {OURS: record.tobytes(), JSON: JsonRecords(dtype).encode(record), PICKLE: pickle.dumps(record, 5)}
    measures = {f"{name}: transfer": partial(_one_way_seconds, bare, data, trips) for name, data in encoded.items()}
    return interleave(plan, measures, "s", higher_is_better=False)


def _one_way_seconds(bare: BareSockets, data: bytes, trips: int) -> float:
    return bare.round_trip_seconds(data, trips) / 2


# ---- all that a sender does ----


def _senders(seed: int) -> Mapping[str, Timed]:
    measures: dict[str, Timed] = {}
    for size, numbers in SIZES.items():
        dtype = quote(numbers)
        array = filled(dtype, 1, seed)
        sending = Sending(dtype)
        measures[f"frozen {size}"] = partial(sending.seconds, frozen(array))
        measures[f"changeable {size}"] = partial(sending.seconds, array)
        measures[f"memcpy {size}"] = timed_on_fresh(copied, array.tobytes())
    return measures


def _sending(plan: Plan) -> list[Row]:
    with Alone(_senders, plan.seed) as alone:
        taken = interleave(plan, alone.measures(plan, max_calls=MAX_CALLS), "s", higher_is_better=False)
    smallest, *others = SIZES
    first = taken[f"frozen {smallest}"]
    rows = [
        Row(
            f"encode a record of {size} that nobody can change",
            "one",
            taken[f"frozen {size}"],
            smallest,
            first,
        )
        for size in others
    ]
    for size in SIZES:
        more = difference(taken[f"changeable {size}"], taken[f"frozen {size}"])
        what = f"encode a record of {size} that can be changed: what that adds"
        rows.append(Row(what, "one", more, "a memcpy of it", taken[f"memcpy {size}"]))
    return rows
