"""Expressions of a text as those of a program: names found, types agreed on, everything else refused.

What is needed twice (the middle of `a < b < c`, the base of a power) goes into a hidden variable, set in front of the
statement. That must not be seen: where it is not certain that the expression is worked out at all, it may not trap.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.programs import operations, tree
from echannel_ray.programs.functions import FLOAT_CONSTANTS, NAMES, called
from echannel_ray.programs.program import TYPES_OF_VALUES, Type, Where
from echannel_ray.programs.program_refusals import Refused, shown_name
from echannel_ray.programs.scope import FieldPlace, Scope
from echannel_ray.programs.tree import Expression

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_UNARY: Final[dict[type[ast.unaryop], str]] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_NOT_HERE: Final = {
    "ListComp": "there are no comprehensions: write a `for` loop",
    "GeneratorExp": "there are no comprehensions: write a `for` loop",
    "List": "there are no lists, but behind `in` and as `name: static = [0.0] * 16`",
    "Tuple": "there are no tuples, but behind `in`",
    "Starred": "a star means nothing here",
    "Slice": "a part of an array can only be looped over: `for x in values[:100]`",
}
_CONSTANTS: Final = {**TYPES_OF_VALUES, bytes: Type.BYTES}
_MAX_POWER: Final = 64


class Checker:
    """Makes expressions, and collects in `prelude` what must be worked out in front of them."""

    def __init__(self, scope: Scope, text: str) -> None:
        self.scope = scope
        self.prelude: list[tree.SetLocal] = []
        self._lines = None if text.isascii() else text.split("\n")
        self._uncertain = 0
        self._checks: dict[type[ast.expr], Callable[[Any], Expression]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._part,
            ast.Subscript: self._part,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: self._logic,
            ast.Compare: self._compare,
            ast.IfExp: self._choice,
            ast.Call: functools.partial(called, self),
        }

    def of(self, node: ast.expr) -> Expression:
        """The expression that a node stands for."""
        check = self._checks.get(type(node))
        if check is None:
            kind = type(node).__name__
            raise Refused(_NOT_HERE.get(kind, f"this ({kind}) means nothing here"), self.where(node))
        return check(node)

    def where(self, node: ast.expr | ast.stmt | ast.keyword) -> Where:
        """The place where a node begins in the text: the parser counts columns in bytes."""
        column = node.col_offset
        if self._lines is not None:
            column = len(self._lines[node.lineno - 1].encode()[:column].decode(errors="replace"))
        return Where(node.lineno, column + 1)

    def truth(self, node: ast.expr) -> Expression:
        """The expression that a node stands for, as a truth value."""
        return operations.truth(self.of(node), self.where(node))

    def index(self, node: ast.expr, length: int | None, name: str) -> Expression:
        """An index into an array of so many items."""
        value, where = self.of(node), self.where(node)
        if value.type is not Type.INT:
            raise Refused(f"an index is a whole number, and this is {operations.named(value.type)}", where)
        low, high = self.scope.bounds.of(value)
        if high < 0:
            raise Refused(
                f"an index counts from the start: it is never negative; the last one is len({name}) - 1", where
            )
        if length is not None and low >= length:
            raise Refused(f"this index is out of range: {name} has {length} items", where)
        return value

    def place(self, node: ast.expr) -> FieldPlace | None:
        """The field, or part of one, that a node names; None where it names something else."""
        match node:
            case ast.Name(name):
                return None if self._is_variable(name) else self.scope.root(name)
            case ast.Attribute(value, name):
                whole = self.place(value)
                return None if whole is None else self.scope.part(whole, name, self.where(node))
            case ast.Subscript(value, index):
                whole = self.place(value)
                return None if whole is None else self._item(whole, index)
        return None

    def load(self, place: FieldPlace, where: Where) -> tree.Load:
        """The value that a place holds."""
        if place.is_output:
            raise Refused("the output can only be set: put the value into a variable, and that into the output", where)
        if place.pending:
            raise Refused(f"{place.name} is an array: write which item, or loop over it", where)
        leaf = place.leaf
        if leaf is None:
            kind = type(place.type).__name__.removesuffix("Type").lower()
            raise Refused(
                f"{place.name} ({kind}) can't be read here, only copied as a whole: `output.x = {place.name}`", where
            )
        self.scope.leaves[leaf] = None
        return tree.Load(leaf.type, leaf, place.indices, where)

    def reusable(self, value: Expression, where: Where) -> Expression:
        """The expression for use in several places: worked out once."""
        match value:
            case tree.Const() | tree.Local() | tree.Param() | tree.Static(index=None) | tree.Length():
                return value
            case tree.Load(type_, leaf, indices, place):
                return tree.Load(type_, leaf, tuple(self.reusable(index, where) for index in indices), place)
        if value.type not in (Type.BOOL, Type.INT, Type.FLOAT):
            raise Refused("this is needed several times: write the comparisons one by one", where)
        if self._uncertain and self.scope.bounds.may_trap(value):
            raise Refused("this is needed several times, and may fail: put it into a variable first", where)
        slot = self.scope.new_local("", value.type)
        self.prelude.append(tree.SetLocal(slot, value))
        if value.type is Type.INT:
            self.scope.bounds.known[slot] = self.scope.bounds.of(value)
        return tree.Local(value.type, slot)

    def _is_variable(self, name: str) -> bool:
        return name in self.scope.slots or name in self.scope.statics

    def _item(self, place: FieldPlace, index: ast.expr) -> FieldPlace:
        for each in index.elts if isinstance(index, ast.Tuple) else [index]:
            if not place.pending:
                raise Refused(f"{place.name} is no array with so many dimensions", self.where(each))
            place = place._replace(indices=(*place.indices, self.index(each, place.pending[0], place.name)))
        return place

    def _constant(self, node: ast.Constant) -> Expression:
        value: Any = node.value
        type_ = _CONSTANTS.get(type(value))
        if type_ is None:
            raise Refused("this constant means nothing here", self.where(node))
        return operations.whole(value, self.where(node)) if type_ is Type.INT else tree.Const(type_, value)

    def _name(self, node: ast.Name) -> Expression:
        name, scope, where = node.id, self.scope, self.where(node)
        if name in scope.statics:
            slot, variable = scope.statics[name]
            if variable.length:
                raise Refused(f"{name} is an array: write which item, or loop over it", where)
            return tree.Static(variable.type, slot, None, where)
        if name in scope.slots:
            slot = scope.slots[name]
            if not scope.has_value(slot):
                raise Refused(f"{name} may have no value here: give it one before the `if` or the loop", where)
            return tree.Local(scope.locals[slot], slot)
        place = scope.root(name)
        if place is not None and place.path:
            return self.load(place, where)
        if place is not None or name == scope.names.param:
            raise Refused(f"{name} is a whole record: write {name}.… for one of its fields", where)
        if name in scope.assigned_names:
            raise Refused(f"{name} has no value yet: it gets one only below", where)
        if name in FLOAT_CONSTANTS:
            return tree.Const(Type.FLOAT, FLOAT_CONSTANTS[name])
        if name in NAMES:
            raise Refused(f"{name} is a function: write {name}(…)", where)
        raise scope.unknown(name, where)

    def _part(self, node: ast.Attribute | ast.Subscript) -> Expression:
        where, value = self.where(node), node.value
        if isinstance(value, ast.Name) and not self._is_variable(value.id):
            if value.id == self.scope.names.param and isinstance(node, ast.Attribute):
                return self.scope.param(node.attr, where)
            if value.id == "math" and isinstance(node, ast.Attribute) and self.scope.root("math") is None:
                return self._of_math(node)
        if isinstance(value, ast.Name) and isinstance(node, ast.Subscript) and value.id in self.scope.statics:
            slot, index, type_ = self.static_item(value.id, node.slice, where)
            return tree.Static(type_, slot, index, where)
        place = self.place(node)
        if place is not None:
            return self.load(place, where)
        operand = self.of(value)
        if isinstance(node, ast.Attribute):
            raise Refused(f"this is {operations.named(operand.type)}, and has no {shown_name(node.attr)}", where)
        raise Refused(f"this is {operations.named(operand.type)}, and has no items", where)

    def static_item(self, name: str, index: ast.expr, where: Where) -> tuple[int, Expression, Type]:
        """The slot, the index and the type of an item of a static array."""
        slot, variable = self.scope.statics[name]
        if not variable.length:
            raise Refused(f"{name} is {operations.named(variable.type)}, and has no items", where)
        return slot, self.index(index, variable.length, name), variable.type

    def _of_math(self, node: ast.Attribute) -> Expression:
        if node.attr in FLOAT_CONSTANTS:
            return tree.Const(Type.FLOAT, FLOAT_CONSTANTS[node.attr])
        raise Refused(f"there is no value math.{shown_name(node.attr)}: there are math.pi and math.e", self.where(node))

    def _binary(self, node: ast.BinOp) -> Expression:
        where = self.where(node)
        if isinstance(node.op, ast.Pow):
            return self._power(self.of(node.left), self.of(node.right), where)
        operator = _BINARY.get(type(node.op))
        if operator is None:
            raise Refused("this operator means nothing here", where)
        return operations.binary(operator, self.of(node.left), self.of(node.right), where)

    def _power(self, base: Expression, exponent: Expression, where: Where) -> Expression:
        """Squared and multiplied, from the highest bit of the exponent to the lowest."""
        if not (
            isinstance(exponent, tree.Const) and exponent.type is Type.INT and 0 <= int(exponent.value) <= _MAX_POWER
        ):
            raise Refused(f"an exponent is a constant from 0 to {_MAX_POWER}: for any other write pow(x, y)", where)
        base = operations.number(base, where)
        if base.type is Type.BOOL:
            base = operations.converted(base, Type.INT, where)
        if not exponent.value:
            return operations.converted(tree.Const(Type.INT, 1), base.type, where)
        base = self.reusable(base, where)
        result = base
        for bit in f"{int(exponent.value):b}"[1:]:
            result = self.reusable(result, where)
            result = operations.binary("*", result, result, where)
            if bit == "1":
                result = operations.binary("*", result, base, where)
        return result

    def _unary(self, node: ast.UnaryOp) -> Expression:
        where, operand = self.where(node), node.operand
        if isinstance(node.op, ast.Not):
            return operations.negated(self.truth(operand))
        # The smallest number is the only one whose constant without its sign is too large.
        if isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant) and type(operand.value) is int:
            return operations.whole(-operand.value, where)
        return operations.signed(_UNARY[type(node.op)], self.of(operand), where)

    def _logic(self, node: ast.BoolOp) -> Expression:
        first = self.truth(node.values[0])
        self._uncertain += 1
        values = [first, *map(self.truth, node.values[1:])]
        self._uncertain -= 1
        return operations.joined("and" if isinstance(node.op, ast.And) else "or", values)

    def _choice(self, node: ast.IfExp) -> Expression:
        where, condition = self.where(node), self.truth(node.test)
        self._uncertain += 1
        then, otherwise = operations.common([self.of(node.body), self.of(node.orelse)], where)
        self._uncertain -= 1
        return tree.Choice(then.type, condition, then, otherwise)

    def _compare(self, node: ast.Compare) -> Expression:
        left, found = self.of(node.left), []
        last = len(node.ops) - 1
        for number, (operator, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            where = self.where(right)
            if isinstance(operator, ast.In | ast.NotIn):
                if last:
                    raise Refused("`in` stands alone between two operands: join comparisons by `and`", where)
                return self._in(left, right, isinstance(operator, ast.NotIn))
            value = self.of(right)
            if number < last:
                value = self.reusable(value, where)
            found.append(operations.compared(_COMPARE[type(operator)], left, value, where))
            left = value
            self._uncertain += number == 0
        self._uncertain -= 1
        return operations.joined("and", found)

    def _in(self, left: Expression, node: ast.expr, is_negated: bool) -> Expression:
        if not isinstance(node, ast.Tuple | ast.List):
            raise Refused('behind `in` stands a tuple of constants: `in ("IBM", "SUN")`', self.where(node))
        left = self.reusable(left, self.where(node))
        found = []
        for each in node.elts:
            value = self.of(each)
            if not isinstance(value, tree.Const):
                raise Refused("behind `in` stand constants: compare with anything else by `==`", self.where(each))
            found.append(operations.compared("==", left, value, self.where(each)))
        result = operations.joined("or", found) if found else operations.FALSE
        return tree.Unary(Type.BOOL, "not", result) if is_negated else result
