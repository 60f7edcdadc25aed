"""What is known of whole numbers before a program runs: which indices need no check, which sums can't wrap around."""

from __future__ import annotations

from typing import Final, NamedTuple

from echannel_ray.programs import tree
from echannel_ray.programs.program import Type
from echannel_ray.programs.tree import Block, Expression, operands

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1


class Interval(NamedTuple):
    """All whole numbers from `low` to `high`."""

    low: int
    high: int

    @property
    def fits(self) -> bool:
        """Whether all of them are whole numbers of 64 bits."""
        return self.low >= MIN_INT and self.high <= MAX_INT

    def lies_within(self, low: int, high: int) -> bool:
        """Whether all of its numbers are from `low` to `high`."""
        return self.low >= low and self.high <= high


ANY: Final = Interval(MIN_INT, MAX_INT)
_TRUTH: Final = Interval(0, 1)
_UNKNOWN: Final = Interval(MIN_INT - 1, MAX_INT + 1)  # it may wrap around, for all that is known
# So deep is looked into an expression: from each of its operators, which without a limit takes the square of its size.
_MAX_DEPTH: Final = 12


class Bounds:
    """What is `known` of local variables, by slot, at one place of a program; who walks through it keeps it so."""

    def __init__(self) -> None:
        self.known: dict[int, Interval] = {}

    def of(self, expression: Expression, depth: int = _MAX_DEPTH) -> Interval:
        """Where the value of an expression (INT, or BOOL as 0 or 1) lies."""
        exact = self.exact(expression, depth)
        return exact if exact.fits else ANY

    def exact(self, expression: Expression, depth: int = _MAX_DEPTH) -> Interval:
        """The interval of an expression before it wraps around: it `fits` where it doesn't have to."""
        if expression.type is Type.BOOL:
            return _TRUTH
        if expression.type is not Type.INT:
            return ANY
        match expression:
            case tree.Const(_, value):
                return Interval(int(value), int(value))
            case tree.Load(_, leaf):
                return Interval(*leaf.limits)
            case tree.Length():
                return Interval(0, MAX_INT)
            case tree.Local(_, slot):
                return self.known.get(slot, ANY)
        return self._worked_out(expression, depth - 1) if depth else _UNKNOWN

    def _worked_out(self, expression: Expression, depth: int) -> Interval:
        match expression:
            case tree.Convert(_, value) if value.type in (Type.INT, Type.BOOL):
                return self.of(value, depth)
            case tree.Unary(_, "-", value):
                low, high = self.of(value, depth)
                return Interval(-high, -low)
            case tree.Binary(_, operator, left, right):
                return _combined(operator, self.of(left, depth), self.of(right, depth))
            case tree.Choice(_, _, then, otherwise):
                one, other = self.of(then, depth), self.of(otherwise, depth)
                return Interval(min(one.low, other.low), max(one.high, other.high))
            case tree.FunctionCall(_, function, arguments):
                return _called(function, [self.of(each, depth) for each in arguments])
        return ANY

    def may_trap(self, expression: Expression) -> bool:
        """Whether working out an expression may have no result."""
        match expression:
            case tree.Load(_, leaf, indices) if not self.in_range(indices, leaf.shape):
                return True
            case tree.Static(_, _, index) if index is not None:
                return True
            case tree.Convert(Type.INT, value) if value.type is Type.FLOAT:
                return True
            case tree.Binary(_, operator, left, right) if self._fails(operator, left, right):
                return True
        return any(map(self.may_trap, operands(expression)))

    def in_range(self, indices: tuple[Expression, ...], shape: tuple[int | None, ...]) -> bool:
        """Whether all indices of a leaf are known to be in range."""
        return all(
            length is not None and self.of(index).lies_within(0, length - 1)
            for index, length in zip(indices, shape, strict=True)
        )

    def _fails(self, operator: str, left: Expression, right: Expression) -> bool:
        if left.type is not Type.INT:
            return False
        if operator in ("//", "%"):
            return self.of(right).low <= 0 <= self.of(right).high
        return operator in ("<<", ">>") and not self.of(right).lies_within(0, 63)


def of_turns(start: Interval, stop: Interval, step: int) -> tuple[Interval, int]:
    """Where the variable of a loop lies while it runs, and how often it runs at most."""
    if step > 0:
        most = -((start.low - stop.high) // step)
        return Interval(start.low, max(start.low, stop.high - 1)), max(0, most)
    most = -((stop.low - start.high) // -step)
    return Interval(min(start.high, stop.low + 1), start.high), max(0, most)


def count_assignments(block: Block, counts: dict[int, int] | None = None) -> dict[int, int]:
    """How often each local variable is assigned to in these statements: what is assigned to once keeps its bounds."""
    counts = {} if counts is None else counts
    for statement in block:
        match statement:
            case tree.SetLocal(slot):
                counts[slot] = counts.get(slot, 0) + 1
            case tree.If(_, then, otherwise):
                count_assignments(then, counts)
                count_assignments(otherwise, counts)
            case tree.For(slot, body=body):
                counts[slot] = counts.get(slot, 0) + 1
                count_assignments(body, counts)
    return counts


def _combined(operator: str, left: Interval, right: Interval) -> Interval:
    match operator:
        case "+":
            return Interval(left.low + right.low, left.high + right.high)
        case "-":
            return Interval(left.low - right.high, left.high - right.low)
        case "*":
            corners = [one * other for one in left for other in right]
            return Interval(min(corners), max(corners))
        case "%" if right.low > 0:
            return Interval(0, right.high - 1)
        case "//" if right.low > 0:
            corners = [one // other for one in left for other in right]
            return Interval(min(corners), max(corners))
        case "//":
            # The smallest number by -1 is the only quotient that is too large.
            return Interval(MIN_INT, MAX_INT + (left.low == MIN_INT and right.low <= -1 <= right.high))
        case "&" if right.low >= 0 or left.low >= 0:
            return Interval(0, min(each.high for each in (left, right) if each.low >= 0))
        case "<<" if right.lies_within(0, 63):
            corners = [one << other for one in left for other in right]
            return Interval(min(corners), max(corners))
        case "<<":
            return Interval(MIN_INT << 63, MAX_INT << 63)
        case ">>" if left.low >= 0:
            return Interval(0, left.high)
    return ANY


def _called(function: str, arguments: list[Interval]) -> Interval:
    match function:
        case "min_int":
            return Interval(min(each.low for each in arguments), min(each.high for each in arguments))
        case "max_int":
            return Interval(max(each.low for each in arguments), max(each.high for each in arguments))
        case "abs_int":
            low, high = arguments[0]
            return Interval(0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))
    return ANY
