"""Plain data: type for type, there and back; and nothing else, whoever made the bytes."""

from __future__ import annotations

import pickle
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.formats import plain

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(timezone.utc))
    | st.timedeltas()
    | st.binary().map(bytearray)
)
hashable = st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.binary()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(hashable | st.tuples(hashable), inner, max_size=4)
        | st.sets(hashable, max_size=4)
        | st.frozensets(hashable, max_size=4)
    ),
    max_leaves=12,
)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return [*map(repr, one)] == [*map(repr, other)] and all(map(same, one.values(), other.values()))
    if isinstance(one, set | frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return one == other


@given(values)
def test_there_and_back(value):
    assert same(plain.decode(plain.encode(value)), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.zeros((0, 3), "i2"),
        np.array(["ab", "c"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([True, False]),
        np.array(3.5),
        np.float32(2.5),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
)
def test_arrays_of_numbers(array):
    back = plain.decode(plain.encode({"a": array}))["a"]
    assert type(back) is type(array)
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    if isinstance(back, np.ndarray):
        assert back.flags.writeable


class Colour(Enum):
    RED = 1


class Text(str):
    """A subclass: not the type itself."""


@pytest.mark.parametrize(
    "value",
    [Colour.RED, Text("x"), object(), len, plain, np.array([object()]), np.zeros(2, [("a", "i4")]), lambda: None],
)
def test_what_is_none_says_where(value):
    with pytest.raises(plain.NotPlain, match=r"\['deep'\]\[1\]"):
        plain.encode({"deep": [0, value]})


def test_what_has_no_end_is_none():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(plain.NotPlain, match="nested"):
        plain.encode(loop)


def test_a_surrogate_is_none():
    with pytest.raises(plain.NotPlain, match="surrogate"):
        plain.encode("\ud800")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        plain.encode(plain.decode(data))
    except plain.NotPlain:
        pass


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"a": 1}),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(77, b"")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode(["O", [1], b"12345678", False]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode(["f8", [1 << 40], b"", False]))),
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=["pickle", "extension", "objects", "shape", "deep", "long"],
)
def test_what_somebody_else_made(data):
    with pytest.raises(plain.NotPlain):
        plain.decode(data)


def test_naive_and_aware_times_differ():
    for moment in (datetime(2020, 1, 2), datetime(2020, 1, 2, tzinfo=timezone.utc)):
        assert plain.decode(plain.encode(moment)) == moment
    assert plain.decode(plain.encode([date(2020, 1, 2), time(3, 4), timedelta(5), Decimal("0.10")])) == [
        date(2020, 1, 2),
        time(3, 4),
        timedelta(5),
        Decimal("0.10"),
    ]
