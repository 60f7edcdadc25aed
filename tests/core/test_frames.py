"""Frames: each type there and back, byte by byte, and everything that is no frame."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core import frames
from echannel_ray.core.frames import HEADER, HEADER_BYTES, LEAST_BODY, MAGIC, MAX_FRAME_BYTES, MalformedFrame

KINDS = [kind for kind, least in enumerate(LEAST_BODY) if least <= MAX_FRAME_BYTES]
EXACT = sorted(frames._EXACT)


def one_of_each() -> list[bytes]:
    return [
        *(frames.frame(kind, bytes(range(LEAST_BODY[kind])), flags=kind % 3) for kind in KINDS),
        frames.pack_head(1, 2, 3, 0, frames.IS_RESENT, 5) + b"hello",
        frames.probe(1, 2, 3, 4),
        frames.ack(1, 2, 3, 4),
        frames.flow_declaration(1, 2, 3, [(4, 5), (6, 7)]),
        frames.flow_declaration(1, 2, 3, []),
    ]


def test_there_are_the_frames_that_the_protocol_names() -> None:
    links = {frames.HELLO, frames.WELCOME, frames.REFUSED, frames.HEARTBEAT, frames.GOODBYE}
    named = {*links, *range(16, 24), *range(32, 39), *range(48, 52)}
    assert set(KINDS) == named


@pytest.mark.parametrize("whole", one_of_each(), ids=lambda whole: str(whole[4]))
def test_a_frame_is_read_back(whole: bytes) -> None:
    (each,) = frames.scan(whole, 0, len(whole))
    assert each.kind == whole[4]
    assert each.flags == whole[5]
    assert (each.start, each.end) == (HEADER_BYTES, len(whole))
    assert frames.frame(each.kind, whole[each.start : each.end], each.flags) == whole


def test_every_split_of_a_stream_reads_the_same() -> None:
    stream = b"".join(one_of_each())
    expected = [(f.kind, f.start, f.end) for f in frames.scan(stream, 0, len(stream))]
    got, start = [], 0
    for end in range(len(stream) + 1):
        for each in frames.scan(stream, start, end):
            got.append((each.kind, each.start, each.end))
            start = each.end
    assert got == expected
    assert start == len(stream)


def test_the_parts_of_a_pack_are_where_relays_look() -> None:
    whole = frames.pack_head(1, 2, 3, 4, frames.IS_CHUNK, 3) + b"abc"
    (each,) = frames.scan(whole, 0, len(whole))
    assert frames.PACK_FIXED.unpack_from(whole, each.start) == (1, 2, 3, 4)
    assert frames.KEY.unpack_from(whole, each.start) == (1, 2)
    assert whole[each.start + frames.PACK_FIXED.size : each.end] == b"abc"


def test_addressed_frames_begin_with_their_address() -> None:
    layouts = (frames.ANSWER_FIXED, frames.CREDIT_FIXED, frames.RESULT_FIXED, frames.RESULT_WANTED_FIXED)
    for layout in (*layouts, frames.CREDIT_WANTED_FIXED):
        body = layout.pack(*range(1, len(layout.unpack(bytes(layout.size))) + 1))
        assert frames.ADDRESS.unpack_from(body) == (1, 2)


def test_a_flow_is_read_back() -> None:
    whole = frames.flow_declaration(1, 2, 3, [(4, 5), (6, 7)])
    assert frames.parse_flow(whole[HEADER_BYTES:]) == frames.Flow(1, 2, 3, ((4, 5), (6, 7)))


@pytest.mark.parametrize("extra", range(1, frames.ADDRESS.size))
def test_a_flow_with_half_a_destination_is_malformed(extra: int) -> None:
    body = frames.flow_declaration(1, 2, 3, [(4, 5)])[HEADER_BYTES:] + bytes(extra)
    with pytest.raises(MalformedFrame):
        frames.parse_flow(body)


def test_another_wire_version_is_malformed() -> None:
    for magic in (MAGIC + 1, MAGIC - 1, 0, 0xFFFF):
        data = HEADER.pack(0, frames.HEARTBEAT, 0, magic)
        with pytest.raises(MalformedFrame, match="version"):
            list(frames.scan(data, 0, len(data)))


def test_a_frame_too_long_is_refused_by_its_header() -> None:
    data = HEADER.pack(MAX_FRAME_BYTES + 1, frames.PACK, 0, MAGIC)
    with pytest.raises(MalformedFrame, match="limit"):
        list(frames.scan(data, 0, len(data)))
    data = HEADER.pack(frames.MAX_GREETING_BYTES + 1, frames.HELLO, 0, MAGIC)
    with pytest.raises(MalformedFrame, match="limit"):
        list(frames.scan(data, 0, len(data), frames.MAX_GREETING_BYTES))


@pytest.mark.parametrize("kind", range(256))
def test_a_body_too_short_or_of_no_type_is_malformed(kind: int) -> None:
    least = LEAST_BODY[kind]
    if kind not in KINDS:
        with pytest.raises(MalformedFrame):
            frames.check_header(100, kind, MAGIC)
        return
    frames.check_header(least, kind, MAGIC)
    if least:
        with pytest.raises(MalformedFrame, match="short"):
            frames.check_header(least - 1, kind, MAGIC)
    if kind in EXACT:
        with pytest.raises(MalformedFrame, match="long"):
            frames.check_header(least + 1, kind, MAGIC)


@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_malformed(data: bytes) -> None:
    try:
        found = list(frames.scan(data, 0, len(data)))
    except MalformedFrame:
        return
    assert all(LEAST_BODY[each.kind] <= each.end - each.start for each in found)


def test_damaged_streams_are_frames_or_malformed() -> None:
    rng = random.Random(1)
    whole = b"".join(one_of_each())
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = data[: rng.randrange(len(data))]
        try:
            for each in frames.scan(cut, 0, len(cut)):
                assert each.end <= len(cut)
                if each.kind == frames.FLOW:
                    frames.parse_flow(cut[each.start : each.end])
        except MalformedFrame:
            pass
