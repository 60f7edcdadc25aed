"""Programs as machine code: what LLVM makes of the text of `lowering`, and how it is called.

`llvmlite` is an optional extra, and is imported here only when something is compiled: without it `load` raises
`ImportError`, and the other forms go on.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import struct
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from echannel_ray.programs.blocks import Block, Trapped, as_array
from echannel_ray.programs.emitter import Module
from echannel_ray.programs.lowering import lower
from echannel_ray.programs.native_state import ASIDE_AT, BYTES_CONTENT_AT, NativeState
from echannel_ray.programs.program import Program, Trap
from echannel_ray.schemas.schema import Layout

_METH_O: Final = 0x0008
# Functions that take less than that keep the interpreter's lock: giving it away and waiting for it takes longer.
_MAX_LOCKED_STEPS: Final = 100_000
# Fields of neighbouring records are not side by side: fetched one by one they come three times as fast as by `vgather`.
_FEATURES: Final = "+prefer-no-gather,+prefer-no-scatter" if platform.machine() in ("x86_64", "AMD64") else ""
_TRAP_BITS: Final = (1 << 20) - 1
_new_function: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)
_new_bytes: Final[Callable[[None, int], bytes]] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t
)(("PyBytes_FromStringAndSize", ctypes.pythonapi))
_PARAMETERS: Final = {"select": 4, "survivors": 5, "transform": 6}


class _MethodDefinition(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


class NativeCode:
    """The machine code of a program for records of one layout, for all replicas; each has its `NativeState`."""

    def __init__(self, program: Program, engine: Any, module: Module, names: list[str]) -> None:
        self.traps = module.traps
        self._cost = max(program.cost, 1)
        self._functions: dict[str, tuple[Callable[..., int], Callable[..., int]]] = {}
        for name in set(names) & set(_PARAMETERS):
            address = engine.get_function_address(name)
            parameters = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * (_PARAMETERS[name] - 2)]
            self._functions[name] = (
                ctypes.PYFUNCTYPE(ctypes.c_int64, *parameters)(address),
                ctypes.CFUNCTYPE(ctypes.c_int64, *parameters)(address),
            )
        self._methods = {
            name: _MethodDefinition(name.encode(), engine.get_function_address(name), _METH_O, None)
            for name in ("single", "mask")
            if name in names
        }

    def run(self, name: str, data: int, count: int, *others: int) -> int:
        """Call a function over packs; its status."""
        locked, unlocked = self._functions[name]
        call = locked if self.is_short(count) else unlocked
        return call(data, count, *others)

    def function(self, name: str, state: NativeState, aside: Callable[[bytes], bool]) -> Callable[[bytes], Any] | None:
        """A function of Python's, "single" for one event or "mask" for a pack; None where there is no such. `aside` is
        called instead at traps, and for what is no event.
        """
        if name not in self._methods:
            return None
        state.set_address(ASIDE_AT, id(aside))
        # The last argument is what says of which module a function is. It is here what has to live as long.
        function: Callable[[bytes], Any] = _new_function(
            ctypes.addressof(self._methods[name]), state.owner, (self, state, aside)
        )
        return function

    def is_short(self, count: int) -> bool:
        """Whether so many events take so little time that the interpreter's lock is kept."""
        return count * self._cost <= _MAX_LOCKED_STEPS

    def trap_of(self, status: int, detail: bytes) -> Trap:
        """The `Trap` of a status."""
        return Trap.raised_by(functools.partial(self.traps[(status & _TRAP_BITS) - 2], detail))


def _trapped_at(status: int) -> int:
    """The index of the record that trapped."""
    return status >> 20


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
            raise self._trapped(status, mask[: _trapped_at(status)])
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
            raise self._trapped(status, (outputs, mask[: _trapped_at(status)]))
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
        return Trapped(_trapped_at(status), trap, done)


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


def compile_program(
    program: Program,
    layout: Layout,
    output: Layout | None,
    template: bytes = b"",
    discard: Callable[[Callable[[], None]], None] = lambda free: free(),
) -> NativeCode:
    """The machine code; `ImportError` without llvmlite, `RuntimeError` where LLVM fails. `discard` has the memory freed
    when nobody holds the code any more: at once without it.
    """
    llvm = load()
    module = lower(program, layout, output, template)
    context = llvm.create_context()
    parsed = llvm.parse_assembly(module.text, context)
    names = [each.name for each in parsed.functions if not each.is_declaration]
    machine = _machine(llvm)
    _optimise(llvm, machine, parsed)
    engine = llvm.create_mcjit_compiler(parsed, machine)

    def free() -> None:
        # In this order: left to the garbage collector, the context may go first, and the process with it.
        engine.close()
        context.close()

    try:
        engine.finalize_object()
        code = NativeCode(program, engine, module, names)
    except BaseException:
        free()
        raise
    weakref.finalize(code, discard, free).atexit = False
    return code


def load() -> Any:
    """LLVM, ready for this machine."""
    if "llvmlite.binding" not in sys.modules:
        _load_library()
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _load_library() -> None:
    """Have the system load LLVM's library before the import does, which would hold the interpreter's lock for 8 ms."""
    package = importlib.util.find_spec("llvmlite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for path in (Path(folder) / "binding").glob("libllvmlite.*"):
            load_library = ctypes.CDLL(None).dlopen
            load_library.argtypes, load_library.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
            load_library(os.fsencode(path), os.RTLD_NOW)  # if it fails, the import says why


def _machine(llvm: Any) -> Any:
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=_FEATURES, opt=2, jit=True)


def _optimise(llvm: Any, machine: Any, module: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:
        # By itself it would never be freed, 90 kB each time: of its two base classes the first has a `_dispose` that
        # does nothing, and hides that of the second.
        llvm.newpassmanagers.NewPassManager._dispose(passes)
        passes.detach()
