"""The interpreted form over packs: one record after the other, from columns that NumPy makes lists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from echannel_ray.programs import tree
from echannel_ray.programs.blocks import Array, Block, Trapped, as_array, copiers, sources, template, view
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.native_state import Value
from echannel_ray.programs.outputs import copied, program_outputs
from echannel_ray.programs.places import Place, place_of_leaf
from echannel_ray.programs.program import Program, Trap
from echannel_ray.schemas.schema import Layout


class Recordwise:
    """The interpreted form of one replica, for records of one layout."""

    def __init__(self, program: Program, layout: Layout, output: Layout | None) -> None:
        self.program, self._layout, self._output = program, layout, output
        self.interpreted = Interpreted(program)
        self.params: Sequence[Value] = ()
        self._sources = sources(program, layout)
        self._template = template(program.output, output)
        self._outputs: list[Place | None] = []
        if program.output is not None and output is not None:
            self._outputs = [place_of_leaf(output, leaf) for leaf in program_outputs(program.output)]
        self._copiers = copiers(program, layout, output)

    def passes(self, record: Block) -> bool:
        """Whether one event alone passes."""
        mask, _, trap = self._run(record, 1)
        if trap is not None:
            raise Trapped(0, trap, b"")
        return bool(mask[0])

    def select(self, block: Block, count: int) -> bytes:
        """A byte for each record of a block: 1 passes, 0 does not."""
        mask, _, trap = self._run(block, count)
        if trap is not None:
            raise Trapped(len(mask), trap, bytes(mask))
        return bytes(mask)

    def transform(self, block: Block, count: int) -> tuple[bytes, bytes]:
        """The outputs of the records that pass, one after the other, and which those are."""
        mask, values, trap = self._run(block, count)
        done = (self._assembled(block, count, mask, values), bytes(mask))
        if trap is not None:
            raise Trapped(len(mask), trap, done)
        return done

    def _run(self, block: Block, count: int) -> tuple[bytearray, list[list[Any]], Trap | None]:
        itemsize = self._layout.itemsize
        array = as_array(block, count * itemsize)
        columns = [source.column(array, itemsize, count).tolist() for source in self._sources]
        rows: Any = zip(*columns, strict=True) if columns else [()] * count
        mask, outputs = bytearray(), list[list[Any]]()
        for leaves in rows:
            try:
                passes, values = self.interpreted.run(leaves, self.params)
            except Trap as trap:
                return mask, outputs, trap
            mask.append(passes)
            if passes and values is not None:
                outputs.append(values)
        return mask, outputs, None

    def _assembled(self, block: Block, count: int, mask: bytearray, outputs: list[list[Any]]) -> bytes:
        assert self._output is not None
        out = numpy.frombuffer(bytearray(self._template * len(outputs)), numpy.uint8)
        if not outputs:
            return b""
        columns = list(zip(*outputs, strict=True))
        for place, column in zip(self._outputs, columns, strict=False):
            if place is not None:
                view(out, place, self._output.itemsize, len(outputs))[...] = numpy.array(column, _wide(place))
        passed = numpy.flatnonzero(numpy.frombuffer(mask, numpy.uint8))
        array = as_array(block, count * self._layout.itemsize)
        for target, column in zip(copied(self.program), columns[len(self._outputs) :], strict=True):
            for source in set(column) - {None}:
                rows = numpy.array([number for number, each in enumerate(column) if each == source])
                self._copiers[tree.Copy(target, source)].copy(array, passed[rows], out, rows, (count, len(outputs)))
        return out.tobytes()


def _wide(place: Place) -> Any:
    """The type through which values of Python's become those of a place without being refused."""
    return numpy.float64 if place.dtype.kind == "f" else place.dtype


def compacted(block: Block, mask: bytes, itemsize: int) -> tuple[Block, int]:
    """The records that pass, and how many; the block itself if all do."""
    chosen: Array = numpy.frombuffer(mask, numpy.bool_)
    count = int(numpy.count_nonzero(chosen))
    whole = memoryview(block)[: len(mask) * itemsize]
    if count == len(mask):
        return (block if len(block) == len(whole) else whole), count
    records = numpy.frombuffer(whole, numpy.uint8).reshape(len(mask), itemsize)
    return records[chosen].tobytes(), count
