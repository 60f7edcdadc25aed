"""All forms of a program come to the same results: masks, outputs, static variables and traps, bit for bit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray.programs.blocks import Trapped, template
from echannel_ray.programs.columnar import Columnar, is_columnar
from echannel_ray.programs.native import Machine, compile_program
from echannel_ray.programs.recordwise import Recordwise, compacted
from tests.programs.programs import Maker, bits

COUNT = 24


def outcomes(run, block, itemsize):
    """What comes of a block: after a trap it goes on with the next record."""
    results, start = [], 0
    while start < COUNT:
        rest = block[start * itemsize :]
        try:
            results.append(run(rest, COUNT - start))
            break
        except Trapped as trapped:
            results.append((trapped.index, trapped.trap.reason, trapped.trap.where, trapped.done))
            start += trapped.index + 1
    return results


def survivors(form, maker):
    """The same of the records that pass, made of the mask or as machine code finds them."""

    def run(block, count):
        if isinstance(form, Machine):
            return form.survivors(block, count)
        try:
            return compacted(block, form.select(block, count), maker.layout.itemsize)
        except Trapped as trapped:
            trapped.done = compacted(memoryview(block), trapped.done, maker.layout.itemsize)
            raise

    return run


def as_bytes(results):
    return [
        (*each[:3], bytes(each[3][0]), each[3][1]) if len(each) == 4 else (bytes(each[0]), each[1]) for each in results
    ]


def blocks_of(maker):
    return [maker.block(COUNT) for _ in range(3)]


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_machine_code_does_what_the_interpreted_form_does(seed):
    pytest.importorskip("llvmlite")
    maker = Maker(seed)
    program, layout, output = maker.program, maker.layout, maker.output_layout
    interpreted, again = (Recordwise(program, layout, output) for _ in range(2))
    code = compile_program(program, layout, output, template(program.output, output))
    machine, other = (Machine(program, layout, output, code) for _ in range(2))
    name = "select" if output is None else "transform"
    for block in blocks_of(maker):
        params = maker.param_values()
        interpreted.params = again.params = params
        machine.state.set_params(params)
        other.state.set_params(params)
        expected = outcomes(getattr(interpreted, name), block, layout.itemsize)
        assert outcomes(getattr(machine, name), block, layout.itemsize) == expected
        assert bits(machine.state.statics) == bits(interpreted.interpreted.statics)
        if output is None:
            expected = outcomes(survivors(again, maker), block, layout.itemsize)
            assert as_bytes(outcomes(survivors(other, maker), block, layout.itemsize)) == as_bytes(expected)
            assert bits(other.state.statics) == bits(machine.state.statics)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_single_events_are_treated_as_those_in_packs(seed):
    pytest.importorskip("llvmlite")
    maker = Maker(seed)
    if maker.output is not None:
        return
    program, layout = maker.program, maker.layout
    interpreted = Recordwise(program, layout, None)
    machine = Machine(program, layout, None, compile_program(program, layout, None))
    assert machine.single is not None
    params = maker.param_values()
    interpreted.params = params
    machine.state.set_params(params)
    block = maker.block(COUNT)
    for start in range(0, len(block), layout.itemsize):
        record = block[start : start + layout.itemsize]
        results: list[Any] = []
        for passes in (interpreted.passes, machine.single):
            try:
                results.append(passes(record))
            except Trapped as trapped:
                results.append((trapped.index, trapped.trap.reason, trapped.trap.where))
        assert results[0] == results[1]
        assert bits(machine.state.statics) == bits(interpreted.interpreted.statics)


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_the_columnar_form_does_what_the_interpreted_form_does(seed):
    maker = Maker(seed, is_columnar=True)
    program, layout, output = maker.program, maker.layout, maker.output_layout
    assert is_columnar(program)
    interpreted, columnar = Recordwise(program, layout, output), Columnar(program, layout, output)
    name = "select" if output is None else "transform"
    for block in blocks_of(maker):
        interpreted.params = columnar.params = maker.param_values()
        expected = outcomes(getattr(interpreted, name), block, layout.itemsize)
        assert outcomes(getattr(columnar, name), block, layout.itemsize) == expected
