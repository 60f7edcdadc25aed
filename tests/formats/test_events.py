"""Events arrive as what they were, type for type, through all that lies between."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import struct
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray.core.kinds import BUFFERS, PICKLED, PLAIN
from echannel_ray.formats.events import MIN_BUFFER_BYTES, OVERHEAD_BYTES, decode, encode
from echannel_ray.formats.packs import decode_body, decode_events
from tests.formats import shapes
from tests.formats.bodies import encode_body


def through_a_pack(events):
    """The events as they come out at the other end."""
    encoded = [encode(event) for event in events]
    kinds = bytes(kind for kind, _, _ in encoded)
    payloads = [b"".join(payload) if kind == BUFFERS else payload for kind, payload, _ in encoded]
    return decode_events(decode_body(encode_body([], [1], [1], [len(events)], [0], kinds, 0, 1.5, payloads)))


def assert_same(a, b):
    """Equal, and of the same types all the way down; NaN is NaN, and -0.0 is not 0.0."""
    assert type(a) is type(b)
    if isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b)
    elif isinstance(a, dict):
        assert len(a) == len(b)
        for (key_a, value_a), (key_b, value_b) in zip(a.items(), b.items(), strict=True):
            assert_same(key_a, key_b)
            assert_same(value_a, value_b)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for item_a, item_b in zip(a, b, strict=True):
            assert_same(item_a, item_b)
    elif isinstance(a, (set, frozenset)):
        assert sorted(map(repr, a)) == sorted(map(repr, b))
    elif dataclasses.is_dataclass(a) and not isinstance(a, type):
        for field in dataclasses.fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, (shapes.Slotted, shapes.Record)):
        assert_same(a.value, b.value)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    else:
        assert a == b


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.binary(max_size=40),
    st.text(max_size=20),
    st.text(st.characters(), max_size=10),  # lone surrogates too
    st.complex_numbers(allow_nan=False),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.timezone.utc])),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.sampled_from(shapes.Side),
    st.sampled_from(shapes.Level),
    st.just(shapes.Access.READ | shapes.Access.WRITE),
    st.binary(max_size=9).map(shapes.Bytes),
    st.text(max_size=9).map(shapes.Text),
    st.integers().map(shapes.Number),
    st.floats(allow_nan=False).map(shapes.Real),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9)),
    st.just(...),
    st.sampled_from([int, dict, shapes.Trade, math.sin, len]),
    # Text that looks like what the search for names looks for.
    st.sampled_from(["__main__", "ObjectRef", b"\x8c\x08__main__\x94", b"\x93\x8c\tObjectRef\x94"]),
)
hashables = scalars.filter(lambda value: value == value)
arrays = st.builds(
    lambda size, kind: np.arange(size).astype(kind),
    st.sampled_from([0, 1, 7, MIN_BUFFER_BYTES, MIN_BUFFER_BYTES + 1]),
    st.sampled_from(["u1", "<f8", ">i4", "?"]),
)


def containers(inner):
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(shapes.Items),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.builds(shapes.Point, inner, inner),
        st.builds(shapes.Trade, st.text(max_size=4), inner, inner),
        st.builds(shapes.Frozen, inner),
        st.builds(shapes.Slotted, inner),
        st.builds(shapes.Record, st.text(max_size=4), inner),
        st.builds(shapes.Model, name=st.just("m"), values=st.lists(st.integers(), max_size=3)),
        st.binary(max_size=9).map(bytearray),
    )


events_of_all_kinds = st.recursive(st.one_of(scalars, arrays), containers, max_leaves=12)


@settings(max_examples=150)
@given(st.lists(events_of_all_kinds, min_size=1, max_size=5))
def test_what_goes_in_comes_out(events):
    arrived = through_a_pack(events)
    assert len(arrived) == len(events)
    for event, there in zip(events, arrived, strict=True):
        assert_same(event, there)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b"", PLAIN),
        (b"x", PLAIN),
        (None, PLAIN),
        (True, PLAIN),
        ("", PLAIN),
        ("größer", PLAIN),
        ("\ud800", PICKLED),
        (2**64 - 1, PLAIN),
        (-(2**63), PLAIN),
        (2**64, PICKLED),
        (-(2**63) - 1, PICKLED),
        (-0.0, PLAIN),
        (math.nan, PLAIN),
        (shapes.Level.HIGH, PICKLED),
        (shapes.Bytes(b"x"), PICKLED),
        (bytearray(b"x"), PICKLED),
        ((1,), PICKLED),
    ],
)
def test_the_cheapest_kind_that_gives_the_same_back(event, kind):
    assert encode(event)[0] == kind
    assert_same(event, through_a_pack([event])[0])


def test_parts_stay_shared_and_cycles_closed():
    shared = [1]
    cycle: list[object] = [shared, shared]
    cycle.append(cycle)
    there = through_a_pack([cycle])[0]
    assert there[0] is there[1]
    assert there[2] is there


def test_sizes_count_what_waits_in_memory():
    assert encode(b"x" * 100)[2] == 100 + OVERHEAD_BYTES
    assert encode("ä" * 100)[2] == 200 + OVERHEAD_BYTES
    assert encode(None)[2] > OVERHEAD_BYTES
    assert encode(np.zeros(1_000_000, "u1"))[2] > 1_000_000


def test_the_event_is_taken_at_the_call():
    writable = np.zeros(100_000)
    # Read-only, but a view of what its owner still changes: what pandas hands out.
    view = writable[:]
    view.setflags(write=False)
    encoded = encode([writable, view])
    writable[:] = 1
    kind, payload, _ = encoded
    assert not np.concatenate(decode(kind, b"".join(payload))).any()


@pytest.mark.parametrize("owner", [bytes(200_000), pa.py_buffer(bytes(200_000)), np.zeros(200_000, "u1").tobytes()])
def test_memory_that_nobody_can_change_is_not_copied(owner):
    array = np.frombuffer(owner, "u1")
    _, payload, _ = encode(array)
    assert any(isinstance(part, memoryview) and np.shares_memory(np.asarray(part), array) for part in payload)


def test_large_arrays_are_read_only_views_and_small_ones_are_what_they_were():
    kind, payload, _ = encode({"a": np.arange(10_000), "b": np.arange(5_000.0), "small": np.arange(3)})
    assert kind == BUFFERS
    data = b"".join(payload)
    there = decode(kind, memoryview(bytearray(data)))
    assert not there["a"].flags.writeable
    assert there["small"].flags.writeable
    start = np.frombuffer(data, "u1").__array_interface__["data"][0]
    for array in (decode(kind, data)["a"], decode(kind, data)["b"]):
        address = array.__array_interface__["data"][0]
        assert start < address < start + len(data)
        assert (address - start) % 64 == 0


@pytest.mark.parametrize("rows", [3, 50_000])
def test_tables_and_frames(rows):
    frame = pd.DataFrame({"x": np.arange(rows), "y": np.arange(rows) / 7, "s": [f"row {i}" for i in range(rows)]})
    table = pa.table({"x": np.arange(rows), "s": [f"row {i}" for i in range(rows)]})
    records = np.zeros(rows, [("t", "<f8"), ("n", "<i4", (3,))])
    arrived = through_a_pack([frame, table, records, np.asfortranarray(np.ones((rows, 2))), np.arange(rows)[::2]])
    pd.testing.assert_frame_equal(arrived[0], frame)
    assert arrived[1].equals(table)
    assert_same(arrived[2], records)
    assert arrived[3].flags.f_contiguous
    assert_same(arrived[4], np.arange(rows)[::2])


@pytest.mark.parametrize("damage", [b"", b"x" * 16, bytes(8) + b"\xff" * 8, b"\xff" * 64])
def test_a_damaged_payload_with_buffers_is_a_value_error(damage):
    with pytest.raises(ValueError, match="an event with buffers"):
        decode(BUFFERS, damage)
    kind, payload, _ = encode(np.zeros(100_000))
    with pytest.raises(ValueError, match="an event with buffers"):
        decode(kind, b"".join(payload)[:-1])


def test_large_buffers_leave_nothing_behind():
    """An exception object that is raised again keeps the frames of all earlier times, and so their arrays, alive."""
    import gc
    import weakref

    array = np.zeros(100_000)
    gone = weakref.ref(array)
    encode(array)
    encode(np.zeros(100_000))
    del array
    gc.collect()
    assert gone() is None


def test_an_unknown_kind():
    with pytest.raises(ValueError, match="no kind 7"):
        decode(7, b"")


def test_uuid_and_decimal_examples():
    events = [uuid.UUID(int=7), decimal.Decimal("1.10"), decimal.Decimal("-0"), (datetime.timedelta(1),)]
    for event, there in zip(events, through_a_pack(events), strict=True):
        assert_same(event, there)
        assert str(event) == str(there)
