"""Expressions as LLVM IR. Nothing here relies on what LLVM leaves undefined: sums wrap, what may be out of range is
checked before it is used, and no rule of arithmetic is taken for granted that floating point numbers break.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any, Final

import numpy

from echannel_ray.programs import arithmetic, tree
from echannel_ray.programs.bounds import Bounds
from echannel_ray.programs.emitter import IR_TYPES, Emitter, literal
from echannel_ray.programs.native_state import param_at, static_at
from echannel_ray.programs.places import Place, missing_value, place_of_leaf, strides_of
from echannel_ray.programs.program import Leaf, Program, Type, Where
from echannel_ray.programs.text_equality import equal_texts
from echannel_ray.programs.tree import Expression, operands
from echannel_ray.schemas.schema import Layout

_MAX_EAGER_STEPS: Final = 24
_WHOLE: Final = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "ashr"}
_REAL: Final = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_ORDERED: Final = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_SIGNED: Final = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED: Final = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTRINSICS: Final = {"abs_float": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc"}
_COMPARED: Final = {"min_int": "icmp slt", "max_int": "icmp sgt", "min_float": "fcmp olt", "max_float": "fcmp ogt"}


class Expressions:
    """What the function that runs one event works out: `%data` is the event, `%state` the block of `states`."""

    def __init__(self, emitter: Emitter, program: Program, layout: Layout, locals_: list[str]) -> None:
        self.emitter = emitter
        self.program = program
        self.locals = locals_
        self.bounds = Bounds()
        self._sources = {leaf: self._source(leaf, layout) for leaf in program.leaves}

    def value(self, expression: Expression) -> str:
        """The value: an operand of the expression's type."""
        put = self.emitter.put
        match expression:
            case tree.Const(type_, value):
                return literal(type_, value)
            case tree.Load(type_, leaf, indices, where):
                place, pointer = self.pointer(leaf, indices, where)
                return self.emitter.load(pointer, place, type_)
            case tree.Local(type_, slot):
                return put(f"load {IR_TYPES[type_]}, ptr {self.locals[slot]}")
            case tree.Static(type_, slot, index, where):
                return self._load_wide(self.static_pointer(slot, index, where), type_)
            case tree.Param(type_, slot):
                return self._load_wide(self.emitter.shifted("%state", param_at(slot)), type_)
            case tree.Convert(type_, value, where):
                return self._convert(type_, value, where)
            case tree.Unary(type_, operator, value):
                return self._unary(type_, operator, self.value(value))
            case tree.Binary(Type.FLOAT, operator, left, right):
                return self._real(operator, self.value(left), self.value(right))
            case tree.Binary(_, operator, left, right, where):
                return self._whole(operator, left, right, where)
            case tree.Compare():
                return self._compare(expression)
            case tree.Logic(_, operator, values):
                return self._logic(operator == "and", values)
            case tree.Choice(type_, condition, then, otherwise):
                return self._choice(type_, condition, then, otherwise)
            case tree.FunctionCall(_, function, arguments):
                return self._call(function, [self.value(each) for each in arguments])
        raise NotImplementedError(f"{expression} has no fixed place")

    # ---- what is read

    def pointer(self, leaf: Leaf, indices: tuple[Expression, ...], where: Where) -> tuple[Place, str]:
        """Where an item of the event is; indices are checked, one after the other."""
        base, place = self._sources[leaf]
        return place, self.emitter.shifted(base, place.offset, self.moves(place, indices, where))

    def moves(self, place: Place, indices: tuple[Expression, ...], where: Where) -> list[tuple[str, int]]:
        """Indices in range, with the strides that belong to them."""
        values = [self._index(each, length, where) for each, length in zip(indices, place.shape, strict=True)]
        return list(zip(values, place.strides, strict=True))

    def static_pointer(self, slot: int, index: Expression | None, where: Where) -> str:
        """Where a static variable is, or an item of it."""
        at = static_at(self.program, slot)
        if index is None:
            return self.emitter.shifted("%state", at)
        length = self.program.statics[slot].length
        return self.emitter.shifted("%state", at, [(self._index(index, length, where), 8)])

    def store_wide(self, value: str, type_: Type, pointer: str) -> None:
        """Put a value into the state."""
        if type_ is Type.FLOAT:
            value = self.emitter.bits_with_one_nan(value)
        else:
            value = self.emitter.convert(value, type_, Type.INT)
        self.emitter.do(f"store i64 {value}, ptr {pointer}, align 1")

    def _load_wide(self, pointer: str, type_: Type) -> str:
        raw = self.emitter.put(f"load {'double' if type_ is Type.FLOAT else 'i64'}, ptr {pointer}, align 1")
        return self.emitter.convert(raw, Type.INT, Type.BOOL) if type_ is Type.BOOL else raw

    def _index(self, index: Expression, length: int, where: Where) -> str:
        value = self.value(index)
        if not self.bounds.of(index).lies_within(0, length - 1):
            is_outside = self.emitter.put(f"icmp uge i64 {value}, {length}")
            self.emitter.trap_if(
                is_outside, f"i64 {value}", lambda wrong: arithmetic.item(range(length), _whole(wrong), where)
            )
        return value

    def _source(self, leaf: Leaf, layout: Layout) -> tuple[str, Place]:
        """A leaf's place in the event, or in a constant that takes its place."""
        place = place_of_leaf(layout, leaf)
        if place is not None:
            return "%data", place
        value = missing_value(self.program.input, leaf)
        dtype = _WIDE.get(leaf.type)
        array = numpy.array(value, dtype)
        if not array.dtype.itemsize:
            array = array.astype(array.dtype.kind + "1")
        shape = tuple(length or 0 for length in leaf.shape)
        return self.emitter.module.constant(array.tobytes()), Place(
            0, shape, strides_of(shape, array.dtype.itemsize), array.dtype
        )

    # ---- operators

    def _convert(self, target: Type, value: Expression, where: Where) -> str:
        operand = self.value(value)
        if (value.type, target) != (Type.FLOAT, Type.INT):
            return self.emitter.convert(operand, value.type, target)
        low = self.emitter.put(f"fcmp oge double {operand}, {literal(Type.FLOAT, -(2.0**63))}")
        high = self.emitter.put(f"fcmp olt double {operand}, {literal(Type.FLOAT, 2.0**63)}")
        is_wrong = self.emitter.put(f"xor i1 {self.emitter.put(f'and i1 {low}, {high}')}, true")
        self.emitter.trap_if(is_wrong, f"double {operand}", lambda wrong: arithmetic.to_whole(_real(wrong), where))
        return self.emitter.put(f"fptosi double {operand} to i64")

    def _unary(self, type_: Type, operator: str, value: str) -> str:
        if operator == "not":
            return self.emitter.put(f"xor i1 {value}, true")
        if operator == "~":
            return self.emitter.put(f"xor i64 {value}, -1")
        return self.emitter.put(f"fneg double {value}" if type_ is Type.FLOAT else f"sub i64 0, {value}")

    def _real(self, operator: str, left: str, right: str) -> str:
        if operator in _REAL:
            return self.emitter.put(f"{_REAL[operator]} double {left}, {right}")
        name = "floor_divide" if operator == "//" else "remainder"
        return self.emitter.call(name, "double", f"double {left}", f"double {right}")

    def _whole(self, operator: str, left: Expression, right: Expression, where: Where) -> str:
        a, b = self.value(left), self.value(right)
        bounds = self.bounds.of(right)
        if operator in ("//", "%"):
            if bounds.low <= 0 <= bounds.high:
                is_zero = self.emitter.put(f"icmp eq i64 {b}, 0")
                self.emitter.trap_if(is_zero, "i64 0", lambda _: arithmetic.divide_whole(0, 0, where))
            name = "floor_divide_whole" if operator == "//" else "remainder_whole"
            return self.emitter.call(name, "i64", f"i64 {a}", f"i64 {b}")
        if operator in ("<<", ">>") and not bounds.lies_within(0, 63):
            is_outside = self.emitter.put(f"icmp ugt i64 {b}, 63")
            self.emitter.trap_if(is_outside, f"i64 {b}", lambda wrong: arithmetic.shift_left(0, _whole(wrong), where))
        return self.emitter.put(f"{_WHOLE[operator]} i64 {a}, {b}")

    def _compare(self, expression: tree.Compare) -> str:
        left, right, operator = expression.left, expression.right, expression.operator
        if left.type in (Type.TEXT, Type.BYTES):
            is_equal = equal_texts(self, left, right)
            return is_equal if operator == "==" else self.emitter.put(f"xor i1 {is_equal}, true")
        a, b = self.value(left), self.value(right)
        if left.type is not right.type:  # UNSIGNED and INT
            if left.type is Type.INT:
                a, b, operator = b, a, _MIRRORED[operator]
            return self._compare_unsigned(a, b, operator)
        if left.type is Type.FLOAT:
            return self.emitter.put(f"fcmp {_ORDERED[operator]} double {a}, {b}")
        table = _SIGNED if left.type is Type.INT else _UNSIGNED
        return self.emitter.put(f"icmp {table[operator]} {IR_TYPES[left.type]} {a}, {b}")

    def _compare_unsigned(self, unsigned: str, signed: str, operator: str) -> str:
        """Whatever is below 0 is less than what has no sign."""
        is_below = self.emitter.put(f"icmp slt i64 {signed}, 0")
        among = self.emitter.put(f"icmp {_UNSIGNED[operator]} i64 {unsigned}, {signed}")
        if_below = "true" if operator in ("!=", ">", ">=") else "false"
        return self.emitter.put(f"select i1 {is_below}, i1 {if_below}, i1 {among}")

    # ---- what is not always worked out

    def _logic(self, is_and: bool, values: tuple[Expression, ...]) -> str:
        first, *others = values
        value = self.value(first)
        if not others:
            return value
        rest: Any = others[0] if len(others) == 1 else tree.Logic(Type.BOOL, "and" if is_and else "or", tuple(others))
        if self._is_cheap(rest):
            # Without a branch: a second condition that is worked out in vain takes less than a wrong guess.
            return self.emitter.put(f"{'and' if is_and else 'or'} i1 {value}, {self.value(rest)}")
        behind, end, result = self.emitter.new_label(), self.emitter.new_label(), self.emitter.allocate("i1")
        self.emitter.do(f"store i1 {value}, ptr {result}")
        self.emitter.branch(value, *((behind, end) if is_and else (end, behind)))
        self.emitter.label(behind)
        self.emitter.do(f"store i1 {self.value(rest)}, ptr {result}")
        self.emitter.go(end)
        self.emitter.label(end)
        return self.emitter.put(f"load i1, ptr {result}")

    def _choice(self, type_: Type, condition: Expression, then: Expression, otherwise: Expression) -> str:
        chosen, ir_type = self.value(condition), IR_TYPES[type_]
        if self._is_cheap(then) and self._is_cheap(otherwise):
            a, b = self.value(then), self.value(otherwise)
            return self.emitter.put(f"select i1 {chosen}, {ir_type} {a}, {ir_type} {b}")
        return self.emitter.choose(chosen, ir_type, [functools.partial(self.value, each) for each in (then, otherwise)])

    def _is_cheap(self, expression: Expression) -> bool:
        return not self.bounds.may_trap(expression) and _steps(expression) <= _MAX_EAGER_STEPS

    # ---- functions

    def _call(self, function: str, arguments: list[str]) -> str:
        put = self.emitter.put
        if function in _INTRINSICS:
            return put(f"call double @llvm.{_INTRINSICS[function]}.f64(double {arguments[0]})")
        if function in _COMPARED:
            (a, b), ir_type = arguments, "i64" if function.endswith("int") else "double"
            return put(f"select i1 {put(f'{_COMPARED[function]} {ir_type} {b}, {a}')}, {ir_type} {b}, {ir_type} {a}")
        if function == "abs_int":
            is_below, negated = put(f"icmp slt i64 {arguments[0]}, 0"), put(f"sub i64 0, {arguments[0]}")
            return put(f"select i1 {is_below}, i64 {negated}, i64 {arguments[0]}")
        if function == "isnan":
            return put(f"fcmp uno double {arguments[0]}, 0.0")
        if function in ("isinf", "isfinite"):
            size = put(f"call double @llvm.fabs.f64(double {arguments[0]})")
            return put(f"fcmp {'oeq' if function == 'isinf' else 'one'} double {size}, 0x7FF0000000000000")
        doubles = ", ".join(f"double {each}" for each in arguments)
        return put(f"call double inttoptr (i64 {address_of(arithmetic.LIBRARY, function)} to ptr)({doubles})")


def address_of(library: ctypes.CDLL, function: str) -> int:
    """Where a function of a library is."""
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    assert address is not None
    return address


def _steps(expression: Expression) -> int:
    """How many steps an expression takes; more than are ever taken in vain where it compares texts or calls."""
    match expression:
        case tree.FunctionCall(_, function) if function not in _COMPARED and function not in _INTRINSICS:
            return _MAX_EAGER_STEPS + 1
        case tree.Compare(_, _, left, _) if left.type in (Type.TEXT, Type.BYTES):
            return _MAX_EAGER_STEPS + 1
    return 1 + sum(map(_steps, operands(expression)))


def _whole(wrong: bytes) -> int:
    return int(struct.unpack("=q", wrong)[0])


def _real(wrong: bytes) -> float:
    return float(struct.unpack("=d", wrong)[0])


_WIDE: Final = {Type.BOOL: "?", Type.INT: "=i8", Type.UNSIGNED: "=u8", Type.FLOAT: "=f8"}
