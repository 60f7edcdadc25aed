"""A program at work at once: as a Python function, made from the program when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from echannel_ray.programs import arithmetic, tree
from echannel_ray.programs.bounds import count_assignments, of_turns
from echannel_ray.programs.field_getters import field_getter, getter
from echannel_ray.programs.outputs import assembler, copied, first_values, fresh, program_outputs
from echannel_ray.programs.program import Program, Result, Trap, Type, Where
from echannel_ray.programs.python_source import PythonExpressions
from echannel_ray.programs.tree import Block, Statement
from echannel_ray.schemas.schema import RecordType


class Interpreted:
    """The interpreter of one replica: `statics` are its program's static variables, arrays as lists."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.statics: list[Any] = []
        self.reset()
        self._run: Callable[[Sequence[Any], Sequence[Any], list[Any]], tuple[bool, list[Any] | None]]
        self._run = _compiled(program)
        self._read = getter(program.leaves)
        self._assemble = None if program.output is None else assembler(program)

    def reset(self) -> None:
        """Begin anew: all static variables are as they were at first."""
        self.statics = self.program.initial_statics()

    def run(self, leaves: Sequence[Any], params: Sequence[Any] = ()) -> tuple[bool, list[Any] | None]:
        """Whether an event passes, and the output: the values of `program_outputs`, and for each of `copied` the path
        of the field that was copied there (None: none was). Both are given in the order of the program.
        """
        try:
            return self._run(leaves, params, self.statics)
        except Trap:
            self.reset()
            raise

    def run_event(self, event: Any, params: Sequence[Any] = ()) -> Result:
        """Run the program for an object whose attributes are the fields."""
        try:
            passes, values = self._run(self._read(event), params, self.statics)
        except Trap:
            self.reset()
            raise
        if values is None or self._assemble is None:
            return Result(passes)
        return Result(passes, self._assemble(values, lambda path: field_getter(path)(event)))


def _compiled(program: Program) -> Any:
    writer = _Writer(program)
    source = writer.function()
    namespace = writer.expressions.names
    exec(compile(source, "<E-code>", "exec"), namespace)
    return namespace["run"]


class _Writer:
    """Writes the statements of a program as those of a Python function."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.expressions = PythonExpressions(program)
        self._lines: list[str] = []
        self._assignments = count_assignments(program.body)
        output = program.output
        self._outputs = {} if output is None else {leaf: f"o{i}" for i, leaf in enumerate(program_outputs(output))}
        self._copies = {target: f"c{i}" for i, target in enumerate(copied(program))}

    def function(self) -> str:
        """The source of `run(leaves, params, statics)`."""
        program, start = self._program, ["def run(leaves, params, statics):"]
        start += _unpack("leaves", "l", len(program.leaves))
        start += _unpack("params", "p", len(program.params))
        start += _unpack("statics", "s", len(program.statics))
        if program.output is not None:
            start += self._first(program.output)
            start += [f" {name} = None" for name in self._copies.values()]
        self._block(program.body, " ")
        return "\n".join([*start, *self._lines])

    def _first(self, output: RecordType) -> list[str]:
        """What the leaves of the output are at first; arrays anew for each event."""
        self.expressions.names["fresh"] = fresh
        lines = []
        for (leaf, name), value in zip(self._outputs.items(), first_values(output), strict=True):
            first = self.expressions.named(value)
            lines.append(f" {name} = {f'fresh({first}, {len(leaf.shape)})' if leaf.shape else first}")
        return lines

    def _block(self, block: Block, indent: str) -> None:
        for statement in block:
            self._statement(statement, indent)
        if not block:
            self._lines.append(f"{indent}pass")

    def _statement(self, statement: Statement, indent: str) -> None:
        of, line = self.expressions.of, self._lines.append
        match statement:
            case tree.SetLocal(slot, value):
                line(f"{indent}v{slot} = {of(value)}")
                if self._assignments[slot] == 1 and value.type is Type.INT:
                    self.expressions.bounds.known[slot] = self.expressions.bounds.of(value)
            case tree.SetStatic(slot, index, value, where):
                code = of(value) if value.type is not Type.FLOAT else self._narrowed(64, of(value))
                place = "" if index is None else f"[{self._index(f's{slot}', of(index), where)}]"
                line(f"{indent}s{slot}{place} = {code}")
            case tree.StoreItem():
                self._store(statement, indent)
            case tree.Copy(target, source):
                line(f"{indent}{self._copies[target]} = {self.expressions.named(source)}")
            case tree.If():
                self._if(statement, indent, "if")
            case tree.For():
                self._for(statement, indent)
            case tree.Break():
                line(f"{indent}break")
            case tree.Continue():
                line(f"{indent}continue")
            case tree.Return(passes):
                self._return(of(passes), indent)

    def _if(self, statement: tree.If, indent: str, word: str) -> None:
        self._lines.append(f"{indent}{word} {self.expressions.of(statement.condition)}:")
        self._block(statement.then, indent + " ")
        match statement.otherwise:
            case ():
                pass
            case (tree.If() as other,):
                self._if(other, indent, "elif")
            case otherwise:
                self._lines.append(f"{indent}else:")
                self._block(otherwise, indent + " ")

    def _for(self, statement: tree.For, indent: str) -> None:
        of, bounds, slot = self.expressions.of, self.expressions.bounds, statement.slot
        start, stop = bounds.of(statement.start), bounds.of(statement.stop)
        bounds_of_slot, _ = of_turns(start, stop, statement.step)
        turns = f"range({of(statement.start)}, {of(statement.stop)}, {statement.step})"
        self._lines.append(f"{indent}for v{slot} in {turns}:")
        if slot not in count_assignments(statement.body):
            bounds.known[slot] = bounds_of_slot
        self._block(statement.body, indent + " ")
        if self._assignments[slot] > 1:
            bounds.known.pop(slot, None)

    def _store(self, statement: tree.StoreItem, indent: str) -> None:
        leaf, value = statement.leaf, statement.value
        code = self.expressions.of(value)
        if leaf.type is Type.FLOAT:
            code = self._narrowed(leaf.bits, code)
        elif leaf.type in (Type.INT, Type.UNSIGNED):
            code = self._narrowed_whole(statement, code)
        place = self._outputs[leaf]
        for position, index in enumerate(statement.indices):
            if self.expressions.bounds.in_range((index,), (leaf.shape[position],)):
                place = f"{place}[{self.expressions.of(index)}]"
            else:
                checked = self._index(place, self.expressions.of(index), statement.where)
                place = f"{place}[{checked}]"
        self._lines.append(f"{indent}{place} = {code}")

    def _narrowed_whole(self, statement: tree.StoreItem, code: str) -> str:
        bits, bounds = statement.leaf.bits, self.expressions.bounds.of(statement.value)
        low, high = statement.leaf.limits
        if bounds.lies_within(low, high):
            return code
        return f"({code} - {low} & {2**bits - 1}) + {low}" if low else f"{code} & {2**bits - 1}"

    def _narrowed(self, bits: int, code: str) -> str:
        name = f"narrow_{bits}"
        self.expressions.names[name] = arithmetic.NARROWED[bits]
        return f"{name}({code})"

    def _index(self, items: str, index: str, where: Where) -> str:
        return f"check_index({items}, {index}, {self.expressions.named(where)})"

    def _return(self, passes: str, indent: str) -> None:
        # Only here do the static variables get their new values: an event that traps leaves none behind. (The items of
        # arrays change at once; `reset` brings new lists.)
        line = self._lines.append
        line(f"{indent}passes = {passes}")
        for slot, variable in enumerate(self._program.statics):
            if not variable.length:
                line(f"{indent}statics[{slot}] = s{slot}")
        if self._program.output is None:
            line(f"{indent}return passes, None")
        else:
            values = ", ".join([*self._outputs.values(), *self._copies.values()])
            line(f"{indent}return (True, [{values}]) if passes else (False, None)")


def _unpack(sequence: str, letter: str, count: int) -> list[str]:
    names = "".join(f"{letter}{number}, " for number in range(count))
    return [f" {names}= {sequence}"] if count else []
