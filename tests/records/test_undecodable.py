"""Bytes that are no records: each is an `Undecodable` in its place, and takes no other with it."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.formats.packs import Undecodable
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import Writer, block_of, format_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of
from tests.records.everything import EVERYTHING, Everything, Side


@dataclasses.dataclass
class Plain:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)
    c: int = 7


@dataclasses.dataclass
class Less:
    a: int


def _cut(data):
    return [data[:end] for end in range(len(data))]


@pytest.mark.parametrize("event", [EVERYTHING, Plain(1, [1, 2])], ids=["everything", "plain"])
def test_what_is_cut_off_is_no_event(event):
    cls = type(event)
    write = Writer(cls, schema_of(cls))
    data = write(event)
    for payload in [*_cut(data), data + b"\0"]:
        (got,) = Reader(cls, schema_of(cls)).events(write.format, [payload])
        assert isinstance(got, Undecodable), payload


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc0", b"\xc1", b"\x93\x01\x90", b"\xdd\xff\xff\xff\xff", b"\x93\x01\xdd\xff\xff\xff\xff\x01",
        b"\x93\x01" + b"\x91" * 100_000, msgspec.msgpack.encode(["1", [], 1]), msgspec.msgpack.encode([1, ["x"], 1]),
        msgspec.msgpack.encode([2**63, [], 1]), msgspec.msgpack.encode([1, [], True]), msgspec.msgpack.encode({"a": 1}),
    ],
)  # fmt: skip
def test_other_bytes_are_no_event(payload):
    good = Writer(Plain, schema_of(Plain))(Plain(1))
    got = Reader(Plain, schema_of(Plain)).events(format_of(Plain), [good, payload, good])
    assert [type(each) for each in got] == [Plain, Undecodable, Plain]
    assert got[1].payload == payload


@given(st.binary(max_size=40))
def test_no_bytes_do_harm(payload):
    for cls in (Plain, Less, Everything):
        (got,) = Reader(cls, schema_of(cls)).events(format_of(cls), [payload])
        assert isinstance(got, cls | Undecodable)


def test_an_enum_has_its_members_only():
    @dataclasses.dataclass
    class Order:
        side: Side
        other: str

    record = schema_of(Order)
    wire = schema.Format(record, schema.MSGPACK)
    got = Reader(Order, record).events(wire, [msgspec.msgpack.encode(["b", ""]), msgspec.msgpack.encode(["x", ""])])
    assert got[0] == Order(Side.BUY, "")
    assert isinstance(got[1], Undecodable)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**40])
def test_a_block_has_the_size_that_it_says(count):
    for target in (Less, None, np.dtype([("a", "i8")])):
        reader = Reader(target, schema_of(Less))
        with pytest.raises(ValueError, match="bytes"):
            reader.rows(format_of(Less), bytes(16), count)


def test_one_record_out_of_range_takes_no_other_with_it():
    source = np.array([("9999-01-01",), ("2024-01-01",)], [("t", "M8[s]")])
    target = np.dtype([("t", "M8[ns]")])
    got = Reader(target, schema_of(target)).rows(format_of(source.dtype), block_of(source), 2)
    assert isinstance(got[0], Undecodable)
    assert got[1]["t"] == np.datetime64("2024-01-01")
