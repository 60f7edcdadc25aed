"""A program at work over records of one layout, in the fastest form that there is at the moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echannel_ray.programs import compiler
from echannel_ray.programs.blocks import Block, Trapped, template
from echannel_ray.programs.columnar import Columnar, is_columnar
from echannel_ray.programs.native import Machine
from echannel_ray.programs.native_state import Value
from echannel_ray.programs.program import Program
from echannel_ray.programs.recordwise import Recordwise, compacted
from echannel_ray.schemas.schema import Layout

__all__ = ["Engine", "Trapped"]


class Engine:
    """One for each replica of a program and layout of its events. It begins interpreted, or columnar where the program
    can be run over whole columns; the first call after machine code is ready goes on with that, from the same state.

    A `Trapped` says how far a call came; the static variables then begin anew. Calls must not overlap.
    """

    def __init__(self, program: Program, layout: Layout, output: Layout | None = None) -> None:
        if not program.is_fixed:
            raise ValueError("a program that reads fields of any length runs over single events: use `Interpreted`")
        if (program.output is None) != (output is None):
            raise ValueError("a transformation needs the layout of its output, and a filter has none")
        self._program, self._layout, self._output = program, layout, output
        self._recordwise = Recordwise(program, layout, output)
        self._columnar = Columnar(program, layout, output) if is_columnar(program) else None
        self._machine: Machine | None = None
        self._request: compiler.CompileRequest | None = compiler.request(
            program, layout, output, template(program.output, output)
        )

    @property
    def form(self) -> str:
        """What the next call uses: "interpreted", "columnar" or "native"."""
        self._adopt()
        return "native" if self._machine else "columnar" if self._columnar else "interpreted"

    def set_params(self, values: Sequence[Value]) -> None:
        """New values of the parameters, in the program's order."""
        self._recordwise.params = tuple(values)
        if self._columnar is not None:
            self._columnar.params = self._recordwise.params
        if self._machine is not None:
            self._machine.state.set_params(values)

    @property
    def statics(self) -> list[Any]:
        """The static variables, in the program's order; arrays are lists."""
        return self._machine.state.statics if self._machine else self._recordwise.interpreted.statics

    @statics.setter
    def statics(self, values: list[Any]) -> None:
        if self._machine is not None:
            self._machine.state.statics = values
        else:
            self._recordwise.interpreted.statics = values

    def reset(self) -> None:
        """Begin anew: all static variables are as they were at first."""
        self._recordwise.interpreted.reset()
        self.statics = self._recordwise.interpreted.statics

    def passes(self, record: bytes) -> bool:
        """Whether one event passes. In the native form this attribute is the compiled function itself."""
        self._adopt()
        if self._machine is not None:
            single = self._machine.single
            return single(record) if single is not None else bool(self._machine.select(record, 1)[0])
        return self._recordwise.passes(record)

    def select(self, block: Block, count: int) -> bytes:
        """A byte for each record: 1 passes, 0 does not."""
        self._adopt()
        return (self._machine or self._columnar or self._recordwise).select(block, count)

    def survivors(self, block: Block, count: int) -> tuple[Block, int]:
        """The records that pass, and how many."""
        self._adopt()
        if self._machine is not None:
            return self._machine.survivors(block, count)
        try:
            mask = (self._columnar or self._recordwise).select(block, count)
        except Trapped as trapped:
            done = compacted(memoryview(block), trapped.done, self._layout.itemsize)
            raise Trapped(trapped.index, trapped.trap, done) from None
        return compacted(block, mask, self._layout.itemsize)

    def transform(self, block: Block, count: int) -> tuple[bytes, bytes]:
        """The outputs of the records that pass, one after the other, and which those are."""
        self._adopt()
        return (self._machine or self._columnar or self._recordwise).transform(block, count)

    def wait_native(self, timeout_seconds: float) -> bool:
        """Whether machine code is ready within this time; for tests and benchmarks."""
        if self._request is not None:
            self._request.is_done.wait(timeout_seconds)
        return self.form == "native"

    def _adopt(self) -> None:
        """Go on with machine code, if there is some now."""
        asked = self._request
        if asked is None or not asked.is_done.is_set():
            return
        self._request = None
        if asked.code is None:
            return
        machine = Machine(self._program, self._layout, self._output, asked.code)
        machine.state.statics = self.statics
        if self._recordwise.params:
            machine.state.set_params(self._recordwise.params)
        self._machine = machine
        if machine.single is not None:
            self.__dict__["passes"] = machine.single
