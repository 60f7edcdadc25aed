"""What does E-code cost an event, and how soon is it there?

In one process, without channels: a filter over packs and over single events, in each form; a transformation; and what
a thread that publishes notices while machine code is made.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from echannel_ray.benchmarks.harness.alone import Alone, Timed, difference, timed
from echannel_ray.benchmarks.harness.busy import Busy
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.programs import AVERAGE, averaging, forms, native, ready, shipped
from echannel_ray.benchmarks.harness.records import READING, bounds, filled, grid, outside, quote
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples, interleave

PACK_EVENTS = 1000
PACKS = 4  # in turn: all of them stay in the cache, as what has just arrived does
PASSING = {"50 %": 0.5, "97 %": 1 / 30}  # and the share that is rejected
WARM_SECONDS = 0.2
STALL = "longest stall of a thread that publishes, from the text until machine code"
GOALS = (
    at_most(1e-9, "an E-code range filter over packs of 1,000, for an event", "range filter .*, per event, native"),
    at_most(20e-9, "an E-code range filter on an event by itself", "range filter .* by itself, native, .*"),
    at_most(1.5, "an average by E-code, against NumPy", "average .*, loops", "numpy.mean"),
    at_most(0.002, "E-code, from its text until it filters", "E-code, from its text until it filters"),
    at_most(0.150, "E-code, from its text until it is machine code", "E-code, from its text until it is machine code"),
    at_most(0.001, "stall of a busy producer while E-code is verified and compiled", STALL),
)
# Each addition waits for the one before it, and E-code keeps the order that is written.
FOUR_SUMS = """
a = 0.0
b = 0.0
c = 0.0
d = 0.0
for row in range(253):
    for column in range(0, 36, 4):
        a += grid[row][column]
        b += grid[row][column + 1]
        c += grid[row][column + 2]
        d += grid[row][column + 3]
    a += grid[row][36]
output.average = (a + b + c + d) / 9361
"""


def run(plan: Plan) -> list[Row]:
    """All of it."""
    return [*_filtering(plan), *_averaging(plan), *_starting(plan)]


# ---- a filter ----


def _filters(seed: int) -> Mapping[str, Timed]:
    dtype, text = quote(), outside(1 / 30)
    arrays = [filled(dtype, PACK_EVENTS, seed + number) for number in range(PACKS)]
    blocks = [array.tobytes() for array in arrays]
    measures = {name: _over_blocks(blocks, select, PACK_EVENTS) for name, select in forms(text, dtype).items()}
    low, high = bounds(1 / 30)
    views = [np.frombuffer(block, dtype) for block in blocks]
    measures["NumPy"] = _over(views, lambda array: (array["price"] < low) | (array["price"] > high))
    for share, rejected in PASSING.items():
        engine = native(outside(rejected), dtype)
        masks = [np.frombuffer(engine.select(block, PACK_EVENTS), bool) for block in blocks]
        pairs = [*zip(views, masks, strict=True)]
        measures[f"survivors {share}"] = _over_blocks(blocks, engine.survivors, PACK_EVENTS)
        measures[f"NumPy survivors {share}"] = _over(pairs, lambda pair: pair[0][pair[1]])
    engine = native(text, dtype)
    engine.passes(blocks[0][: dtype.itemsize])  # from now on the attribute is the compiled function itself
    records, passes = [record.tobytes() for record in arrays[0]], engine.passes

    def one_by_one() -> None:
        for record in records:
            passes(record)

    def empty_loop() -> None:
        for _ in records:
            pass

    return measures | {"single": timed(one_by_one), "loop": timed(empty_loop)}


def _over(packs: list[Any], call: Callable[[Any], object]) -> Timed:
    following = cycle(packs).__next__
    return timed(lambda: call(following()))


def _over_blocks(blocks: list[bytes], call: Callable[[bytes, int], object], count: int) -> Timed:
    return _over(blocks, lambda block: call(block, count))


def _filtering(plan: Plan) -> list[Row]:
    with Alone(_filters, plan.seed) as alone:
        measures = alone.measures(plan, events_each=PACK_EVENTS)
        taken = interleave(plan, measures, "s", higher_is_better=False)
    what = f"range filter on 100 B records, packs of {PACK_EVENTS}, per event"
    rows = [
        Row(f"{what}, native", "one", taken["native"]),
        *(Row(f"{what}, {form}", "one", taken[form]) for form in ("columnar", "interpreted")),
        Row(f"{what}, native", "one", taken["native"], "a NumPy expression", taken["NumPy"]),
        Row(
            "range filter on a 100 B record by itself, native, without the loop around it",
            "one",
            difference(taken["single"], taken["loop"]),
        ),
    ]
    for share in PASSING:
        mine, theirs = taken[f"survivors {share}"], taken[f"NumPy survivors {share}"]
        note = "ours filters as well, NumPy's mask is there"
        rows.append(
            Row(f"filter and copy what passes, {share}, per event", "one", mine, "NumPy by its mask", theirs, note=note)
        )
    return rows


# ---- a transformation ----


def _averages(seed: int) -> Mapping[str, Timed]:
    grids = [filled(grid(), 1, seed + number) for number in range(PACKS)]
    blocks = [each.tobytes() for each in grids]
    arrays = [each[0]["grid"] for each in grids]
    measures = {"numpy.mean": _over(arrays, np.mean)}
    for name, text in (("loops", averaging()), ("four sums", FOUR_SUMS)):
        engine = native(text, grid(), AVERAGE)
        (average,) = np.frombuffer(engine.transform(blocks[0], 1)[0], AVERAGE)["average"]
        if not np.isclose(average, arrays[0].mean()):
            raise AssertionError(f"{name}: the average is {arrays[0].mean()}, not {average}")
        measures[name] = _over_blocks(blocks, engine.transform, 1)
    return measures


def _averaging(plan: Plan) -> list[Row]:
    with Alone(_averages, plan.seed) as alone:
        taken = interleave(plan, alone.measures(plan), "s", higher_is_better=False)
    return [
        Row(f"average of 37 by 253 numbers, {name}", "one", taken[name], "numpy.mean", taken["numpy.mean"])
        for name in ("loops", "four sums")
    ]


# ---- how soon it is there ----


def _start(pipe: Connection) -> None:
    """Once per process: the import of llvmlite is a part of it."""
    for (code,) in requests(pipe):
        if "llvmlite" in sys.modules:
            raise AssertionError("llvmlite has been imported already")
        began = time.perf_counter()
        ready(code, READING)
        pipe.send(time.perf_counter() - began)


def _start_beside(pipe: Connection) -> None:
    """The same beside a thread that publishes: seconds until native, and its longest stalls: in all of that time, in
    its two parts, and in an equal time without.
    """
    for (code,) in requests(pipe):
        if "llvmlite" in sys.modules:
            raise AssertionError("llvmlite has been imported already")
        busy = Busy()
        time.sleep(WARM_SECONDS)
        began = time.perf_counter()
        engine = ready(code, READING)
        checked = time.perf_counter()
        if not engine.wait_native(10):
            raise AssertionError("there is no machine code after 10 s")
        compiled = time.perf_counter()
        time.sleep(compiled - began)
        over = time.perf_counter()
        busy.stop()
        spans = ((began, compiled), (began, checked), (checked, compiled), (compiled, over))
        pipe.send((compiled - began, *(busy.longest_stall_seconds(*each) for each in spans)))


def _starting(plan: Plan) -> list[Row]:
    code = shipped(outside(1 / 30), READING)
    soon, *others = (Samples("s", higher_is_better=False) for _ in range(6))
    for _ in range(plan.rounds):
        with Child(_start) as child:
            soon.values.append(child.ask((code,)))
        with Child(_start_beside) as child:
            for samples, value in zip(others, child.ask((code,)), strict=True):
                samples.values.append(value)
    until_native, stalled, checking, compiling, calm = others
    return [
        Row("E-code, from its text until it filters", "free", soon),
        Row("E-code, from its text until it is machine code", "free", until_native),
        Row(STALL, "free", stalled),
        Row(STALL, "free", stalled, "an equal time without", calm),
        Row("the part of it while E-code is checked", "free", checking),
        Row("the part of it while machine code is made", "free", compiling),
    ]
