"""Another reading of expressions, to compare with: Python's own, over numbers whose operators are those of programs."""

import ast
import math


class Failed(Exception):
    """There is no result."""


class Number:
    """A whole number of 64 bits, or a floating point number."""

    def __init__(self, value):
        if isinstance(value, int):
            value = (int(value) + 2**63) % 2**64 - 2**63
        self.value = value

    def __bool__(self):
        return bool(self.value)

    def _with(self, other, of_whole, of_floats):
        if isinstance(self.value, float) or isinstance(other.value, float):
            return Number(of_floats(float(self.value), float(other.value)))
        return Number(of_whole(self.value, other.value))

    def __add__(self, other):
        return self._with(other, int.__add__, float.__add__)

    def __sub__(self, other):
        return self._with(other, int.__sub__, float.__sub__)

    def __mul__(self, other):
        return self._with(other, int.__mul__, float.__mul__)

    def __truediv__(self, other):
        return Number(_divided(float(self.value), float(other.value)))

    def __floordiv__(self, other):
        return self._with(other, lambda a, b: _whole(int.__floordiv__, a, b), _floor_divided)

    def __mod__(self, other):
        return self._with(other, lambda a, b: _whole(int.__mod__, a, b), _remainder)

    def __and__(self, other):
        return self._of_bits(other, int.__and__)

    def __or__(self, other):
        return self._of_bits(other, int.__or__)

    def __xor__(self, other):
        return self._of_bits(other, int.__xor__)

    def __lshift__(self, other):
        return self._of_bits(other, _shifted_left)

    def __rshift__(self, other):
        return self._of_bits(other, _shifted_right)

    def _of_bits(self, other, of_whole):
        return Number(of_whole(self.value, other.value))

    def __neg__(self):
        return Number(-self.value)

    def __invert__(self):
        return Number(~self.value)

    def __lt__(self, other):
        return self._with(other, int.__lt__, float.__lt__)

    def __ge__(self, other):
        return self._with(other, int.__ge__, float.__ge__)

    def __eq__(self, other):
        return self._with(other, int.__eq__, float.__eq__)

    __hash__ = None  # type: ignore[assignment]


def _whole(operator, left, right):
    if not right:
        raise Failed
    return operator(left, right)


def _divided(left, right):
    if right:
        return left / right
    return math.nan if not left or left != left else math.copysign(math.inf, left) * math.copysign(1, right)


def _floor_divided(left, right):
    # As `program` words it.
    if not right:
        return _divided(left, right)
    rest = _rest(left, right)
    quotient = (left - rest) / right
    if rest and (rest < 0) != (right < 0):
        quotient -= 1.0
    if not quotient:
        return math.copysign(0.0, left / right)
    if not math.isfinite(quotient):
        return quotient
    floor = float(math.floor(quotient))
    return floor + 1.0 if quotient - floor > 0.5 else floor


def _remainder(left, right):
    if not right:
        return math.nan
    rest = _rest(left, right)
    if not rest:
        return math.copysign(0.0, right)
    return rest + right if (rest < 0) != (right < 0) else rest


def _rest(left, right):
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _shifted_left(value, by):
    if not 0 <= by < 64:
        raise Failed
    return value << by


def _shifted_right(value, by):
    if not 0 <= by < 64:
        raise Failed
    return value >> by


def to_whole(number):
    if isinstance(number.value, int):
        return number
    if not -(2.0**63) <= number.value < 2.0**63:
        raise Failed
    return Number(int(number.value))


def to_float(number):
    return Number(float(number.value))


class _Wrapped(ast.NodeTransformer):
    """Each constant becomes a `Number`, and each result of `and`, `or`, `not` and comparisons a truth value."""

    def visit_Constant(self, node):
        return ast.Call(ast.Name("Number", ast.Load()), [node], [])

    def _truth(self, node):
        self.generic_visit(node)
        call = ast.Call(ast.Name("bool", ast.Load()), [node], [])
        return ast.Call(ast.Name("Number", ast.Load()), [call], [])

    visit_Compare = visit_BoolOp = _truth  # noqa: N815

    def visit_UnaryOp(self, node):
        return self._truth(node) if isinstance(node.op, ast.Not) else self.generic_visit(node)


def evaluate(text, values):
    """The value of an expression; `Failed` where it has none."""
    tree = ast.fix_missing_locations(_Wrapped().visit(ast.parse(text, mode="eval")))
    names: dict[str, object] = {"Number": Number, "int": to_whole, "float": to_float, "bool": bool}
    names |= {name: Number(value) for name, value in values.items()}
    return eval(compile(tree, "<reference>", "eval"), names).value
