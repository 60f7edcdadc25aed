"""LLVM IR as text, one function at a time: scalars read, converted and stored in whatever form a field has.

The text is put together here rather than by `llvmlite.ir`, whose import and building take several times as long as
LLVM itself takes to compile a filter, and hold the interpreter meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from echannel_ray.programs.native_state import DETAIL_AT
from echannel_ray.programs.places import Place
from echannel_ray.programs.program import Type

IR_TYPES: Final = {Type.BOOL: "i1", Type.INT: "i64", Type.UNSIGNED: "i64", Type.FLOAT: "double"}
_REAL: Final = {4: "float", 8: "double"}
# The bits of infinity and of the NaN that is stored.
_NANS: Final = {4: ("i32", 0x7F800000, 0x7FC00000), 8: ("i64", 0x7FF0000000000000, 0x7FF8000000000000)}


class Module:
    """The text of all functions, with what they share: constants, traps, and parts of the prelude."""

    def __init__(self) -> None:
        self.text = ""
        self.globals: list[str] = []
        self.prelude: set[str] = set()
        self.traps: list[Callable[[bytes], Any]] = []  # each raises its `Trap`, given the number that was wrong

    def constant(self, data: bytes) -> str:
        """Add these bytes as a constant; its name."""
        name = f"@constant{len(self.globals)}"
        text = "".join(f"\\{byte:02x}" for byte in data)
        value = f'c"{text}"' if any(data) else "zeroinitializer"
        self.globals.append(f"{name} = private unnamed_addr constant [{len(data)} x i8] {value}, align 8")
        return name


class Emitter:
    """The function that is being written: each value has a name, each block a label."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.allocations: list[str] = []
        self.lines: list[str] = []
        self._names = 0
        self._traps: list[str] = []

    # ---- text

    def put(self, text: str) -> str:
        """Write an instruction; the name of its value."""
        self._names += 1
        self.lines.append(f"  %v{self._names} = {text}")
        return f"%v{self._names}"

    def do(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append(f"  {text}")

    def new_label(self) -> str:
        """A label that no block has."""
        self._names += 1
        return f"b{self._names}"

    def label(self, label: str) -> None:
        """Begin a block with this label."""
        self.lines.append(f"{label}:")

    def go(self, label: str) -> None:
        """End the block by a jump to another."""
        self.do(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End the block by a jump to one of two others."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def allocate(self, ir_type: str) -> str:
        """A new place of the function's own; LLVM makes a register of it."""
        self._names += 1
        self.allocations.append(f"  %v{self._names} = alloca {ir_type}")
        return f"%v{self._names}"

    def call(self, name: str, ir_type: str, *arguments: str) -> str:
        """Call a function of the prelude."""
        self.module.prelude.add(name)
        return self.put(f"call {ir_type} @ecode.{name}({', '.join(arguments)})")

    def trap_if(self, condition: str, detail: str, trap: Callable[[bytes], Any]) -> None:
        """Leave the function if the condition holds, with the number of this trap, plus 2."""
        label, on = self.new_label(), self.new_label()
        self.branch(condition, label, on)
        self.label(on)
        self._traps += [
            f"{label}:",
            f"  %{label}detail = getelementptr i8, ptr %state, i64 {DETAIL_AT}",
            f"  store {detail}, ptr %{label}detail, align 1",
            f"  ret i64 {len(self.module.traps) + 2}",
        ]
        self.module.traps.append(trap)

    def text(self) -> list[str]:
        """The body of the function."""
        return ["entry:", *self.allocations, "  br label %start", "start:", *self.lines, *self._traps]

    def choose(self, condition: str, ir_type: str, choices: Iterable[Callable[[], str]]) -> str:
        """Write a branch; each of the two `choices` writes one side, and gives its value. The name of the value."""
        result, end = self.allocate(ir_type), self.new_label()
        sides = [self.new_label(), self.new_label()]
        self.branch(condition, *sides)
        for label, choice in zip(sides, choices, strict=True):
            self.label(label)
            self.do(f"store {ir_type} {choice()}, ptr {result}")
            self.go(end)
        self.label(end)
        return self.put(f"load {ir_type}, ptr {result}")

    def repeat(self, count: int, body: Callable[[str], None]) -> None:
        """Write a loop; `body` writes one turn, given its number."""
        turn, head, end = self.allocate("i64"), self.new_label(), self.new_label()
        self.do(f"store i64 0, ptr {turn}")
        self.go(head)
        self.label(head)
        current = self.put(f"load i64, ptr {turn}")
        body(current)
        following = self.put(f"add i64 {current}, 1")
        self.do(f"store i64 {following}, ptr {turn}")
        self.branch(self.put(f"icmp ult i64 {following}, {count}"), head, end)
        self.label(end)

    # ---- values

    def convert(self, value: str, source: Type, target: Type) -> str:
        """A number of one type as another, without loss or as IEEE 754 rounds; not floating point to whole."""
        if source is target or {source, target} == {Type.INT, Type.UNSIGNED}:
            return value
        if target is Type.BOOL:
            return self.put(f"fcmp une double {value}, 0.0" if source is Type.FLOAT else f"icmp ne i64 {value}, 0")
        if target is Type.FLOAT:
            instruction = "sitofp" if source is Type.INT else "uitofp"
            return self.put(f"{instruction} {IR_TYPES[source]} {value} to double")
        return self.put(f"zext i1 {value} to i64")

    def load(self, pointer: str, place: Place, type_: Type) -> str:
        """Write the load of a scalar from memory, widened; its name."""
        size, kind = place.dtype.itemsize, place.dtype.kind
        raw = self.put(f"load i{8 * size}, ptr {pointer}, align 1")
        if place.is_foreign:
            raw = self._swapped(raw, size)
        if kind == "b":
            return self.convert(self.put(f"icmp ne i8 {raw}, 0"), Type.BOOL, type_)
        if kind == "f":
            if size == 2:
                return self.call("half_to_double", "double", f"i16 {raw}")
            real = self.put(f"bitcast i{8 * size} {raw} to {_REAL[size]}")
            return real if size == 8 else self.put(f"fpext float {real} to double")
        if size < 8:
            raw = self.put(f"{'zext' if kind == 'u' else 'sext'} i{8 * size} {raw} to i64")
        return self.convert(raw, Type.UNSIGNED if kind == "u" else Type.INT, type_)

    def store(self, value: str, type_: Type, pointer: str, place: Place) -> None:
        """Write the store of a scalar to memory, narrowed."""
        size, kind = place.dtype.itemsize, place.dtype.kind
        if kind == "b":
            raw = self.put(f"zext i1 {self.convert(value, type_, Type.BOOL)} to i8")
        elif kind == "f":
            raw = self._narrowed(self.convert(value, type_, Type.FLOAT), size)
        else:
            raw = self.convert(value, type_, Type.INT)
            if size < 8:
                raw = self.put(f"trunc i64 {raw} to i{8 * size}")
        if place.is_foreign:
            raw = self._swapped(raw, size)
        self.do(f"store i{8 * size} {raw}, ptr {pointer}, align 1")

    def move(self, source: str, target: str, size: int, is_swapped: bool) -> None:
        """Write the copy of so many bytes (1, 2, 4 or 8), perhaps in the other order."""
        raw = self.put(f"load i{8 * size}, ptr {source}, align 1")
        if is_swapped:
            raw = self._swapped(raw, size)
        self.do(f"store i{8 * size} {raw}, ptr {target}, align 1")

    def _swapped(self, raw: str, size: int) -> str:
        return self.put(f"call i{8 * size} @llvm.bswap.i{8 * size}(i{8 * size} {raw})")

    def bits_with_one_nan(self, value: str, size: int = 8) -> str:
        """The bits of a floating point number, or of the one NaN that is stored.

        LLVM takes one NaN for as good as another, and leaves out a choice between a NaN and the number itself. So it
        must not see where the bits come from: to it, the empty piece of assembler might do anything with them.
        """
        ir_type, infinity, nan = _NANS[size]
        bits = self.put(f"bitcast {_REAL[size]} {value} to {ir_type}")
        bits = self.put(f'call {ir_type} asm "", "=r,0"({ir_type} {bits})')
        magnitude = self.put(f"and {ir_type} {bits}, {(1 << 8 * size - 1) - 1}")
        is_nan = self.put(f"icmp ugt {ir_type} {magnitude}, {infinity}")
        return self.put(f"select i1 {is_nan}, {ir_type} {nan}, {ir_type} {bits}")

    def _narrowed(self, value: str, size: int) -> str:
        if size == 2:
            return self.call("double_to_half", "i16", f"double {value}")
        if size == 4:
            value = self.put(f"fptrunc double {value} to float")
        return self.bits_with_one_nan(value, size)

    def shifted(self, base: str, offset: int, moves: list[tuple[str, int]] | None = None) -> str:
        """Write the pointer that is so many bytes on, and by indices times strides; its name."""
        pointer = base if offset == 0 else self.put(f"getelementptr i8, ptr {base}, i64 {offset}")
        for index, stride in moves or ():
            distance = index if stride == 1 else self.put(f"mul i64 {index}, {stride}")
            pointer = self.put(f"getelementptr i8, ptr {pointer}, i64 {distance}")
        return pointer


def literal(type_: Type, value: Any) -> str:
    """A constant number, as IR has it."""
    if type_ is Type.BOOL:
        return "true" if value else "false"
    if type_ is Type.FLOAT:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(value if value < 2**63 else value - 2**64)
