"""Machine code: what single events and packs come to, how it ends at traps, and that its memory goes."""

import gc
import sys
import weakref

import numpy
import psutil
import pytest

pytest.importorskip("llvmlite")

from echannel_ray.formats import plain
from echannel_ray.programs.blocks import Trapped
from echannel_ray.programs.frontend import check
from echannel_ray.programs.native import Machine, compile_program
from echannel_ray.programs.places import UnfitLayout
from echannel_ray.programs.program import Type
from echannel_ray.programs.recordwise import Recordwise
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import LaidOut, Layout
from tests.programs.kit import LAYOUT, RANGE, READING, compiled, filter_of, readings


def machine(text, params=None, layout=LAYOUT):
    program = filter_of(text, params)
    return Machine(program, layout, None, compiled(program, layout))


def trap(call, *arguments):
    with pytest.raises(Trapped) as raised:
        call(*arguments)
    return raised.value


def test_a_single_event_is_bytes_of_the_right_size():
    passes = machine(RANGE).single
    event = readings([25.0])
    assert passes(event) is True
    assert passes(readings([31.0])) is False
    for wrong in (event + b"x", event[:-1], bytearray(event), memoryview(event), None, 5):
        with pytest.raises(TypeError, match="100 of them"):
            passes(wrong)
    with pytest.raises(TypeError):
        passes()


def test_references_to_the_results_are_counted():
    passes = machine(RANGE).single
    event = readings([25.0])
    before = sys.getrefcount(True), sys.getrefcount(None), sys.getrefcount(event)
    results = [passes(event) for _ in range(1000)]
    assert all(results)
    del results
    after = sys.getrefcount(True), sys.getrefcount(None), sys.getrefcount(event)
    assert all(abs(one - other) < 100 for one, other in zip(before, after, strict=True))


def test_a_function_for_single_events_keeps_alive_what_it_needs():
    form = machine(RANGE)
    passes = form.single
    del form
    gc.collect()
    assert passes(readings([25.0])) is True
    with pytest.raises(TypeError):
        passes(b"")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id // (id - id) == 1", "a whole number is divided by 0"),
        ("id % (id - id) == 1", "a whole number is divided by 0"),
        ("1 << (id + 64) == 1", "a shift by 65 bits is out of range: 0 to 63"),
        ("1 >> (id - 2) == 1", "a shift by -1 bits is out of range: 0 to 63"),
        ("samples[id + 3] == 0", "the index 4 is out of range: there are 4 items"),
        ("samples[id - 2] == 0", "the index -1 is out of range: there are 4 items"),
        ("int(temperature * 1e300) == 0", "1e+300 can't be a whole number of 64 bits"),
        ("int(temperature * 1e308 * 1e308) == 0", "inf can't be a whole number of 64 bits"),
        ("int(0.0 * (temperature * 1e308 * 1e308)) == 0", "nan can't be a whole number of 64 bits"),
    ],
)
def test_each_trap_says_what_was_wrong_and_how_far_it_came(text, reason):
    form = machine(text if "id" not in text else f"id == 0 or {text}")
    block = readings([1.0 if "id" not in text else 5.0, 1.0, 1.0])
    raised = trap(form.select, block, 3)
    assert raised.trap.reason == reason
    assert raised.trap.where.line == 1
    assert raised.index == (1 if "id" in text else 0)
    assert raised.done == b"\1" * raised.index
    alone = trap(form.single, block[raised.index * 100 : raised.index * 100 + 100])
    assert (alone.trap.reason, alone.trap.where) == (reason, raised.trap.where)


def test_the_smallest_whole_number_divided_by_minus_one_wraps_around():
    form = machine("id // -samples[0] == id and id % -samples[0] == 0")
    smallest = readings([0.0], id=-(2**63), samples=1)
    assert form.select(smallest, 1) == b"\1"


def test_static_variables_are_as_at_first_after_a_trap():
    text = "count: static = 0\ncount += 1\nreturn 10 // (id - 2) < count"
    form = machine(text)
    block = readings([0.0] * 4)
    raised = trap(form.select, block, 4)
    assert raised.index == 2
    assert form.state.statics == [0]
    assert form.single(block[300:]) is False
    assert form.state.statics == [1]
    trap(form.single, block[200:300])
    assert form.state.statics == [0]


def test_survivors_are_copied_and_a_block_that_passes_is_not():
    form = machine(RANGE)
    temperatures = numpy.random.default_rng(5).uniform(15.0, 35.0, 1000)
    block = readings(temperatures)
    data, count = form.survivors(block, 1000)
    chosen = (temperatures >= 20.0) & (temperatures < 30.0)
    assert count == chosen.sum()
    assert bytes(data) == numpy.frombuffer(block, "V100")[chosen].tobytes()
    every = readings([25.0] * 10)
    assert form.survivors(every, 10) == (every, 10)
    assert form.survivors(every, 10)[0] is every
    assert bytes(form.survivors(every, 4)[0]) == every[:400]
    assert form.survivors(readings([99.0]), 1)[1] == 0
    assert form.survivors(b"", 0)[1] == 0
    assert form.select(b"", 0) == b""


def test_large_records_survive_too():
    layout = Layout(1000, LAYOUT.fields)
    form = machine(RANGE, layout=layout)
    block = b"".join(readings([each]) + bytes([number]) * 900 for number, each in enumerate((25.0, 5.0, 21.0, 40.0)))
    data, count = form.survivors(block, 4)
    assert (bytes(data), count) == (block[:1000] + block[2000:3000], 2)


def test_any_buffer_is_a_block_and_one_that_is_too_short_is_refused():
    form = machine(RANGE)
    block = readings([25.0, 5.0])
    for each in (block, bytearray(block), memoryview(block), memoryview(b"xyz" + block)[3:]):
        assert form.select(each, 2) == b"\1\0"
    with pytest.raises(ValueError, match="can't hold"):
        form.select(block, 3)


def test_texts_as_parameters():
    form = machine("room == param.name", {"name": Type.TEXT})
    rooms = ["kitchen", "å☃\U0001f600", "", "longer12"]
    block = readings([0.0] * 4, room=rooms)
    for number, room in enumerate(rooms):
        form.state.set_params([room])
        assert form.select(block, 4) == bytes(each == number for each in range(4))
    form.state.set_params(["longer123"])
    assert form.select(block, 4) == bytes(4)


@pytest.mark.parametrize(
    "field",
    [
        LaidOut("temperature", 93, "<f8"),
        LaidOut("temperature", -1, "<f8"),
        LaidOut("temperature", 0, "<f8", (2**40,)),
        LaidOut("temperature", 0, "<f8", (2,)),
        LaidOut("temperature", 0, "|O"),
        LaidOut("temperature", 0, "<f16"),
        LaidOut("temperature", 0, "nonsense"),
        LaidOut("temperature", 0, "<U2"),
        LaidOut("temperature", 0, "<M8[s]"),
        LaidOut("temperature", 0, "", (), Layout(100, (LaidOut("x", 0, "<f8"),))),
    ],
)
def test_a_producers_layout_that_leads_elsewhere_is_refused(field):
    with pytest.raises(UnfitLayout, match="temperature"):
        compile_program(filter_of(RANGE), Layout(100, (field,)), None)


@pytest.mark.parametrize(
    ("bits", "signed", "code", "fits"),
    [
        *((8, False, "|u1", True), (8, False, "<u2", False), (8, False, "|i1", False), (8, False, "|b1", True)),
        *((16, True, "|u1", True), (16, True, "<u2", False), (16, True, "<i2", True), (16, True, "<i4", False)),
        *((64, True, "<u4", True), (64, True, "<u8", False), (64, True, "<i8", True), (64, False, "<u8", True)),
    ],
)
def test_a_field_holds_no_number_that_the_schema_has_no_place_for(bits, signed, code, fits):
    record = schema.RecordType((schema.Field("x", schema.Int(bits, signed)),))
    program, layout = check("x > 3", record), Layout(8, (LaidOut("x", 0, code),))
    if fits:
        compile_program(program, layout, None)
    else:
        with pytest.raises(UnfitLayout, match=f"{bits} bits"):
            compile_program(program, layout, None)


def test_a_default_that_its_field_has_no_place_for_leads_to_no_memory_of_others():
    default = plain.encode(1000)
    fields = (schema.Field("x", schema.Int(8, False), default), schema.Field("y", schema.Array(schema.Int(), (256,))))
    program, layout = check("y[x] == 7", schema.RecordType(fields)), Layout(2048, (LaidOut("y", 0, "<i8", (256,)),))
    block = numpy.zeros(256, "<i8")
    block[1000 % 256] = 7
    for form in (Machine(program, layout, None, compiled(program, layout)), Recordwise(program, layout, None)):
        assert form.select(block.tobytes(), 1) == b"\1"


def test_what_a_nested_record_claims_is_compared_with_its_own_size():
    record = schema.RecordType((schema.Field("at", schema.RecordType((schema.Field("x", schema.Float()),))),))
    inner = Layout(8, (LaidOut("x", 4, "<f8"),))
    program = check("at.x > 0.0", record)
    with pytest.raises(UnfitLayout, match=r"at\.x"):
        compile_program(program, Layout(100, (LaidOut("at", 0, "", (), inner),)), None)


def test_code_and_its_memory_go_with_the_last_who_holds_it():
    process = psutil.Process()
    block = readings([25.0])

    def compile_some(first, count):
        for number in range(first, first + count):
            form = machine(f"temperature > {number}.5")
            assert form.single(block) is (number < 25)

    compile_some(0, 40)
    gc.collect()
    before = process.memory_info().rss
    compile_some(40, 160)
    gc.collect()
    assert process.memory_info().rss - before < 160 * 40_000  # the code of one takes 64 KiB while it lives

    form = machine(RANGE)
    code = weakref.ref(form._code)
    del form
    assert code() is None


def test_outputs_are_made_of_those_that_pass():
    output = schema.RecordType(
        (
            schema.Field("room", schema.Text(8)),
            schema.Field("kelvin", schema.Float(32)),
            schema.Field("scale", schema.Int(16), b"\x07"),
        )
    )
    layout = Layout(40, (LaidOut("kelvin", 1, ">f4"), LaidOut("room", 8, ">U8"), LaidOut("scale", 5, "<i2")))
    text = "output.room = room\noutput.kelvin = temperature + 273.15\nreturn temperature > 0.0"
    program = check(text, READING, output)
    form = Machine(program, LAYOUT, layout, compiled(program, LAYOUT, layout))
    data, mask = form.transform(readings([1.0, -1.0, 2.0], room=["a", "b", "c"]), 3)
    assert mask == b"\1\0\1"
    dtype = numpy.dtype(
        {"names": ["room", "kelvin", "scale"], "formats": [">U8", ">f4", "<i2"], "offsets": [8, 1, 5], "itemsize": 40}
    )
    expected = [("a", numpy.float32(274.15), 7), ("c", numpy.float32(275.15), 7)]
    assert numpy.frombuffer(data, dtype).tolist() == expected
    assert program.input == READING
