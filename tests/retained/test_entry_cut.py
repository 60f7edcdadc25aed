"""Parts of entries are what a reader would have taken of them."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from echannel_ray.core.kinds import BLOCK, PICKLED, PLAIN, RECORD
from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.records.arrow import batch_block
from echannel_ray.records.known import learn
from echannel_ray.records.writer import format_of
from echannel_ray.retained.entry_events import cut, events_of

PAYLOADS = [b"a" * 10, "text", 3, None, 4.5, b"", "", 2**40]


COLUMNS = pa.record_batch({"number": pa.array(range(8), pa.int32())})
FOUR_BYTES = np.dtype([("number", "<i4")])


def block(data, of=FOUR_BYTES):
    return Entry(100, 8, BLOCK, learn(format_of(of)), data, "p", 7, 1.5)


def entry(kind=PLAIN, payloads=PAYLOADS, count=8):
    return Entry(100, count, kind, 0, msgspec.msgpack.encode(payloads), "p", 7, 1.5)


@pytest.mark.parametrize("kind", [PLAIN, RECORD, PICKLED])
@pytest.mark.parametrize(("start", "stop"), [(100, 108), (90, 103), (102, 105), (107, 200), (100, 101)])
def test_a_part_is_what_lies_between(kind, start, stop):
    part = cut(entry(kind), start, stop)
    begin, end = max(start, 100) - 100, min(stop, 108) - 100
    assert (part.first, part.count, part.sequence) == (100 + begin, end - begin, 7 + begin)
    assert msgspec.msgpack.decode(part.data) == PAYLOADS[begin:end]
    assert (part.kind, part.producer, part.published_at) == (kind, "p", 1.5)
    if kind == PLAIN:
        assert events_of(part, start, stop) == events_of(entry(), start, stop)


def test_a_part_of_a_block():
    part = cut(block(np.arange(8, dtype="<i4").view(FOUR_BYTES).tobytes()), 103, 105)
    assert (part.first, part.count, part.sequence) == (103, 2, 10)
    assert np.frombuffer(part.data, "<i4").tolist() == [3, 4]


@pytest.mark.parametrize(
    "whole",
    [
        Entry(100, 8, FILE, 0, b"/a/file", "", 0, 0.0),
        Entry(100, 8, PLAIN, 0, b"\xc1", "", 0, 0.0),
        entry(count=9),
        Entry(100, 8, BLOCK, 5, bytes(32), "p", 7, 1.5),
        block(bytes(33)),
        block(batch_block(COLUMNS), COLUMNS.schema),
    ],
    ids=["a file", "nonsense", "fewer than it says", "an unknown format", "a block too long", "columns of Arrow"],
)
def test_what_stays_whole(whole):
    assert cut(whole, 102, 104) is whole
