"""An engine begins at once, goes on as machine code from the same state, and does without it where there is none."""

import gc
import importlib
import logging
import subprocess
import sys
import threading
import weakref

import pytest

from echannel_ray.programs import compiler, native
from echannel_ray.programs.engine import Engine, Trapped
from echannel_ray.programs.frontend import check
from echannel_ray.programs.program import Type
from echannel_ray.schemas import schema
from tests.programs.kit import LAYOUT, RANGE, filter_of, readings

COUNTER = "seen: static = 0\nlast: static = [0.0] * 2\nseen += 1\nlast[seen % 2] = temperature\nreturn seen % 3 == 0"


class Held:
    """A compiler that has its work done when the test says so."""

    def __init__(self, monkeypatch):
        self.go_on = threading.Event()
        compile_program = native.compile_program

        def wait(*arguments):
            assert self.go_on.wait(30)
            return compile_program(*arguments)

        monkeypatch.setattr(compiler, "compile_program", wait)


@pytest.fixture
def held(monkeypatch):
    pytest.importorskip("llvmlite")
    compiler = Held(monkeypatch)
    yield compiler
    compiler.go_on.set()


def test_static_variables_and_parameters_are_handed_over(held):
    text = COUNTER.replace("== 0", "== param.rest")
    engine, all_along = (Engine(filter_of(text, {"rest": Type.INT}), LAYOUT) for _ in range(2))
    engine.set_params([1])
    all_along.set_params([1])
    block = readings([float(each) for each in range(10)])
    assert engine.form == "interpreted"
    first = engine.select(block, 5), engine.passes(block[500:600])
    statics = engine.statics
    assert statics[0] == 6
    held.go_on.set()
    assert engine.wait_native(30)
    assert engine.statics == statics
    later = engine.passes(block[600:700]), engine.select(block[700:], 3)
    assert all_along.wait_native(30)
    expected = all_along.select(block, 10)
    assert first[0] + bytes([first[1], later[0]]) + later[1] == expected
    assert engine.statics == all_along.statics
    engine.reset()
    assert engine.statics[0] == 0
    engine.statics = statics
    assert engine.statics == statics


def test_whoever_keeps_the_function_for_single_events_changes_over_too(held):
    engine = Engine(filter_of(COUNTER), LAYOUT)
    passes = engine.passes
    event = readings([1.0])
    assert [passes(event) for _ in range(2)] == [False, False]
    held.go_on.set()
    assert engine.wait_native(30)
    assert [passes(event), engine.passes(event), passes(event)] == [True, False, False]
    assert type(engine.passes) is type(len)


@pytest.mark.parametrize("text", [RANGE, COUNTER])
def test_all_forms_have_the_same_functions(text, held):
    engine = Engine(filter_of(text), LAYOUT)
    assert engine.form == ("columnar" if text is RANGE else "interpreted")
    block = readings([25.0, 5.0, 21.0, 40.0, 22.0, 23.0])
    results = []
    for _ in range(2):
        engine.reset()
        data, count = engine.survivors(block, 6)
        engine.reset()
        results.append((engine.select(block, 6), bytes(data), count))
        held.go_on.set()
        assert engine.wait_native(30)
    assert engine.form == "native"
    assert results[0] == results[1]


def test_a_trap_comes_with_what_was_done_before_in_all_forms(held):
    engine = Engine(filter_of("10 // (3 - id) > 3"), LAYOUT)
    block = readings([0.0] * 5)
    for _ in range(2):
        with pytest.raises(Trapped) as raised:
            engine.select(block, 5)
        assert (raised.value.index, raised.value.done) == (3, b"\0\1\1")
        with pytest.raises(Trapped) as raised:
            engine.survivors(block, 5)
        assert (bytes(raised.value.done[0]), raised.value.done[1]) == (block[100:300], 2)
        with pytest.raises(Trapped, match="line 1, column"):
            engine.passes(block[300:400])
        held.go_on.set()
        assert engine.wait_native(30)


def test_without_llvmlite_it_stays_as_it_is(monkeypatch):
    def refuse(name, *arguments):
        if name.startswith("llvmlite"):
            raise ImportError(name)
        return import_module(name, *arguments)

    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", refuse)
    for name in [each for each in sys.modules if each.startswith("llvmlite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(native, "_load_library", lambda: None)
    engine = Engine(filter_of("temperature > 12.75"), LAYOUT)
    assert not engine.wait_native(30)
    assert engine.form == "columnar"
    assert engine.select(readings([12.0, 13.0]), 2) == b"\0\1"
    assert engine.passes(readings([13.0])) is True


def test_a_program_that_cannot_be_compiled_stays_interpreted(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("LLVM has no room")

    monkeypatch.setattr(compiler, "compile_program", fail)
    with caplog.at_level(logging.WARNING):
        engine = Engine(filter_of("temperature > 13.75"), LAYOUT)
        assert not engine.wait_native(30)
    assert "LLVM has no room" in caplog.text
    assert engine.select(readings([12.0, 14.0]), 2) == b"\0\1"


def test_equal_programs_share_their_code_as_long_as_it_is_used():
    pytest.importorskip("llvmlite")
    engines = [Engine(filter_of("temperature > 14.75"), LAYOUT) for _ in range(2)]
    assert all(engine.wait_native(30) for engine in engines)
    codes = {id(engine._machine._code) for engine in engines}
    assert len(codes) == 1
    # -0.0 equals 0.0, and is another number.
    signs = [Engine(filter_of(f"1.0 / (0.0 * temperature + {zero}) > 0.0"), LAYOUT) for zero in ("0.0", "-0.0")]
    assert all(engine.wait_native(30) for engine in signs)
    assert [engine.passes(readings([-1.0])) for engine in signs] == [True, False]
    code = weakref.ref(engines[0]._machine._code)
    del engines
    gc.collect()
    assert code() is None


def test_nobody_waits_for_what_nobody_wants(held, monkeypatch):
    compiled = []
    compile_program = compiler.compile_program

    def note(*arguments):
        compiled.append(arguments)
        return compile_program(*arguments)

    monkeypatch.setattr(compiler, "compile_program", note)
    first = Engine(filter_of("temperature > 15.75"), LAYOUT)
    Engine(filter_of("temperature > 16.75"), LAYOUT)  # gone before its turn
    last = Engine(filter_of("temperature > 17.75"), LAYOUT)
    gc.collect()
    held.go_on.set()
    assert first.wait_native(30)
    assert last.wait_native(30)
    assert len(compiled) == 2


def test_engines_of_many_threads_do_not_disturb_each_other():
    pytest.importorskip("llvmlite")
    block = readings([25.0] * 300)
    wrong = []

    def work(number):
        engine = Engine(filter_of(COUNTER.replace("% 3", f"% {number}")), LAYOUT)
        for turn in range(60):
            mask = engine.select(block, 300)
            expected = bytes((turn * 300 + each) % number == 0 for each in range(1, 301))
            if mask != expected:
                wrong.append((number, turn))
        engine.wait_native(30)
        if engine.statics[0] != 18000 or engine.select(block, 1) != bytes([18001 % number == 0]):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2, 7)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_compiling_leaves_the_usual_switch_interval_behind():
    pytest.importorskip("llvmlite")
    usual = sys.getswitchinterval()
    engine = Engine(filter_of("temperature > 18.75"), LAYOUT)
    assert engine.wait_native(30)
    with compiler._compiler()._serving:
        assert sys.getswitchinterval() == usual


def test_a_process_may_end_while_something_is_compiled():
    pytest.importorskip("llvmlite")
    script = "from tests.programs.kit import *; from echannel_ray.programs.engine import Engine; "
    script += "engines = [Engine(filter_of(f'temperature > {each}.25'), LAYOUT) for each in range(20)]; "
    script += "engines[0].wait_native(30); print(engines[0].form)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "native\n", "")


def test_programs_that_read_fields_of_any_length_are_refused():
    record = schema.RecordType((schema.Field("items", schema.List(schema.Int())),))
    with pytest.raises(ValueError, match="any length"):
        Engine(check("len(items) > 0", record), LAYOUT)


def test_a_filter_has_no_output_layout():
    with pytest.raises(ValueError, match="a filter has none"):
        Engine(filter_of(RANGE), LAYOUT, LAYOUT)
