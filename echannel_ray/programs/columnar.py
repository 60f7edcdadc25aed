"""The columnar form: a program without loops and static variables, run over whole columns with NumPy.

Both sides of an `if` are worked out for all records, and each record takes what belongs to it. So a trap only counts
for the records that get there: `active` says which they are, None standing for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from echannel_ray.programs import tree
from echannel_ray.programs.blocks import Array, Block, Trapped, as_array, copiers, sources, template, view
from echannel_ray.programs.column_expressions import Active, ColumnExpressions, both
from echannel_ray.programs.native_state import Value
from echannel_ray.programs.outputs import program_outputs
from echannel_ray.programs.places import Place, place_of_leaf
from echannel_ray.programs.program import FUNCTIONS, Leaf, Program, Trap
from echannel_ray.programs.tree import Expression, Statement
from echannel_ray.schemas.schema import Layout


def is_columnar(program: Program) -> bool:
    """Whether a program can run over columns, with the same results bit for bit."""
    return not program.statics and all(map(_is_columnar, program.body))


def _is_columnar(part: Any) -> bool:
    if isinstance(part, tree.For | tree.SetStatic):
        return False
    if isinstance(part, tree.FunctionCall) and not FUNCTIONS[part.function].is_exact:
        return False
    if isinstance(part, Statement | Expression):
        return all(map(_is_columnar, vars(part).values()))
    return all(map(_is_columnar, part)) if type(part) is tuple else True


class Columnar:
    """A program over columns of records of one layout."""

    def __init__(self, program: Program, layout: Layout, output: Layout | None) -> None:
        self._program, self._layout, self._output = program, layout, output
        self.params: Sequence[Value] = ()
        self._sources = sources(program, layout)
        self._template = template(program.output, output)
        self._copiers = copiers(program, layout, output)
        self._places: dict[Leaf, Place | None] = {}
        if program.output is not None and output is not None:
            self._places = {leaf: place_of_leaf(output, leaf) for leaf in program_outputs(program.output)}

    def select(self, block: Block, count: int) -> bytes:
        """A byte for each record of a block: 1 passes, 0 does not."""
        mask, _, trap = self._run(block, count)
        if trap is not None:
            raise Trapped(len(mask), trap, mask.tobytes())
        return mask.tobytes()

    def transform(self, block: Block, count: int) -> tuple[bytes, bytes]:
        """The outputs of the records that pass, one after the other, and which those are."""
        assert self._output is not None
        mask, out, trap = self._run(block, count)
        rows = out.reshape(count, self._output.itemsize)[: len(mask)]
        done = (rows[mask].tobytes(), mask.tobytes())
        if trap is not None:
            raise Trapped(len(mask), trap, done)
        return done

    def _run(self, block: Block, count: int) -> tuple[Array, Array, Trap | None]:
        array = as_array(block, count * self._layout.itemsize)
        out = numpy.frombuffer(bytearray(self._template * count), numpy.uint8)
        run = _Run(self, array, out, count)
        with numpy.errstate(all="ignore"):
            run.block(self._program.body, None)
        first = min(run.columns.traps, key=lambda trap: trap[0], default=None)
        if first is None:
            return run.result, out, None
        return run.result[: first[0]], out, Trap.raised_by(first[1])

    def columns(self, block: Array, count: int) -> dict[Leaf, Array]:
        """The columns of a block that the program reads."""
        return {each.leaf: each.column(block, self._layout.itemsize, count) for each in self._sources}

    def place(self, leaf: Leaf, out: Array, count: int) -> Array | None:
        """The column of a leaf in the outputs; None where they have none."""
        place = self._places[leaf]
        assert self._output is not None
        return None if place is None else view(out, place, self._output.itemsize, count)

    def copy(self, copy: tree.Copy, block: Array, out: Array, rows: Array) -> None:
        """Copy a field of these records to the outputs."""
        assert self._output is not None
        count = len(out) // self._output.itemsize
        self._copiers[copy].copy(block, rows, out, rows, (count, count))


class _Run:
    """One call of a program: `result` is filled as records come to their end."""

    def __init__(self, form: Columnar, block: Array, out: Array, count: int) -> None:
        self._form, self._block, self._out, self._count = form, block, out, count
        self._locals: dict[int, Any] = {}
        self.columns = ColumnExpressions(form.columns(block, count), form.params, self._locals, count)
        self.result: Array = numpy.zeros(count, numpy.bool_)

    def block(self, statements: tuple[Statement, ...], active: Active) -> Active:
        """Run statements for the records that get there; which of them go on behind."""
        for statement in statements:
            if active is not None and not active.any():
                break
            active = self._statement(statement, active)
        return active

    def _statement(self, statement: Statement, active: Active) -> Active:
        match statement:
            case tree.SetLocal(slot, value):
                found = self.columns.value(value, active)
                old = self._locals.get(slot)
                self._locals[slot] = found if active is None or old is None else numpy.where(active, found, old)
            case tree.StoreItem():
                self._store(statement, active)
            case tree.Copy():
                self._form.copy(statement, self._block, self._out, self._rows(active))
            case tree.If(condition, then, otherwise):
                chosen = numpy.broadcast_to(self.columns.value(condition, active), self._count)
                yes = self.block(then, both(active, chosen))
                no = self.block(otherwise, both(active, ~chosen))
                assert yes is not None
                assert no is not None
                return yes | no
            case tree.Return(passes):
                found = self.columns.value(passes, active)
                numpy.copyto(self.result, found, where=True if active is None else active)
                return numpy.zeros(self._count, numpy.bool_)
        return active

    def _store(self, statement: tree.StoreItem, active: Active) -> None:
        value = self.columns.value(statement.value, active)
        indices = self.columns.indices(statement.indices, statement.leaf.shape, statement.where, active)
        place = self._form.place(statement.leaf, self._out, self._count)
        if place is None:
            return
        rows = self._rows(active)
        values = numpy.broadcast_to(value, self._count)[rows]
        if values.dtype.kind == "f":
            values = numpy.where(numpy.isnan(values), numpy.nan, values)
        items = (rows, *(numpy.broadcast_to(each, self._count)[rows] for each in indices))
        place[items] = values.astype(place.dtype)

    def _rows(self, active: Active) -> Array:
        return numpy.arange(self._count) if active is None else numpy.flatnonzero(active)
