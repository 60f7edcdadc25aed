"""Bodies of packs: what is one comes back as it was, and whatever else comes is refused in one way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echannel_ray.core.kinds import BLOCK, BUFFERS, GAP, PICKLED, PLAIN, RECORD
from echannel_ray.formats.events import encode
from echannel_ray.formats.packs import (
    MalformedPack,
    PackBody,
    Undecodable,
    decode_body,
    decode_events,
)
from tests.formats.bodies import encode_body, encode_in_segments

GOOD: tuple[Any, ...] = ([], [7], [1], [2], [50], b"", 0, 1.5, [b"a", b"b"])
PLAIN_EVENTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
)


def packed(*changes, **replaced):
    names = ("control", "streams", "firsts", "counts", "marks", "kinds", "delivery", "stamp", "events")
    values = dict(zip(names, GOOD, strict=True)) | replaced
    return msgspec.msgpack.encode([*values.values(), *changes])


@given(st.lists(st.lists(PLAIN_EVENTS, min_size=1, max_size=4), max_size=4), st.integers(0, 2**64 - 1))
def test_plain_events_in_runs(runs, delivery):
    events = [event for run in runs for event in run]
    control = [["stream", 1, {"name": "a/b"}], 3, "x"]
    streams = list(range(len(runs)))
    counts = [len(run) for run in runs]
    fives = [5] * len(runs)
    body = decode_body(encode_body(control, streams, fives, counts, fives, b"", delivery, 1.5, events))
    assert body.control == control
    assert (body.streams, body.firsts, body.counts, body.marks) == (streams, fives, counts, fives)
    assert (body.delivery, body.stamp) == (delivery, 1.5)
    arrived = decode_events(body)
    assert arrived == events
    assert [type(event) for event in arrived] == [type(event) for event in events]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        packed()[:-1],
        packed() + b"\x00",
        packed(1),
        packed(control=None),
        packed(control=msgspec.msgpack.Ext(5, b"x")),
        packed(control=[msgspec.msgpack.Ext(5, b"x")]),
        packed(streams=[-1]),
        packed(streams=[1.5]),
        packed(streams=["1"]),
        packed(streams=[1, 2]),
        packed(streams=[]),
        packed(firsts=[0]),
        packed(firsts=[1, 1]),
        packed(counts=[3]),
        packed(counts=[0]),
        packed(counts=[-2]),
        packed(counts=[]),
        packed(streams=[1, 2], firsts=[1, 1], counts=[1, 2], marks=[0, 0]),
        packed(streams=[1, 2], firsts=[1, 1], counts=[1, 1], marks=[0]),
        packed(streams=[], firsts=[], counts=[], marks=[]),
        packed(marks=[-1]),
        packed(marks=[]),
        packed(marks=[1, 2]),
        packed(stamp="now"),
        packed(stamp=None),
        packed(kinds="x"),
        packed(kinds=b"\x09"),
        packed(kinds=b"\x00\x01\x00"),
        packed(kinds=b"\x01\x09"),
        packed(kinds=b"\x01", events=["a", b"b"]),
        packed(kinds=b"\x00\x01", events=[b"a", 1]),
        packed(kinds=b"\x00\x03"),
        packed(kinds=b"\x03"),
        packed(kinds=b"\x00\x03", events=[b"a", 0]),
        packed(kinds=b"\x00\x03", events=[b"a", True]),
        packed(delivery=-1),
        packed(delivery=None),
        packed(events=[b"a"]),
        packed(events=b"ab"),
        packed(events=[b"a", [1]]),
        packed(events=["a", {}]),
        packed(events=[1, msgspec.msgpack.Ext(5, b"x")]),
        packed(events=[b"a", "b", []], counts=[3]),
        packed(events=[b"a", "b", msgspec.msgpack.Ext(5, b"x")], counts=[3]),
        b"\x99" + b"\x91" * 100_000,
        b"\x99\xdd\xff\xff\xff\xff",
        b"\x99\x91\xa1\xff",
        b"\x99\x91\x81\x80\x00",
    ],
)
def test_anything_else_is_refused(body):
    with pytest.raises(MalformedPack):
        decode_body(body)
    assert issubclass(MalformedPack, ValueError)


def decode_or_refuse(data):
    try:
        body = decode_body(data)
    except MalformedPack:
        return
    assert isinstance(body, PackBody)
    assert sum(body.counts) == len(body.events)
    if not set(body.kinds) & {PICKLED, BUFFERS}:  # pickles of strangers are never opened
        decode_events(body)


@settings(max_examples=500)
@given(st.binary(max_size=200))
@example(b"\x99\x90\x90\x90\x90\x90\xc4\x00\x00\x00\x90")
def test_noise(data):
    decode_or_refuse(data)


ANY_VALUE = st.recursive(
    st.one_of(PLAIN_EVENTS, st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.integers(0, len(GOOD) - 1), ANY_VALUE)
def test_a_body_with_one_part_replaced(position, value):
    try:
        data = msgspec.msgpack.encode([*GOOD[:position], value, *GOOD[position + 1 :]])
    except (UnicodeEncodeError, OverflowError):
        return
    decode_or_refuse(data)


@settings(max_examples=500)
@given(st.data())
def test_a_body_with_bytes_damaged(data):
    body = bytearray(encode_body([["s", 1, "n"]], [7, 8], [1, 9], [1, 2], [3, 4], b"\0", 5, 1.5, [b"abc", "d", 1.5]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(body[: data.draw(st.integers(0, len(body)))]))


def test_one_that_fails_to_decode_loses_no_other():
    gone = b"\x80\x05cno_such_module\nThing\n."
    fine = encode((1, 2))[1]
    for kinds in (b"\x01", b"\x01\x01\x01"):
        body = encode_body([], [1], [1], [3], [0], kinds, 0, 1.5, [fine, gone, fine])
        first, middle, last = decode_events(decode_body(body))
        assert first == last == (1, 2)
        assert isinstance(middle, Undecodable)
        assert isinstance(middle.error, ModuleNotFoundError)
        assert middle.payload == gone


def test_kinds_in_all_three_lengths():
    pickled = encode((1,))[1]
    plain = encode_body([], [1], [1], [2], [0], b"\x00", 0, 1.5, [b"a", "b"])
    assert decode_events(decode_body(plain)) == [b"a", "b"]
    kinds = bytes((PLAIN, PICKLED, BUFFERS, GAP))
    mixed = encode_body([], [1], [1], [4], [0], kinds, 0, 1.5, [1, pickled, b"short", 9])
    first, second, third, gap = decode_events(decode_body(mixed))
    assert (first, second, gap) == (1, (1,), 9)
    assert isinstance(third, Undecodable)
    gaps = encode_body([], [1], [1], [2], [0], bytes((GAP,)), 0, 1.5, [4, 9])
    assert decode_events(decode_body(gaps)) == [4, 9]
    assert decode_events(decode_body(encode_body([[1]], [], [], [], [], b"", 0, 1.5, []))) == []


def test_any_buffer_will_do():
    data = encode_body(*GOOD)
    for buffer in (data, bytearray(data), memoryview(b"x" + data)[1:]):
        assert decode_body(buffer).events == [b"a", b"b"]


TOKENS = bytes(range(1, 9)) + bytes(8) + bytes(range(11, 19))
TYPED: tuple[Any, ...] = (
    [], [7, 8, 7], [1, 1, 2], [1000, 2, 1], [5, 5, 5], bytes((BLOCK, PLAIN, PLAIN, RECORD)), 0, 1.5,
    [b"block" * 3000, b"a", 2, b"record"], TOKENS,
)  # fmt: skip


@pytest.mark.parametrize("encode_body", [encode_body, encode_in_segments])
def test_records_and_blocks(encode_body):
    body = decode_body(encode_body(*TYPED))
    assert (body.counts, body.tokens) == ([1000, 2, 1], TOKENS)
    assert decode_events(body) == [b"block" * 3000, b"a", 2, b"record"]
    sole = decode_body(encode_body([], [7], [1], [500], [5], bytes((BLOCK,)), 0, 1.5, [b"block"], bytes(7) + b"\1"))
    assert decode_events(sole) == [b"block"]
    pair = decode_body(encode_body([], [7], [1], [2], [5], bytes((RECORD,)), 0, 1.5, [b"a", b"b"], bytes(7) + b"\1"))
    assert decode_events(pair) == [b"a", b"b"]


@given(st.lists(st.binary(max_size=6000), min_size=1, max_size=40), st.booleans())
def test_segments_make_the_same_body(events, is_typed):
    runs = ([7], [1], [len(events)], [5], bytes((RECORD,)) if is_typed else b"", 0, 1.5, events)
    tokens = bytes(7) + b"\1" if is_typed else b""
    assert decode_body(encode_in_segments([], *runs, tokens)) == decode_body(encode_body([], *runs, tokens))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (3, [1000, 2, 2]),
        (3, [1000, 1, 1]),
        (3, [1000, 2, 1, 1]),
        (5, bytes((BLOCK,))),
        (5, bytes((RECORD, PLAIN, PLAIN, RECORD))),
        (5, bytes((BLOCK, PLAIN, RECORD, RECORD))),
        (5, b""),
        (8, [b"block", b"a", 2, "record"]),
        (8, [b"block", b"a", 2, b"record", b"more"]),
        (8, [b"block"]),
        (9, b""),
        (9, TOKENS[:-1]),
        (9, TOKENS + bytes(8)),
        (9, bytes(24)),
        (9, TOKENS[:8] * 3),
    ],
)
def test_records_that_make_no_sense(place, value):
    parts = [*TYPED]
    parts[place] = value
    with pytest.raises(MalformedPack):
        decode_body(encode_body(*parts))
