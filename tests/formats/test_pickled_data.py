"""Pickles of plain data are read as data, and no others are."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core.kinds import BUFFERS, PICKLED
from echannel_ray.formats import events, pickled_data
from echannel_ray.formats.plain import NotPlain
from echannel_ray.formats.sealed_events import Sealed, sealed

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=4)
        | st.frozensets(st.text(), max_size=4)
    ),
    max_leaves=20,
)


@given(values)
def test_plain_data_is_what_it_was(value):
    try:
        assert pickled_data.read(pickle.dumps(value, 5)) == value
    except NotPlain as error:
        assert "several places" in str(error)  # noqa: PT017  # one that the strategy has made twice


def test_long_ones_too():
    value = {"numbers": [*range(3000)], "text": "é" * 70_000, "bytes": b"x" * 70_000, "same": ["RAY"] * 10}
    assert pickled_data.read(pickle.dumps(value, 5)) == value


class Touched:
    """Unpickling it does something."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def nested_in_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def as_large_as_one_likes() -> list[Any]:
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "value",
    [Touched(os.mkdir, "/nowhere/at/all"), {"a": [Touched(os.mkdir, "/nowhere/at/all")]}, datetime(2024, 1, 1),
     OrderedDict(a=1), int, ["long" * 100] * 2, len, 1j, nested_in_itself(), as_large_as_one_likes(), Exception("x")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_nothing_else_is_read(value):
    with pytest.raises(NotPlain):  # and not what `mkdir` would raise
        pickled_data.read(pickle.dumps(value, 5))


@given(st.binary(max_size=60))
def test_whatever_comes_is_plain_data_or_refused(data):
    for each in (data, b"\x80\x05" + data, b"\x80\x05" + data + b"."):
        try:
            pickled_data.read(each)
        except NotPlain:
            pass


@given(st.data(), values)
def test_a_forged_pickle_is_plain_data_or_refused(data, value):
    forged = bytearray(pickle.dumps(value, 5))
    for _ in range(data.draw(st.integers(1, 4))):
        forged[data.draw(st.integers(0, len(forged) - 1))] = data.draw(st.integers(0, 255))
    try:
        pickled_data.read(bytes(forged))
    except NotPlain:
        pass


def test_what_is_sealed_says_what_it_can():
    kind, payload, _ = events.encode(Touched(os.mkdir, "/nowhere"))
    opaque = sealed(kind, payload)
    assert isinstance(opaque, Sealed)
    assert opaque.type_name() == "posix.mkdir"
    assert opaque.size_bytes == len(payload)
    with pytest.raises(NotPlain):
        opaque.opened()
    assert sealed(PICKLED, b"junk").type_name() == ""
    assert sealed(BUFFERS, b"junk").type_name() == ""
    assert sealed(PICKLED, events.encode({"a": 1})[1]).opened() == {"a": 1}
    assert sealed(0, 5) == 5
