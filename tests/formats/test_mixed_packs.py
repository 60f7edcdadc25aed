"""Bodies of mixed packs: what is one comes back as it was, and whatever else comes is refused in one way."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core.flows import FlowSender
from echannel_ray.core.gather import Gather
from echannel_ray.core.kinds import BLOCK, PICKLED, PLAIN
from echannel_ray.core.mixtures import MixedColumns, Mixture
from echannel_ray.core.packing import Fixed
from echannel_ray.formats.mixed_packs import decode_mixed, encode_mixed
from echannel_ray.formats.packs import MalformedPack, decode_events

GOOD: dict[str, Any] = {
    "control": [],
    "mixture": 3,
    "kind": PLAIN,
    "stamp": 1.5,
    "lanes": np.array([0, 1], "<u2").tobytes(),
    "sequences": np.array([7, 1], "<i8").tobytes(),
    "marks": np.array([70, 10], "<i8").tobytes(),
    "events": [b"a", b"b"],
}


def packed(**replaced: Any) -> bytes:
    return msgspec.msgpack.encode([*(GOOD | replaced).values()])


def mixture_of(kind: int) -> Mixture:
    return Mixture(3, kind, FlowSender(1, [(1, 2)], deque()), Gather(), Fixed(64, 0.002))


@given(st.lists(st.tuples(st.integers(0, 65_535), st.integers(1, 2**62), st.integers(0, 2**62)), min_size=1))
def test_columns_come_back(entries: list[tuple[int, int, int]]) -> None:
    lanes, sequences, marks = (np.array(each) for each in zip(*entries, strict=True))
    events = [bytes(i % 5) for i in range(len(entries))]
    control = [["lane", 3, 0, 9, 0]]
    columns = MixedColumns(control, mixture_of(PICKLED), lanes.astype(np.uint16), sequences, marks, events)
    (body,) = encode_mixed(columns, 2.5)
    decoded = decode_mixed(memoryview(body))
    assert (decoded.control, decoded.mixture, decoded.kind, decoded.stamp) == (control, 3, PICKLED, 2.5)
    assert [*zip(decoded.lanes.tolist(), decoded.sequences.tolist(), decoded.marks.tolist(), strict=True)] == entries
    assert decoded.events == events


def test_its_events_are_decoded_as_others_are() -> None:
    body = decode_mixed(packed(kind=PICKLED, events=[b"\x80\x05N.", b"\x80\x05K\x05."]))
    assert decode_events(body) == [None, 5]
    assert decode_events(decode_mixed(packed())) == [b"a", b"b"]


@pytest.mark.parametrize(
    "replaced",
    [
        {"events": []},
        {"events": [b"a"]},
        {"events": [b"a", 5]},
        {"events": [b"a", msgspec.msgpack.Ext(1, b"")]},
        {"kind": BLOCK},
        {"kind": 99},
        {"kind": -1},
        {"mixture": -1},
        {"lanes": b"\0\0\0"},
        {"lanes": [0, 1]},
        {"sequences": bytes(16)},
        {"sequences": bytes(8)},
        {"marks": np.array([-1, 5], "<i8").tobytes()},
        {"control": 5},
        {"stamp": "now"},
    ],
    ids=lambda replaced: ", ".join(replaced),
)
def test_what_is_none_is_refused(replaced: dict[str, Any]) -> None:
    with pytest.raises(MalformedPack):
        decode_mixed(packed(**replaced))


@given(st.binary(max_size=64))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(MalformedPack):
        decode_mixed(noise)
