"""What operators do with values of which types, and what they are worked out to where all values are constants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from echannel_ray.programs import tree
from echannel_ray.programs.bounds import MAX_INT, MIN_INT
from echannel_ray.programs.program import Type, Where
from echannel_ray.programs.program_refusals import Refused
from echannel_ray.programs.tree import Expression

TRUE: Final = tree.Const(Type.BOOL, True)
FALSE: Final = tree.Const(Type.BOOL, False)
_NUMBERS: Final = (Type.BOOL, Type.INT, Type.FLOAT)
_TEXTS: Final = (Type.TEXT, Type.BYTES)
_OF_WHOLE: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
_NAMES: Final = {
    Type.BOOL: "a truth value",
    Type.INT: "a whole number",
    Type.FLOAT: "a floating point number",
    Type.UNSIGNED: "an unsigned number of 64 bits",
    Type.TEXT: "text",
    Type.BYTES: "bytes",
}


def named(type_: Type) -> str:
    """A type in words."""
    return _NAMES[type_]


def whole(value: int, where: Where) -> tree.Const:
    """A constant whole number, if it is one of 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise Refused("whole numbers have 64 bits: this one is too large", where)
    return tree.Const(Type.INT, value)


def number(value: Expression, where: Where) -> Expression:
    """The expression, checked to be one that arithmetic takes."""
    if value.type is Type.UNSIGNED:
        raise Refused("an unsigned number of 64 bits can only be compared: write int(…) or float(…) around it", where)
    if value.type in _TEXTS:
        raise Refused(f"this is {named(value.type)}, and only compared: `==`, `!=`, `in`", where)
    return value


def converted(value: Expression, type_: Type, where: Where) -> Expression:
    """A number, converted to another type."""
    if value.type is type_:
        return value
    if isinstance(value, tree.Const) and isinstance(value.value, bool | int):
        return tree.Const(type_, {Type.FLOAT: float, Type.INT: int, Type.BOOL: bool}[type_](value.value))
    return tree.Convert(type_, value, where)


def truth(value: Expression, where: Where) -> Expression:
    """`bool(x)`"""
    if value.type is Type.UNSIGNED:
        return tree.Compare(Type.BOOL, "!=", value, tree.Const(Type.INT, 0))
    if value.type in _TEXTS:
        raise Refused(f"this is {named(value.type)}, and neither true nor false: compare it with `==` or `!=`", where)
    return converted(value, Type.BOOL, where)


def negated(value: Expression) -> Expression:
    """`not x` of a truth value."""
    if isinstance(value, tree.Unary):
        return value.value
    if isinstance(value, tree.Const):
        return tree.Const(Type.BOOL, not value.value)
    return tree.Unary(Type.BOOL, "not", value)


def signed(operator: str, value: Expression, where: Where) -> Expression:
    """`-x`, `+x` or `~x`."""
    value = number(value, where)
    if value.type is Type.BOOL:
        value = converted(value, Type.INT, where)
    if operator == "~" and value.type is Type.FLOAT:
        raise Refused("`~` is for whole numbers: write int(…) around it", where)
    if operator == "+":
        return value
    if isinstance(value, tree.Const) and isinstance(value.value, int):
        return whole(-value.value if operator == "-" else ~value.value, where)
    if isinstance(value, tree.Const) and isinstance(value.value, float):
        return tree.Const(Type.FLOAT, -value.value)
    return tree.Unary(value.type, operator, value)


def binary(operator: str, left: Expression, right: Expression, where: Where) -> Expression:
    """`left operator right`, but for powers."""
    left, right = number(left, where), number(right, where)
    if operator in ("&", "|", "^", "<<", ">>"):
        return _of_bits(operator, left, right, where)
    is_floating = operator == "/" or Type.FLOAT in (left.type, right.type)
    type_ = Type.FLOAT if is_floating else Type.INT
    left, right = converted(left, type_, where), converted(right, type_, where)
    if type_ is Type.INT and operator in ("//", "%") and isinstance(right, tree.Const) and not right.value:
        raise Refused("this divides a whole number by 0", where)
    return _folded(tree.Binary(type_, operator, left, right, where))


def _of_bits(operator: str, left: Expression, right: Expression, where: Where) -> Expression:
    if Type.FLOAT in (left.type, right.type):
        raise Refused(f"`{operator}` is for whole numbers: write int(…) around floating point ones", where)
    if left.type is right.type is Type.BOOL and operator in ("&", "|", "^"):
        bits = tree.Binary(Type.INT, operator, _as_bit(left, where), _as_bit(right, where), where)
        return converted(_folded(bits), Type.BOOL, where)
    if operator in ("<<", ">>") and isinstance(right, tree.Const) and not 0 <= int(right.value) <= 63:
        raise Refused("whole numbers have 64 bits: a shift is by 0 to 63", where)
    left, right = converted(left, Type.INT, where), converted(right, Type.INT, where)
    return _folded(tree.Binary(Type.INT, operator, left, right, where))


def _as_bit(value: Expression, where: Where) -> Expression:
    """0 or 1: what was made of bits by `_of_bits` again without the detour."""
    match value:
        case tree.Convert(_, tree.Binary(_, "&" | "|" | "^", one, other) as bits) if _is_bit(one) and _is_bit(other):
            return bits
    return converted(value, Type.INT, where)


def _is_bit(value: Expression) -> bool:
    match value:
        case tree.Convert(type_, inner):
            return type_ is Type.INT and inner.type is Type.BOOL
        case tree.Binary(_, "&" | "|" | "^", left, right):
            return _is_bit(right) and _is_bit(left)
    return isinstance(value, tree.Const) and value.value in (0, 1)


def _folded(operation: tree.Binary) -> Expression:
    """Constants of whole numbers are worked out: loops are bounded by them."""
    left, right = operation.left, operation.right
    if not (isinstance(left, tree.Const) and isinstance(right, tree.Const) and operation.type is Type.INT):
        return operation
    return whole(_OF_WHOLE[operation.operator](int(left.value), int(right.value)), operation.where)


def compared(operator: str, left: Expression, right: Expression, where: Where) -> Expression:
    """`left operator right`, a truth value."""
    types = {left.type, right.type}
    if types & set(_TEXTS):
        if len(types) > 1:
            raise Refused(f"{named(left.type)} and {named(right.type)} are never equal", where)
        if operator not in ("==", "!="):
            raise Refused(f"{named(left.type)} has no order here: there are `==`, `!=` and `in`", where)
    elif Type.FLOAT in types:
        left, right = converted(left, Type.FLOAT, where), converted(right, Type.FLOAT, where)
    elif types != {Type.BOOL} or operator not in ("==", "!="):
        left, right = (converted(each, Type.INT, where) if each.type is Type.BOOL else each for each in (left, right))
    return tree.Compare(Type.BOOL, operator, left, right)


def joined(operator: str, values: list[Expression]) -> Expression:
    """`and` or `or` of truth values."""
    return values[0] if len(values) == 1 else tree.Logic(Type.BOOL, operator, tuple(values))


def common(values: list[Expression], where: Where) -> list[Expression]:
    """Numbers as numbers of one type."""
    types = {number(value, where).type for value in values}
    type_ = next(each for each in (Type.FLOAT, Type.INT, Type.BOOL) if each in types)
    return [converted(value, type_, where) for value in values]
