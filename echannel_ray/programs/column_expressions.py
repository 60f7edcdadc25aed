"""Expressions over whole columns: arrays with an item for each record, or scalars for what is the same in all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy

from echannel_ray.programs import arithmetic, tree
from echannel_ray.programs.blocks import Array
from echannel_ray.programs.bounds import Bounds
from echannel_ray.programs.native_state import Value
from echannel_ray.programs.program import Leaf, Type, Where
from echannel_ray.programs.tree import Expression

Active = Array | None
_SCALARS: Final[dict[Type, Callable[[Any], Any]]] = {
    Type.BOOL: numpy.bool_,
    Type.INT: numpy.int64,
    Type.UNSIGNED: numpy.uint64,
    Type.FLOAT: numpy.float64,
    Type.TEXT: numpy.str_,
    Type.BYTES: numpy.bytes_,
}
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": numpy.add,
    "-": numpy.subtract,
    "*": numpy.multiply,
    "/": numpy.true_divide,
    "//": numpy.floor_divide,
    "%": numpy.remainder,
    "&": numpy.bitwise_and,
    "|": numpy.bitwise_or,
    "^": numpy.bitwise_xor,
    "<<": numpy.left_shift,
    ">>": numpy.right_shift,
}
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": numpy.equal,
    "!=": numpy.not_equal,
    "<": numpy.less,
    "<=": numpy.less_equal,
    ">": numpy.greater,
    ">=": numpy.greater_equal,
}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs_int": numpy.absolute,
    "abs_float": numpy.absolute,
    "min_int": lambda a, b: numpy.where(b < a, b, a),
    "max_int": lambda a, b: numpy.where(b > a, b, a),
    "min_float": lambda a, b: numpy.where(b < a, b, a),
    "max_float": lambda a, b: numpy.where(b > a, b, a),
    "sqrt": numpy.sqrt,
    "floor": numpy.floor,
    "ceil": numpy.ceil,
    "trunc": numpy.trunc,
    "isnan": numpy.isnan,
    "isinf": numpy.isinf,
    "isfinite": numpy.isfinite,
}


def both(active: Active, condition: Array) -> Array:
    """The records of `active` for which a condition holds."""
    return condition if active is None else active & condition


def _out_of_range(length: int, where: Where) -> Callable[[Any], Any]:
    return lambda number: arithmetic.item(range(length), int(number), where)


class ColumnExpressions:
    """What the records of one call have. `traps` are the first of each place: the index, and what raises it."""

    def __init__(self, leaves: dict[Leaf, Array], params: Sequence[Value], locals_: dict[int, Any], count: int) -> None:
        self._leaves, self._params, self._locals, self._count = leaves, params, locals_, count
        self._bounds = Bounds()
        self._trapped: Active = None
        self.traps: list[tuple[int, Callable[[], Any]]] = []

    def value(self, expression: Expression, active: Active) -> Any:
        """The value in all records; what it is in those that are not active does not matter."""
        match expression:
            case tree.Const(type_, value):
                return _SCALARS[type_](value)
            case tree.Param(type_, slot):
                return _SCALARS[type_](self._params[slot])
            case tree.Local(_, slot):
                return self._locals[slot]
            case tree.Load(_, leaf, indices, where):
                found = self.indices(indices, leaf.shape, where, active)
                column = self._leaves[leaf]
                rows_and_items = (numpy.arange(self._count), *found)
                return column[rows_and_items] if found else column
            case tree.Convert(type_, value, where):
                return self._convert(type_, self.value(value, active), value.type, where, active)
            case tree.Unary(_, operator, value):
                found = self.value(value, active)
                return numpy.negative(found) if operator == "-" else numpy.invert(found)
            case tree.Binary():
                return self._binary(expression, active)
            case tree.Compare():
                return self._compare(expression, active)
            case tree.Logic(_, operator, values):
                return self._logic(operator == "and", values, active)
            case tree.Choice(_, condition, then, otherwise):
                chosen = self._whole(self.value(condition, active))
                yes = self.value(then, both(active, chosen))
                return numpy.where(chosen, yes, self.value(otherwise, both(active, ~chosen)))
            case tree.FunctionCall(_, function, arguments):
                return _FUNCTIONS[function](*[self.value(each, active) for each in arguments])
        raise AssertionError(expression)

    def indices(
        self, indices: tuple[Expression, ...], shape: tuple[int | None, ...], where: Where, active: Active
    ) -> list[Any]:
        """Indices, one after the other; those out of range trap, and are 0."""
        found = []
        for index, length in zip(indices, shape, strict=True):
            assert length is not None
            value = self.value(index, active)
            if not self._bounds.of(index).lies_within(0, length - 1):
                wrong = (value < 0) | (value >= length)
                self._trap(wrong, value, active, _out_of_range(length, where))
                value = numpy.where(wrong, 0, value)
            found.append(value)
        return found

    def _whole(self, value: Any) -> Array:
        return numpy.broadcast_to(value, self._count)

    def _trap(self, wrong: Any, detail: Any, active: Active, raise_trap: Callable[[Any], Any]) -> None:
        """Note the first record that gets there and traps, unless it has trapped before."""
        wrong = both(active, self._whole(wrong))
        if self._trapped is not None:
            wrong = wrong & ~self._trapped
        if not wrong.any():
            return
        self._trapped = wrong if self._trapped is None else self._trapped | wrong
        index = int(wrong.argmax())
        number = self._whole(detail)[index]
        self.traps.append((index, lambda: raise_trap(number)))

    def _convert(self, target: Type, value: Any, source: Type, where: Where, active: Active) -> Any:
        if target is Type.INT and source is Type.FLOAT:
            wrong = ~((value >= -(2.0**63)) & (value < 2.0**63))
            self._trap(wrong, value, active, lambda number: arithmetic.to_whole(float(number), where))
        return value != 0 if target is Type.BOOL else value.astype(_SCALARS[target])

    def _binary(self, expression: tree.Binary, active: Active) -> Any:
        left, right = self.value(expression.left, active), self.value(expression.right, active)
        operator, where = expression.operator, expression.where
        if expression.type is Type.INT:
            if operator in ("//", "%"):
                self._trap(right == 0, right, active, lambda _: arithmetic.divide_whole(0, 0, where))
            elif operator in ("<<", ">>"):
                wrong = (right < 0) | (right > 63)
                self._trap(wrong, right, active, lambda number: arithmetic.shift_left(0, int(number), where))
        return _BINARY[operator](left, right)

    def _compare(self, expression: tree.Compare, active: Active) -> Any:
        left, right = self.value(expression.left, active), self.value(expression.right, active)
        operator = expression.operator
        if {expression.left.type, expression.right.type} != {Type.INT, Type.UNSIGNED}:
            return _COMPARE[operator](left, right)
        if expression.left.type is Type.INT:
            left, right, operator = right, left, _MIRRORED[operator]
        # NumPy of older versions compares the two as floating point numbers.
        among = _COMPARE[operator](left, right.astype(numpy.uint64))
        return numpy.where(right < 0, operator in ("!=", ">", ">="), among)

    def _logic(self, is_and: bool, values: tuple[Expression, ...], active: Active) -> Any:
        result = self.value(values[0], active)
        for each in values[1:]:
            undecided = self._whole(result if is_and else ~result)
            found = self.value(each, both(active, undecided))
            result = result & found if is_and else result | found
        return result
