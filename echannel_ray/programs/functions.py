"""The functions that a text can call, by the names that Python has for them."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from echannel_ray.programs import operations, tree
from echannel_ray.programs.program import FUNCTIONS, Type, Where
from echannel_ray.programs.program_refusals import Refused, closest, shown_name
from echannel_ray.programs.tree import Expression

if TYPE_CHECKING:
    from echannel_ray.programs.checker import Checker

FLOAT_CONSTANTS: Final = {"pi": math.pi, "e": math.e}
_CONVERSIONS: Final = {"int": Type.INT, "float": Type.FLOAT, "bool": Type.BOOL}
_BY_TYPE: Final = ("abs", "min", "max")  # one for whole numbers, one for floating point ones
_OF_FLOATS: Final = frozenset(name for name in FUNCTIONS if name.partition("_")[0] not in _BY_TYPE)
_MATH: Final = _OF_FLOATS | set(FLOAT_CONSTANTS)
NAMES: Final = frozenset({*_CONVERSIONS, *_BY_TYPE, *_OF_FLOATS, "len", "range"})


def called(checker: Checker, node: ast.Call) -> Expression:
    """The expression that a call stands for."""
    where, name = checker.where(node), _name_of(checker, node.func)
    if node.keywords:
        raise Refused(f"{name} takes no arguments by name", checker.where(node.keywords[0]))
    if name == "len":
        _count(node.args, 1, name, where)
        return _length(checker, node.args[0], where)
    if name == "range":
        raise Refused("range(…) can only stand in `for i in range(…)`", where)
    arguments = [checker.of(each) for each in node.args]
    if name in _CONVERSIONS:
        _count(arguments, 1, name, where)
        return _conversion(arguments[0], _CONVERSIONS[name], where)
    arguments = [operations.number(each, checker.where(part)) for each, part in zip(arguments, node.args, strict=True)]
    if name in _BY_TYPE:
        return _by_type(checker, name, arguments, where)
    function = FUNCTIONS[name]
    _count(arguments, len(function.arguments), name, where)
    values = tuple(operations.converted(each, Type.FLOAT, where) for each in arguments)
    return tree.FunctionCall(function.result, name, values, where)


def _name_of(checker: Checker, node: ast.expr) -> str:
    match node:
        case ast.Name(name) if name in NAMES:
            return name
        case ast.Attribute(ast.Name("math"), name) if name in _OF_FLOATS:
            return name
        case ast.Attribute(ast.Name("math"), name):
            raise Refused(f"there is no math.{shown_name(name)} here{closest(name, _MATH)}", checker.where(node))
        case ast.Name(name):
            hint = closest(name, NAMES) or f": there are {', '.join(sorted(NAMES))}"
            raise Refused(f"there is no function {shown_name(name)}{hint}", checker.where(node))
        case ast.Attribute(_, name):
            raise Refused(f"nothing here has methods, {shown_name(name)} neither", checker.where(node))
    raise Refused("this can't be called", checker.where(node))


def _count(arguments: Sequence[Expression | ast.expr], count: int, name: str, where: Where) -> None:
    if len(arguments) != count:
        raise Refused(f"{name} takes {count} argument{'s' * (count > 1)}, not {len(arguments)}", where)


def _conversion(value: Expression, type_: Type, where: Where) -> Expression:
    if type_ is Type.BOOL:
        return operations.truth(value, where)
    if value.type in (Type.TEXT, Type.BYTES):
        raise Refused(f"this is {operations.named(value.type)}: it can't be made a number", where)
    return operations.converted(value, type_, where)


def _by_type(checker: Checker, name: str, arguments: list[Expression], where: Where) -> Expression:
    if name == "abs":
        _count(arguments, 1, name, where)
    elif len(arguments) < 2:
        raise Refused(f"{name} takes 2 arguments or more; of an array it is found by a loop", where)
    values = operations.common([*arguments, tree.Const(Type.INT, 0)], where)[:-1]
    type_ = values[0].type
    function = f"{name}_{'float' if type_ is Type.FLOAT else 'int'}"
    if name == "abs":
        return tree.FunctionCall(type_, function, (values[0],), where)
    result = values[0]
    for number, value in enumerate(values[1:]):
        if number > 1:  # of many, each step has a variable of its own: they would nest too deep
            result = checker.reusable(result, where)
        result = tree.FunctionCall(type_, function, (result, value), where)
    return result


def _length(checker: Checker, node: ast.expr, where: Where) -> Expression:
    if isinstance(node, ast.Name) and node.id in checker.scope.statics:
        length = checker.scope.statics[node.id][1].length
        if length:
            return tree.Const(Type.INT, length)
    place = checker.place(node)
    if place is None or place.is_output or not place.pending:
        raise Refused("len(…) is of an array of the event, or a static one", where)
    length_of_it = place.pending[0]
    if length_of_it is not None:
        return tree.Const(Type.INT, length_of_it)
    leaf = place.leaf
    if leaf is None or place.indices:
        raise Refused(
            f"the length of {place.name} can't be had here: only that of numbers and texts in one field", where
        )
    checker.scope.leaves[leaf] = None
    return tree.Length(Type.INT, leaf, where)
