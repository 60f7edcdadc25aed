"""The columnar form: which programs have one, and that traps only count where a record gets."""

import warnings

import numpy
import pytest

from echannel_ray.programs.blocks import Trapped
from echannel_ray.programs.columnar import Columnar, is_columnar
from tests.programs.kit import LAYOUT, RANGE, filter_of, readings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RANGE, True),
        ("x = temperature\nif x > 0.0:\n    return True\nreturn sqrt(x) > 1.0", True),
        ("exp(temperature) > 1.0", False),
        ("seen: static = 0\nseen += 1\nreturn seen > 3", False),
        ("total = 0\nfor i in range(4):\n    total += samples[i]\nreturn total > 0", False),
    ],
)
def test_which_programs_are_columnar(text, expected):
    assert is_columnar(filter_of(text)) is expected


def test_a_range_over_a_pack():
    form = Columnar(filter_of(RANGE), LAYOUT, None)
    temperatures = [19.9, 20.0, 29.9, 30.0, float("nan"), float("-inf")]
    assert form.select(readings(temperatures), 6) == b"\0\1\1\0\0\0"
    assert form.select(b"", 0) == b""


def test_what_nobody_gets_to_does_not_trap():
    form = Columnar(filter_of("id != 0 and 10 // id == 5"), LAYOUT, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert form.select(readings([0.0] * 3), 3) == b"\0\0\1"
        chosen = Columnar(filter_of("(0 if id == 0 else 10 // id) == 5"), LAYOUT, None)
        assert chosen.select(readings([0.0] * 3), 3) == b"\0\0\1"


def test_the_first_record_that_traps_ends_it():
    text = "if id == 1:\n    return 1 // (id - 1) == 0\nreturn samples[3 - id] == 0"
    form = Columnar(filter_of(text), LAYOUT, None)
    with pytest.raises(Trapped) as raised:
        form.select(readings([0.0] * 6), 6)
    assert (raised.value.index, raised.value.done) == (1, b"\1")
    assert raised.value.trap.reason == "a whole number is divided by 0"
    with pytest.raises(Trapped) as raised:
        form.select(readings([0.0] * 6, id=numpy.array([0, 2, 3, 4, 1, 5])), 6)
    assert (raised.value.index, raised.value.trap.reason) == (3, "the index -1 is out of range: there are 4 items")


def test_whole_numbers_wrap_around_without_a_word():
    form = Columnar(filter_of("id + 1 < id"), LAYOUT, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert form.select(readings([0.0] * 2, id=[2**63 - 1, 0]), 2) == b"\1\0"
