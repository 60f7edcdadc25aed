"""E-code at work without a channel: the one place of the benchmarks that knows its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from echannel_ray.benchmarks.harness import records
from echannel_ray.programs import frontend
from echannel_ray.programs.code import Code
from echannel_ray.programs.columnar import Columnar
from echannel_ray.programs.engine import Engine
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.recordwise import Recordwise
from echannel_ray.programs.source import source_of
from echannel_ray.records.layouts import layout_of
from echannel_ray.schemas import types

NATIVE_SECONDS = 30.0
AVERAGE = np.dtype([("average", "f8")])


def averaging(rows: int = records.ROWS) -> str:
    """E-code for the average of a grid, as anybody would write it."""
    return f"""
total = 0.0
for row in range({rows}):
    for column in range({records.COLUMNS}):
        total += grid[row][column]
output.average = total / {rows * records.COLUMNS}
"""


def shipped(text: str, dtype: np.dtype[Any]) -> bytes:
    """A filter as its producers get it."""
    return Code(source_of(text), types.schema_of(dtype), None, ()).as_bytes()


def ready(code: bytes, dtype: np.dtype[Any]) -> Engine:
    """What a producer does before its first event can be filtered."""
    program = Code.of(code).check()
    Interpreted(program)  # for events that are objects: a producer has one beside its engines
    return Engine(program, layout_of(dtype))


def native(text: str, dtype: np.dtype[Any], output: np.dtype[Any] | None = None) -> Engine:
    """A program in machine code."""
    made = None if output is None else types.schema_of(output)
    program = frontend.check(text, types.schema_of(dtype), made)
    engine = Engine(program, layout_of(dtype), None if output is None else layout_of(output))
    if not engine.wait_native(NATIVE_SECONDS):
        raise RuntimeError(f"{text!r} has no native form here: install llvmlite (the extra `native`)")
    return engine


def forms(text: str, dtype: np.dtype[Any]) -> dict[str, Callable[[bytes, int], bytes]]:
    """What selects the records that pass, in each form."""
    program = frontend.check(text, types.schema_of(dtype))
    layout = layout_of(dtype)
    return {
        "native": native(text, dtype).select,
        "columnar": Columnar(program, layout, None).select,
        "interpreted": Recordwise(program, layout, None).select,
    }
