"""Sums in four parts: what they come to, in each form, and which loops are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from echannel_ray.programs import frontend, tree
from echannel_ray.programs.engine import Engine
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.records.layouts import layout_of
from echannel_ray.schemas.types import schema_of

LENGTH = 50
VALUES = np.dtype([("values", "f8", (LENGTH,)), ("n", "i8")])
SUM = np.dtype([("total", "f8"), ("last", "i8")])


def summed(loop, values):
    """What both forms make of a sum that begins with 0.1."""
    text = f"total = 0.1\ni = -1\n{loop}\noutput.total = total\noutput.last = i"
    program = frontend.check(text, schema_of(VALUES), schema_of(SUM))
    engine = Engine(program, layout_of(VALUES), layout_of(SUM))
    assert engine.wait_native(30)
    record = np.zeros(1, VALUES)
    record["values"] = values
    native = np.frombuffer(engine.transform(record.tobytes(), 1)[0], SUM)[0]
    passes, outputs = Interpreted(program).run([[*map(float, values)]])
    assert passes
    assert outputs is not None
    total, last = outputs
    assert (total, last) == (native["total"], native["last"])
    return total, last


def in_parts(terms, total):
    """What the definition says."""
    parts = [0.0] * 4
    whole = len(terms) // 4 * 4
    for i, term in enumerate(terms[:whole]):
        parts[i % 4] += term
    for term in terms[whole:]:
        parts[0] += term
    return total + ((parts[0] + parts[1]) + (parts[2] + parts[3]))


@pytest.mark.parametrize(
    "turns", [range(50), range(16), range(3, 22), range(49, -1, -1), range(1, 50, 3), range(48, 1, -2)]
)
def test_what_a_sum_comes_to(turns):
    values = [1.0 / (i + 1) * (-1) ** i * 10.0 ** (i % 7) for i in range(LENGTH)]
    bounds = f"{turns.start}, {turns.stop}, {turns.step}"
    total, last = summed(f"for i in range({bounds}):\n    total += values[i] * 2 + i", values)
    assert total == in_parts([values[i] * 2 + i for i in turns], 0.1)
    assert last == turns[-1]


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(15):\n    total += values[i]",
        "for i in range(50):\n    total -= values[i]",
        "for i in range(50):\n    total += values[i] * total",
        "for i in range(min(n, 50)):\n    total += values[i]",
        "for i in range(50):\n    total += values[i]\n    if total > 3:\n        break",
    ],
)
def test_other_loops_are_as_they_are_written(loop):
    program = frontend.check(f"total = 0.1\n{loop}\nreturn total > 0", schema_of(VALUES))
    assert len(program.locals) == 2  # no parts
    assert sum(isinstance(statement, tree.For) for statement in program.body) == 1


def test_an_index_that_is_out_of_range_traps_at_its_turn():
    text = "total = 0.0\nfor i in range(20):\n    total += values[i * 3]\noutput.total = total\noutput.last = 0"
    program = frontend.check(text, schema_of(VALUES), schema_of(SUM))
    with pytest.raises(Exception, match=r"51.*line 3"):
        Interpreted(program).run([[0.0] * LENGTH])
