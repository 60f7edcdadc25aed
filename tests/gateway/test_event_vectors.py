"""The test vectors of docs/gateway-protocol.md, against encoder and decoder."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.gateway import event_frames as frames
from tests.integrations.javascript import vectors

GOOD = [each for each in vectors() if "bad" not in each]
BAD = [each for each in vectors() if "bad" in each]


def bodies(data: bytes, max_bytes: int = 1 << 20) -> list[bytes]:
    return [*frames.FrameCutter(max_bytes).feed(data)]


def decode(vector: dict, body: bytes):
    return (frames.from_client if vector["from"] == "client" else frames.to_client)(body)


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: f"{vector['frame']['op']}-{vector['hex'][-6:]}")
def test_what_frames_mean(vector):
    data = bytes.fromhex(vector["hex"])
    (body,) = bodies(data)
    assert msgspec.msgpack.decode(body) == vector["frame"]
    message = decode(vector, body)
    assert frames.frame(message) == data
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message)) == vector["frame"]


@pytest.mark.parametrize("vector", BAD, ids=lambda vector: vector["bad"])
def test_what_is_refused(vector):
    with pytest.raises(frames.Malformed):
        decode(vector, bodies(bytes.fromhex(vector["hex"]))[0])


def test_there_is_a_vector_of_every_frame():
    ops = {vector["frame"]["op"] for vector in GOOD}
    classes = [*frames.FromClient.__args__, *frames.ToClient.__args__]
    assert ops == {each.__struct_config__.tag for each in classes}


def test_frames_come_in_any_pieces():
    data = b"".join(bytes.fromhex(vector["hex"]) for vector in GOOD)
    for size in (1, 3, 1000):
        reader = frames.FrameCutter(1 << 20)
        got = [body for at in range(0, len(data), size) for body in reader.feed(data[at : at + size])]
        assert got == bodies(data)
        assert len(got) == len(GOOD)


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_frame_or_malformed(data):
    for read in (frames.from_client, frames.to_client):
        try:
            assert read(data) is not None
        except frames.Malformed:
            pass


NESTED = b"\x91" * 900_000 + b"\xc0"
LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"\x83\xa2op\xa7publish\xa2id\x01\xa6events\x91" + NESTED,
        NESTED,
        msgspec.msgpack.encode({"op": "open", "id": 1, "channel": LONG}),
        msgspec.msgpack.encode({"op": LONG, "id": 1}),
        msgspec.msgpack.encode({LONG: 1, "op": "ping", "id": 1}),
        b"\x82\xa2op\xa4ping\xa2id\xdd\xff\xff\xff\xff",  # an array of four billion, which is not there
        b"\xdf\xff\xff\xff\xff\xa2op",
        b"\x80\x04K\x01.",  # a pickle
    ],
    ids=range(8),
)
def test_what_is_hostile_costs_no_more_than_its_bytes(body):
    with pytest.raises(frames.Malformed) as refused:
        frames.from_client(body)
    assert len(str(refused.value)) < 500


def test_an_event_is_plain_data():
    for good in (None, True, 1, -1, 2**64 - 1, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": None}}):
        assert frames.event_of(msgspec.Raw(msgspec.msgpack.encode(good))) == good
    for bad in (msgspec.msgpack.encode(msgspec.msgpack.Ext(7, b"abc")), NESTED, b"\xc1"):
        with pytest.raises(frames.Malformed):
            frames.event_of(msgspec.Raw(bad))
