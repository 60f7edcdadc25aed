"""Parts of entries are what a reader would have taken of them."""

from __future__ import annotations

import msgspec
import pytest

from echannel_ray.logs.entries import FILE, Entry
from echannel_ray.protocol.kinds import BLOCK, PICKLED, PLAIN, RECORD
from echannel_ray.retained.cutting import cut
from echannel_ray.retained.reading import events_of

PAYLOADS = [b"a" * 10, "text", 3, None, 4.5, b"", "", 2**40]


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
    block = Entry(100, 8, BLOCK, 5, bytes(range(32)), "p", 7, 1.5)
    part = cut(block, 103, 105)
    assert (part.first, part.count, part.sequence, part.data) == (103, 2, 10, bytes(range(12, 20)))


@pytest.mark.parametrize(
    "whole",
    [
        Entry(100, 8, FILE, 0, b"/a/file", "", 0, 0.0),
        Entry(100, 8, PLAIN, 0, b"\xc1", "", 0, 0.0),
        entry(count=9),
    ],
    ids=["a file", "nonsense", "fewer than it says"],
)
def test_what_stays_whole(whole):
    assert cut(whole, 102, 104) is whole
