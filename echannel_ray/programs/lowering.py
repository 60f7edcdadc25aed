"""A program as LLVM IR: a function that runs one event, and those around it that run it over packs of records.

`@one` returns 0 or 1 (passes), or the number of a trap plus 2. The others are

    select(data, count, state, mask) -> status                     a byte for each record
    survivors(data, count, state, out, passed) -> status           the records that pass, and how many
    transform(data, count, state, out, passed, mask) -> status     the outputs of those that pass, how many, the mask
    single(state's owner, event) -> object                         one event as a function of Python's
    mask(state's owner, records) -> object                         `select` as one, where nothing can trap

A status is -1, or the index of the record that trapped times 2**20, plus `@one`'s number.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from typing import Final

from echannel_ray.programs import tree
from echannel_ray.programs.bounds import count_assignments, of_turns
from echannel_ray.programs.emitter import IR_TYPES, Emitter, Module
from echannel_ray.programs.expressions import Expressions, address_of
from echannel_ray.programs.field_copy import copy_field
from echannel_ray.programs.native_state import ASIDE_AT, BYTES_CONTENT_AT, STATUS_AT
from echannel_ray.programs.pack_loops import pack_functions
from echannel_ray.programs.places import UnfitLayout, place_of_leaf
from echannel_ray.programs.prelude import DECLARATIONS, FUNCTIONS
from echannel_ray.programs.program import Program, Type
from echannel_ray.programs.tree import Block, Statement
from echannel_ray.schemas.schema import Layout

# A program longer than that is called, not repeated in each of the functions around it.
_MAX_INLINE_LINES: Final = 400


def lower(program: Program, layout: Layout, output: Layout | None, template: bytes = b"") -> Module:
    """The module; its `text()` is what LLVM reads. `template`: an output as it is before the program runs."""
    module = Module()
    lines = _Statements(module, program, layout, output).function()
    inline = "alwaysinline" if len(lines) <= _MAX_INLINE_LINES else "noinline"
    functions = [f"define internal i64 @one(ptr %data, ptr %state, ptr %out) {inline} {{", *lines, "}"]
    functions += pack_functions(layout, output, module.constant(template) if output is not None else "")
    if output is None and has_single():
        functions.append(_single(layout))
        if not module.traps:
            functions.append(_mask(layout))
    prelude = [FUNCTIONS[name] for name in sorted(module.prelude)]
    module.text = "\n".join([DECLARATIONS, *module.globals, *prelude, *functions, ""])
    return module


def has_single() -> bool:
    """Whether this Python's objects are laid out as `single` takes them."""
    is_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) or bool(sysconfig.get_config_var("Py_DEBUG"))
    return sys.implementation.name == "cpython" and not is_threaded and object.__basicsize__ == 16


class _Statements:
    """Writes the body of the function `@one`, which sees one event."""

    def __init__(self, module: Module, program: Program, layout: Layout, output: Layout | None) -> None:
        self._emitter = Emitter(module)
        self._program, self._layout, self._output = program, layout, output
        self._locals = [self._emitter.allocate(IR_TYPES[type_]) for type_ in program.locals]
        self._scope = Expressions(self._emitter, program, layout, self._locals)
        self._assignments = count_assignments(program.body)
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` lead

    def function(self) -> list[str]:
        """The lines of the body."""
        if self._block(self._program.body):
            self._emitter.do("unreachable")
        return self._emitter.text()

    def _block(self, block: Block) -> bool:
        """Write the statements; whether what follows is reached."""
        return all(self._statement(statement) for statement in block)

    def _statement(self, statement: Statement) -> bool:
        emitter, scope = self._emitter, self._scope
        match statement:
            case tree.SetLocal(slot, value):
                ir_type = IR_TYPES[value.type]
                emitter.do(f"store {ir_type} {scope.value(value)}, ptr {self._locals[slot]}")
                if self._assignments[slot] == 1 and value.type is Type.INT:
                    scope.bounds.known[slot] = scope.bounds.of(value)
            case tree.SetStatic(slot, index, value, where):
                operand = scope.value(value)
                scope.store_wide(operand, value.type, scope.static_pointer(slot, index, where))
            case tree.StoreItem():
                self._store(statement)
            case tree.Copy(target, source):
                assert self._output is not None
                copy_field(emitter, self._program.input, (self._layout, source), (self._output, target))
            case tree.If():
                return self._if(statement)
            case tree.For():
                self._for(statement)
            case tree.Break():
                emitter.go(self._loops[-1][1])
                return False
            case tree.Continue():
                emitter.go(self._loops[-1][0])
                return False
            case tree.Return(passes):
                emitter.do(f"ret i64 {emitter.convert(scope.value(passes), Type.BOOL, Type.INT)}")
                return False
        return True

    def _store(self, statement: tree.StoreItem) -> None:
        assert self._output is not None
        place = place_of_leaf(self._output, statement.leaf)
        if place is None:
            raise UnfitLayout(f"{'.'.join(statement.leaf.path)} is missing in the output")
        value = self._scope.value(statement.value)
        moves = self._scope.moves(place, statement.indices, statement.where)
        self._emitter.store(value, statement.value.type, self._emitter.shifted("%out", place.offset, moves), place)

    def _if(self, statement: tree.If) -> bool:
        emitter = self._emitter
        then, otherwise, end = (emitter.new_label() for _ in range(3))
        emitter.branch(self._scope.value(statement.condition), then, otherwise)
        goes_on = False
        for label, block in ((then, statement.then), (otherwise, statement.otherwise)):
            emitter.label(label)
            if self._block(block):
                emitter.go(end)
                goes_on = True
        if goes_on:
            emitter.label(end)
        return goes_on

    def _for(self, loop: tree.For) -> None:
        """Turns are counted, since the variable itself may pass the last whole number there is."""
        emitter, scope = self._emitter, self._scope
        known, _ = of_turns(scope.bounds.of(loop.start), scope.bounds.of(loop.stop), loop.step)
        start, stop = scope.value(loop.start), scope.value(loop.stop)
        count = self._turns(start, stop, loop.step)
        turn = emitter.allocate("i64")
        head, body, following, end = (emitter.new_label() for _ in range(4))
        emitter.do(f"store i64 0, ptr {turn}")
        emitter.go(head)
        emitter.label(head)
        current = emitter.put(f"load i64, ptr {turn}")
        emitter.branch(emitter.put(f"icmp ult i64 {current}, {count}"), body, end)
        emitter.label(body)
        distance = current if loop.step == 1 else emitter.put(f"mul i64 {current}, {loop.step}")
        emitter.do(f"store i64 {emitter.put(f'add i64 {start}, {distance}')}, ptr {self._locals[loop.slot]}")
        if loop.slot not in count_assignments(loop.body):
            scope.bounds.known[loop.slot] = known
        self._loops.append((following, end))
        if self._block(loop.body):
            emitter.go(following)
        self._loops.pop()
        emitter.label(following)
        emitter.do(f"store i64 {emitter.put(f'add i64 {current}, 1')}, ptr {turn}")
        emitter.go(head)
        emitter.label(end)
        if self._assignments[loop.slot] > 1:
            scope.bounds.known.pop(loop.slot, None)

    def _turns(self, start: str, stop: str, step: int) -> str:
        """How often a loop runs, as `range` has it: differences of 64 bits, without a sign, don't wrap."""
        if _is_number(start) and _is_number(stop):
            return str(len(range(int(start), int(stop), step)))
        put = self._emitter.put
        low, high = (start, stop) if step > 0 else (stop, start)
        is_some = put(f"icmp slt i64 {low}, {high}")
        between = put(f"sub i64 {put(f'sub i64 {high}, {low}')}, 1")
        more = between if abs(step) == 1 else put(f"udiv i64 {between}, {abs(step)}")
        return put(f"select i1 {is_some}, i64 {put(f'add i64 {more}, 1')}, i64 0")


def _is_number(operand: str) -> bool:
    return not operand.startswith("%")


def _single(layout: Layout) -> str:
    """Takes exactly `bytes` of a record's size. Whatever else comes, and traps, are for the object in the state."""
    # From 3.12 on the references to True and False are not counted.
    is_counted = sys.version_info < (3, 12)
    count = "%count = load i64, ptr %result\n  %more = add i64 %count, 1\n  store i64 %more, ptr %result"
    return f"""
define ptr @single(ptr %self, ptr %event) {{
entry:
  %state = getelementptr i8, ptr %self, i64 {BYTES_CONTENT_AT}
  %type_at = getelementptr i8, ptr %event, i64 8
  %type = load i64, ptr %type_at
  %is_bytes = icmp eq i64 %type, {id(bytes)}
  br i1 %is_bytes, label %sized, label %aside
sized:
  %size_at = getelementptr i8, ptr %event, i64 16
  %size = load i64, ptr %size_at
  %fits = icmp eq i64 %size, {layout.itemsize}
  br i1 %fits, label %run, label %aside
run:
  %data = getelementptr i8, ptr %event, i64 {BYTES_CONTENT_AT}
  %status = call i64 @one(ptr %data, ptr %state, ptr null)
  %has_trapped = icmp ugt i64 %status, 1
  br i1 %has_trapped, label %aside, label %done
done:
  %passes = icmp eq i64 %status, 1
  %address = select i1 %passes, i64 {id(True)}, i64 {id(False)}
  %result = inttoptr i64 %address to ptr
  {count if is_counted else ""}
  ret ptr %result
aside:
  %wrong = phi i64 [ 0, %entry ], [ 0, %sized ], [ %status, %run ]
  %status_at = getelementptr i8, ptr %state, i64 {STATUS_AT}
  store i64 %wrong, ptr %status_at, align 1
  %aside_at = getelementptr i8, ptr %state, i64 {ASIDE_AT}
  %object = load ptr, ptr %aside_at, align 1
  %call = inttoptr i64 {address_of(ctypes.pythonapi, "PyObject_CallFunctionObjArgs")} to ptr
  %answer = call ptr (ptr, ...) %call(ptr %object, ptr %event, ptr null)
  ret ptr %answer
}}
"""


def _mask(layout: Layout) -> str:
    """Takes `bytes` of any number of records, and gives `bytes` with one of each. Else as `single`."""
    return f"""
define ptr @mask(ptr %self, ptr %records) {{
entry:
  %type_at = getelementptr i8, ptr %records, i64 8
  %type = load i64, ptr %type_at
  %is_bytes = icmp eq i64 %type, {id(bytes)}
  br i1 %is_bytes, label %run, label %aside
run:
  %size_at = getelementptr i8, ptr %records, i64 16
  %size = load i64, ptr %size_at
  %count = udiv i64 %size, {layout.itemsize}
  %new = inttoptr i64 {address_of(ctypes.pythonapi, "PyBytes_FromStringAndSize")} to ptr
  %mask = call ptr %new(ptr null, i64 %count)
  %has_none = icmp eq ptr %mask, null
  br i1 %has_none, label %done, label %select
select:
  %data = getelementptr i8, ptr %records, i64 {BYTES_CONTENT_AT}
  %state = getelementptr i8, ptr %self, i64 {BYTES_CONTENT_AT}
  %content = getelementptr i8, ptr %mask, i64 {BYTES_CONTENT_AT}
  %status = call i64 @select(ptr %data, i64 %count, ptr %state, ptr %content)
  br label %done
done:
  ret ptr %mask
aside:
  %status_at = getelementptr i8, ptr %self, i64 {BYTES_CONTENT_AT + STATUS_AT}
  store i64 0, ptr %status_at, align 1
  %aside_at = getelementptr i8, ptr %self, i64 {BYTES_CONTENT_AT + ASIDE_AT}
  %object = load ptr, ptr %aside_at, align 1
  %call = inttoptr i64 {address_of(ctypes.pythonapi, "PyObject_CallFunctionObjArgs")} to ptr
  %answer = call ptr (ptr, ...) %call(ptr %object, ptr %records, ptr null)
  ret ptr %answer
}}
"""
