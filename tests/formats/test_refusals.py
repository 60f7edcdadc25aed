"""What can't be serialised is refused in the call, with where and why."""

from __future__ import annotations

import dataclasses
import pickle
import threading

import numpy as np
import pytest

from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.events import encode
from tests.formats import shapes


def iter_of_nothing():
    yield from ()


class Unpicklable:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@dataclasses.dataclass
class Order:
    lines: list[object]


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (threading.Lock(), "event"),
        ({"a": [1, {"lock": threading.Lock()}]}, "event['a'][1]['lock']"),
        (shapes.Point(1, (2, threading.Lock())), "event.y[1]"),
        (Order([0, iter_of_nothing()]), "event.lines[1]"),
        (shapes.Record("r", {1, threading.Lock}), None),
        ([np.zeros(100_000), threading.Lock()], "event[1]"),
        (Unpicklable(ZeroDivisionError("of its own")), "event"),
        (Unpicklable(StopIteration()), "event"),
    ],
)
def test_what_can_not_be_serialised_says_where_and_why(event, path):
    if path is None:  # a class in place of an instance is fine
        encode(event)
        return
    with pytest.raises(NotSerialisable) as raised:
        encode(event)
    error = raised.value
    assert error.path == path
    assert error.reason in str(error)
    assert error.type.endswith(type(event).__qualname__)
    assert "Publish its data without" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert encode(b"next")[1] == b"next"


def test_nesting_without_end():
    event: list[object] = []
    for _ in range(100_000):
        event = [event]
    with pytest.raises(NotSerialisable, match="nested too deeply"):
        encode(event)
