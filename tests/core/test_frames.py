"""Frames: each type there and back, byte by byte, and everything that is no frame."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core import frames
from echannel_ray.core.frames import HEADER, HEADER_BYTES, LEAST_BODY, MAGIC, MAX_FRAME_BYTES, MOST_BODY, MalformedFrame
from echannel_ray.core.framing import Framer
from tests.core.reading import found_in

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
    named = {*links, *range(16, 24), *range(32, 39), *range(48, 52), *range(64, 68)}
    assert set(KINDS) == named


@pytest.mark.parametrize("whole", one_of_each(), ids=lambda whole: str(whole[4]))
def test_a_frame_is_read_back(whole: bytes) -> None:
    (each,) = found_in(whole)
    assert each.kind == whole[4]
    assert each.flags == whole[5]
    assert (each.start, each.stop) == (HEADER_BYTES, len(whole))
    assert frames.frame(each.kind, each.body, each.flags) == whole


@pytest.mark.parametrize("step", [1, 2, 7, 20, 1000])
def test_every_split_of_a_stream_reads_the_same(step: int) -> None:
    """By one buffer, which another link uses in between."""
    stream = b"".join(one_of_each())
    framer, got, buffer = Framer(), [], bytearray(len(stream))
    for at in range(0, len(stream), step):
        have = framer.begin(buffer)
        piece = stream[at : at + step]
        buffer[have : have + len(piece)] = piece
        for kind, flags, start, stop in framer.frames(buffer, have + len(piece)):
            got.append((kind, flags, bytes(buffer[start:stop])))
        assert framer.needed_bytes >= len(framer.rest)
        buffer[:] = bytes(len(buffer))
    assert got == [(each.kind, each.flags, each.body) for each in found_in(stream)]
    assert not framer.rest


def test_it_is_known_how_many_bytes_a_long_frame_needs() -> None:
    whole = frames.frame(frames.REQUEST, bytes(100_000))
    framer = Framer()
    assert [*framer.frames(whole[:50], 50)] == []
    assert framer.needed_bytes == len(whole)


def test_a_greeting_opens_the_way_for_longer_frames() -> None:
    data = frames.frame(frames.HELLO, bytes(10)) + frames.frame(frames.REQUEST, bytes(1000))
    framer = Framer(max_bytes=100)
    found = framer.frames(data, len(data))
    assert next(found)[0] == frames.HELLO
    framer.max_bytes = MAX_FRAME_BYTES
    assert next(found)[0] == frames.REQUEST


def test_the_parts_of_a_pack_are_where_relays_look() -> None:
    whole = frames.pack_head(1, 2, 3, 4, frames.IS_CHUNK, 3) + b"abc"
    (each,) = found_in(whole)
    assert frames.PACK_FIXED.unpack_from(whole, each.start) == (1, 2, 3, 4)
    assert frames.KEY.unpack_from(whole, each.start) == (1, 2)
    assert each.body[frames.PACK_FIXED.size :] == b"abc"
    assert frames.NUMBER.unpack_from(each.body, frames.PACK_SCOPE_AT) == (4,)


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
        with pytest.raises(MalformedFrame, match="version") as refused:
            found_in(data)
        assert refused.value.wire_version == (magic & 0xFF if magic >> 8 == MAGIC >> 8 else None)


def test_a_frame_too_long_is_refused_by_its_header() -> None:
    data = HEADER.pack(MAX_FRAME_BYTES + 1, frames.PACK, 0, MAGIC)
    with pytest.raises(MalformedFrame, match="limit"):
        found_in(data)
    data = HEADER.pack(frames.MAX_GREETING_BYTES + 1, frames.HELLO, 0, MAGIC)
    with pytest.raises(MalformedFrame, match="limit"):
        found_in(data, frames.MAX_GREETING_BYTES)


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
        with pytest.raises(MalformedFrame, match="long"):
            found_in(frames.frame(kind, bytes(least + 1)))


@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_malformed(data: bytes) -> None:
    try:
        found = found_in(data)
    except MalformedFrame:
        return
    assert all(LEAST_BODY[each.kind] <= len(each.body) <= MOST_BODY[each.kind] for each in found)


def test_damaged_streams_are_frames_or_malformed() -> None:
    rng = random.Random(1)
    whole = b"".join(one_of_each())
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = data[: rng.randrange(len(data))]
        try:
            for each in found_in(bytes(cut)):
                assert each.stop <= len(cut)
                if each.kind == frames.FLOW:
                    frames.parse_flow(each.body)
        except MalformedFrame:
            pass
