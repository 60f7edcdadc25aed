"""How many steps a program takes at most: each operation is one or more, and a loop takes all its turns."""

from __future__ import annotations

from typing import Final

from echannel_ray.programs import tree
from echannel_ray.programs.program import FUNCTIONS, Type
from echannel_ray.programs.tree import Block, Expression, Statement, operands

MAX_COST: Final = 10**8  # about a tenth of a second of machine code: nobody means to spend more on one event
_COPY: Final = 10
_TEXT: Final = 5
_DIVISION: Final = 5


def cost_of(block: Block) -> int:
    """The steps that some statements take at most for an event."""
    return sum(map(_of_statement, block))


def _of_statement(statement: Statement) -> int:
    match statement:
        case tree.SetLocal(_, value) | tree.Return(value):
            return 1 + _of(value)
        case tree.SetStatic(_, index, value):
            return 1 + _of(value) + (0 if index is None else _of(index))
        case tree.StoreItem(_, indices, value):
            return 1 + _of(value) + sum(map(_of, indices))
        case tree.Copy():
            return _COPY
        case tree.If(condition, then, otherwise):
            return 1 + _of(condition) + max(cost_of(then), cost_of(otherwise))
        case tree.For(_, start, stop, _, body, most):
            return 1 + _of(start) + _of(stop) + most * (2 + cost_of(body))
    return 1


def _of(expression: Expression) -> int:
    own = 1
    match expression:
        case tree.Choice(_, condition, then, otherwise):
            return 1 + _of(condition) + max(_of(then), _of(otherwise))
        case tree.Binary(_, "/" | "//" | "%"):
            own = _DIVISION
        case tree.Compare(_, _, left) if left.type in (Type.TEXT, Type.BYTES):
            own = _TEXT
        case tree.FunctionCall(_, function):
            own = FUNCTIONS[function].cost
    return own + sum(map(_of, operands(expression)))
