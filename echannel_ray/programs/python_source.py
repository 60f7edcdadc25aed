"""The expressions of a program as Python source, made of the program alone: nothing that anybody wrote gets into it.

Texts and places are values that the source refers to by number. Whole numbers wrap around only where their bounds don't
say that they fit, since it takes longer than the sum itself.
"""

from __future__ import annotations

from typing import Any, Final

from echannel_ray.programs import arithmetic, tree
from echannel_ray.programs.bounds import Bounds
from echannel_ray.programs.program import Leaf, Program, Type
from echannel_ray.programs.tree import Expression

# So many brackets may be open before wrapping around is left to a function: Python's tokenizer takes 200.
_MAX_INLINE_DEPTH: Final = 30
_CHECKED: Final = {"//": "divide_whole", "%": "remainder_whole", "<<": "shift_left", ">>": "shift_right"}
_FLOATING: Final = {"/": "divide", "//": "floor_divide", "%": "remainder"}
_CHAINS: Final = {"+": "+-", "-": "+-", "*": "*"}


class PythonExpressions:
    """Makes the source of expressions, and collects what it refers to in `names`."""

    def __init__(self, program: Program) -> None:
        self.bounds = Bounds()
        self.names: dict[str, Any] = {
            name: getattr(arithmetic, name)
            for name in ("wrap", "to_whole", "item", "check_index", *_CHECKED.values(), *_FLOATING.values())
        }
        self.names |= {"inf": float("inf"), "nan": float("nan")}
        self._leaves = {leaf: f"l{number}" for number, leaf in enumerate(program.leaves)}
        self._depth = 0

    def named(self, value: Any) -> str:
        """A new name, by which the source has this value."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def of(self, expression: Expression) -> str:
        """The source of an expression: one operand, whatever stands around it."""
        self._depth += 1
        try:
            return self._of(expression)
        finally:
            self._depth -= 1

    def item(self, items: str, indices: tuple[Expression, ...], leaf: Leaf, where: Any) -> str:
        """An item of a leaf; each index that may be out of range is checked."""
        for index, length in zip(indices, leaf.shape, strict=True):
            if self.bounds.in_range((index,), (length,)):
                items = f"{items}[{self.of(index)}]"
            else:
                items = f"item({items}, {self.of(index)}, {self.named(where)})"
        return items

    def _of(self, expression: Expression) -> str:
        match expression:
            case tree.Const(_, value):
                return self._constant(value)
            case tree.Load(_, leaf, indices, where):
                return self.item(self._leaves[leaf], indices, leaf, where)
            case tree.Length(_, leaf):
                return f"len({self._leaves[leaf]})"
            case tree.Local(_, slot):
                return f"v{slot}"
            case tree.Static(_, slot, None):
                return f"s{slot}"
            case tree.Static(_, slot, index, where) if index is not None:
                return f"item(s{slot}, {self.of(index)}, {self.named(where)})"
            case tree.Param(_, slot):
                return f"p{slot}"
            case tree.Convert():
                return self._converted(expression)
            case tree.Unary():
                return self._unary(expression)
            case tree.Binary(type_, operator) if type_ is Type.INT and operator in "+-":
                code, fits = self._sum(expression)
                return f"({code})" if fits else self._wrapped(code)
            case tree.Binary():
                return self._binary(expression)
            case tree.Compare(_, operator, left, right):
                return f"({self._compared(left)} {operator} {self._compared(right)})"
            case tree.Logic(_, operator, values):
                return "(" + f" {operator} ".join(map(self.of, values)) + ")"
            case tree.Choice(_, condition, then, otherwise):
                return f"({self.of(then)} if {self.of(condition)} else {self.of(otherwise)})"
            case tree.FunctionCall(_, function, arguments):
                self.names[f"call_{function}"] = arithmetic.CALLED[function]
                return f"call_{function}({', '.join(map(self.of, arguments))})"
        raise AssertionError(expression)

    def _constant(self, value: bool | int | float | str | bytes) -> str:
        if isinstance(value, str | bytes):
            return self.named(value)
        # NaN and infinities are names; a sign needs brackets in front of an operator that binds closer.
        return f"({value!r})" if repr(value).startswith("-") else repr(value)

    def _compared(self, operand: Expression) -> str:
        """NULs at the end of a text don't count: where its place has a fixed size they fill it up."""
        if operand.type not in (Type.TEXT, Type.BYTES):
            return self.of(operand)
        padding = "\0" if operand.type is Type.TEXT else b"\0"
        if isinstance(operand, tree.Const):
            return self.named(operand.value.rstrip(padding))  # type: ignore[union-attr, arg-type]
        return f"{self.of(operand)}.rstrip({self.named(padding)})"

    def _wrapped(self, code: str) -> str:
        if self._depth > _MAX_INLINE_DEPTH:
            return f"wrap({code})"
        return f"(({code} + {2**63} & {2**64 - 1}) - {2**63})"

    def _converted(self, expression: tree.Convert) -> str:
        value, code = expression.value, self.of(expression.value)
        match expression.type:
            case Type.BOOL if value.type is not Type.BOOL:
                return f"({code} != 0)"
            case Type.FLOAT if value.type is not Type.FLOAT:
                return f"float({code})"
            case Type.INT if value.type is Type.FLOAT:
                return f"to_whole({code}, {self.named(expression.where)})"
            case Type.INT if value.type is Type.UNSIGNED:
                return f"wrap({code})"
            case Type.INT if value.type is Type.BOOL:
                return f"int({code})"
        return code

    def _unary(self, expression: tree.Unary) -> str:
        code = self.of(expression.value)
        if expression.operator == "not":
            return f"(not {code})"
        if expression.type is Type.INT and not self.bounds.exact(expression).fits:
            return self._wrapped(f"-{code}")
        return f"({expression.operator}{code})"

    def _sum(self, expression: tree.Binary) -> tuple[str, bool]:
        """A sum or difference of whole numbers without brackets, and whether it fits: what is inside wraps around with
        the whole, with the same result.
        """
        left, left_fits = self._summand(expression.left)
        right, right_fits = self._summand(expression.right)
        if right.startswith("-") or " " in right:
            right = f"({right})"
        fits = left_fits and right_fits and self.bounds.exact(expression).fits
        return f"{left} {expression.operator} {right}", fits

    def _summand(self, expression: Expression) -> tuple[str, bool]:
        if isinstance(expression, tree.Binary) and expression.operator in "+-":
            return self._sum(expression)
        return self.of(expression), True

    def _binary(self, expression: tree.Binary) -> str:
        operator, where = expression.operator, expression.where
        if expression.type is Type.FLOAT:
            if operator in _FLOATING and not _is_sure(expression.right):
                return f"{_FLOATING[operator]}({self.of(expression.left)}, {self.of(expression.right)})"
            return f"({self._chain(expression)})"
        left, right = self.of(expression.left), self.of(expression.right)
        if operator in _CHECKED and not self._is_plain(expression):
            return f"{_CHECKED[operator]}({left}, {right}, {self.named(where)})"
        # A sum binds closer than a shift: `_wrapped` adds to it.
        code = f"({left} << {right})" if operator == "<<" else f"{left} {operator} {right}"
        return f"({code})" if self.bounds.exact(expression).fits else self._wrapped(code)

    def _chain(self, expression: tree.Binary) -> str:
        """Without brackets around what is on the left, where Python reads it the same."""
        left = expression.left
        if isinstance(left, tree.Binary) and left.operator in _CHAINS.get(expression.operator, ""):
            first = self._chain(left)
        else:
            first = self.of(left)
        return f"{first} {expression.operator} {self.of(expression.right)}"

    def _is_plain(self, expression: tree.Binary) -> bool:
        """Whether Python's own operator does: no trap, and no wrapping around."""
        right = self.bounds.of(expression.right)
        if expression.operator in ("<<", ">>"):
            return right.lies_within(0, 63)
        return not right.low <= 0 <= right.high


def _is_sure(divisor: Expression) -> bool:
    """Whether a floating point divisor is known not to be zero."""
    return isinstance(divisor, tree.Const) and bool(divisor.value)
