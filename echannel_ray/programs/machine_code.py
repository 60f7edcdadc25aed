"""The native form over packs: machine code, called with the addresses of what it reads and writes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.programs.blocks import Block, Trapped, as_array
from echannel_ray.programs.native import NativeCode, trapped_at
from echannel_ray.programs.native_state import BYTES_CONTENT_AT, NativeState
from echannel_ray.programs.program import Program
from echannel_ray.schemas.schema import Layout

_new_bytes: Final[Callable[[None, int], bytes]] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t
)(("PyBytes_FromStringAndSize", ctypes.pythonapi))


class Machine:
    """The machine code of one replica, for records of one layout."""

    def __init__(self, program: Program, layout: Layout, output: Layout | None, code: NativeCode) -> None:
        self._program, self._code = program, code
        self._itemsize, self._output_size = layout.itemsize, output.itemsize if output else 0
        self.state = NativeState(program)
        self.state.statics = program.initial_statics()
        self._passed = bytes(16)  # the machine code writes how many passed into its first half
        self._passed_at = id(self._passed) + BYTES_CONTENT_AT
        aside = _Aside(program, layout, code, self.state)
        self.single: Callable[[bytes], bool] | None = code.function("single", self.state, aside)
        self._mask: Callable[[bytes], bytes] | None = code.function("mask", self.state, aside)

    def select(self, block: Block, count: int) -> bytes:
        """A byte for each record of a block: 1 passes, 0 does not."""
        if (
            self._mask is not None
            and type(block) is bytes
            and len(block) == count * self._itemsize
            and self._code.is_short(count)
        ):
            return self._mask(block)
        data, _keep = self._address(block, count)
        mask = _new_bytes(None, count)
        status = self._code.run("select", data, count, self.state.address, id(mask) + BYTES_CONTENT_AT)
        if status >= 0:
            raise self._trapped(status, mask[: trapped_at(status)])
        return mask

    def survivors(self, block: Block, count: int) -> tuple[Block, int]:
        """The records that pass, and how many; the block itself if all do."""
        data, _keep = self._address(block, count)
        out = _new_bytes(None, count * self._itemsize)
        addresses = (id(out) + BYTES_CONTENT_AT, self._passed_at)
        status = self._code.run("survivors", data, count, self.state.address, *addresses)
        passed = self._count_passed()
        if status < 0 and passed == count:
            size = count * self._itemsize
            return (block if len(block) == size else memoryview(block)[:size]), count
        done = (memoryview(out)[: passed * self._itemsize], passed)
        if status >= 0:
            raise self._trapped(status, done)
        return done

    def transform(self, block: Block, count: int) -> tuple[bytes, bytes]:
        """The outputs of the records that pass, one after the other, and which those are."""
        data, _keep = self._address(block, count)
        mask, out = _new_bytes(None, count), _new_bytes(None, count * self._output_size)
        addresses = (id(out) + BYTES_CONTENT_AT, self._passed_at, id(mask) + BYTES_CONTENT_AT)
        status = self._code.run("transform", data, count, self.state.address, *addresses)
        outputs = out[: self._count_passed() * self._output_size]
        if status >= 0:
            raise self._trapped(status, (outputs, mask[: trapped_at(status)]))
        return outputs, mask

    def _address(self, block: Block, count: int) -> tuple[int, Any]:
        """The address of the block, with what keeps it there."""
        size = count * self._itemsize
        if type(block) is bytes and len(block) >= size:
            return id(block) + BYTES_CONTENT_AT, block
        array = as_array(block, size)
        return array.ctypes.data, array

    def _count_passed(self) -> int:
        return int(struct.unpack("=q", ctypes.string_at(self._passed_at, 8))[0])

    def _trapped(self, status: int, done: Any) -> Trapped:
        trap = self._code.trap_of(status, self.state.detail)
        self.state.statics = self._program.initial_statics()
        return Trapped(trapped_at(status), trap, done)


class _Aside:
    """What the machine code for single events calls where it is given something else, or traps."""

    def __init__(self, program: Program, layout: Layout, code: NativeCode, state: NativeState) -> None:
        self._program, self._layout, self._code, self._state = program, layout, code, state

    def __call__(self, record: bytes) -> bool:
        if not self._state.status:
            size = self._layout.itemsize
            raise TypeError(f"an event is `bytes`, {size} of them; this is {type(record).__name__}: {record!r:.60}")
        trap = self._code.trap_of(self._state.status, self._state.detail)
        self._state.statics = self._program.initial_statics()
        raise Trapped(0, trap, b"")
